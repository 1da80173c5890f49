"""Records a run on another thread: to the ring of the last minutes, to incidents, and to a file of the user."""

from __future__ import annotations

import _thread
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.config.load import recorder_options
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.errors import ConfigError, os_text
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.self_metrics import SHOWN, Incident
from chipwatch.history.columns import NotARecording
from chipwatch.history.event import ENDED, WHY, Event
from chipwatch.history.journal import MOST_SERIES, MOST_TABLE, STEP, Header, Recording, first_line
from chipwatch.history.ring import Ring
from chipwatch.host.failures import note

if TYPE_CHECKING:
    from chipwatch.history.record_file import RecordFile
    from chipwatch.jobs.verdict.events import EventHistory

log = logging.getLogger(__name__)
T = TypeVar("T")

AFTER: Final = 120 * 10**9
"""Nanoseconds after an event at which its incident ends."""
Tick = tuple[Sequence[Datapoint], int]
TOGETHER: Final = 10.0
"""Seconds of ticks that are written together, as one part, since a thread for it takes CPU time."""
SOON: Final = 2.0
"""The same where somebody asked for a file."""
MOST_TOGETHER: Final = 4000
"""Points after which a part is written sooner; they take 1 MB."""
MANY: Final = 2000
"""Series above which not every tick is recorded: as many as a tick has more series than this."""
GOLDEN: Final = 0.618034
"""A tick is recorded by its multiple of the golden ratio: so no collector that is read in each nth tick is missed."""
MOST_WAITING: Final = 30
"""Most parts that may wait for a slow disk, 1 MB each unless a tick is larger; further ones are dropped."""
SEALING: Final = 2.0
"""Seconds that the last delivery waits for the last incident to be written."""
ENDING: Final = 5.0
"""Seconds to wait at the end until all is written."""
MOST_SLOW: Final = 3
"""Most slow jobs that an incident names; the latest ones are named."""
ASKED: Final = "asked"
COMMAND: Final = "command"
JOB: Final = "job"


def open_file(config: Config, common: Callable[[], Dimensions | None], path: Path) -> RecordFile:
    """Create the file that the user asked for; raise CommandError."""
    from chipwatch.history.record_file import RecordFile

    try:
        return RecordFile(path, partial(first_line, common, time.time_ns(), config.interval))
    except NotARecording as problem:
        raise ConfigError(f"record: {problem}") from problem
    except OSError as problem:
        raise ConfigError(f"record: {path}: {os_text(problem)}; choose another place") from problem


class Errands:
    """Makes calls that may wait for a disk, one after another, on a daemon thread that ends when none is left."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._is_busy = threading.Lock()

    def __len__(self) -> int:
        """Return how many calls have not begun."""
        return self._calls.qsize()

    def add(self, call: Callable[..., object], *args: Any) -> None:
        """Make this call after all others; any thread may ask for it."""
        self._calls.put(partial(call, *args))
        if not self._is_busy.locked():
            with suppress(RuntimeError):  # no thread can be started; the next one makes this call, too
                _thread.start_new_thread(self._run, ())  # takes a third of the time of a Thread

    def wait(self, timeout: float) -> bool:
        """Wait until all calls have returned, for at most `timeout` seconds; return whether they have."""
        done = threading.Event()
        self.add(done.set)
        return done.wait(timeout)

    def _run(self) -> None:
        while len(self) and self._is_busy.acquire(blocking=False):  # again, since a call may come before the release
            try:
                while len(self):
                    self._calls.get()()
            finally:
                self._is_busy.release()


class Recorder:
    """Takes the points of each tick from the clock's thread, and writes them on another one."""

    def __init__(
        self, config: Config, pipeline: Pipeline, common: Callable[[], Dimensions | None], state: Path | None,
        file: RecordFile | None = None, *, history: EventHistory,
    ) -> None:  # fmt: skip
        """Keep a ring in the folder `state`, and write to `file`, if given. Events of `history` begin incidents."""
        self._pipeline, self._history, self._file = pipeline, history, file
        self.trouble = ""
        """Why the file is incomplete; "" if it is complete so far."""
        self._interval, started = config.interval, time.time_ns()  # compared with the points' time
        self._errands, self._at = Errands(), started
        self._ticks: list[Tick] = []
        """Ticks that are not queued yet."""
        self._turn = 0.0
        """The last tick's multiple of the golden ratio, without its whole part; see GOLDEN."""
        self._targets: list[Recording] = [file] if file else []
        """The recordings that are written; one whose disk fails is left out from then on."""
        self._ring: Ring | None = None
        self._open: Event | None = None
        self._slow: dict[str, str] = {}
        """Job -> the sentence on why it is slow."""
        self._logger = ThrottledLogger(log, "recorder")
        is_durable = any(route.worker.sink.limits.durable for route in pipeline.routes)
        self._level = logging.WARNING if is_durable or file else logging.DEBUG
        """Level of messages that recording has failed. It is low if nobody asked for durable data."""
        self.incidents: list[Path] = []
        """Files of the incidents of this run."""
        options = recorder_options(config)
        if state and options:
            header = lambda: first_line(common, started, self._interval and self._interval * self._slowness)  # noqa: E731
            self._survive(None, self._open_ring, state, options.keep, header)
        if self._targets:
            pipeline.listeners.append(self.take)
            for derivation in pipeline.derivations:
                derivation.note = self.note_job

    def take(self, points: Sequence[Datapoint], at: int) -> None:
        """Queue the points of a tick, after `history` has taken them; the clock's thread calls it."""
        self._turn = (self._turn + GOLDEN) % 1.0
        if self._history.begun or self._turn * self._slowness < 1.0:
            self._ticks.append((points, at))
        seconds = len(self._ticks) * (self._interval or TOGETHER)
        many = len(self._ticks) * len(points)
        if not (self._history.begun or many > MOST_TOGETHER or seconds + 0.01 >= (SOON if self._file else TOGETHER)):
            return
        ticks, self._ticks = self._ticks, []
        if len(self._errands) < MOST_WAITING:
            self._errands.add(self._write, ticks)
        else:
            self.trouble = self.trouble or "the disk was too slow for some readings"
            self._logger.log(logging.WARNING, "late", "the disk is too slow; ticks are left out")
        for one, file in self._history.begun:
            self._errands.add(self._begin, Event(one.at, one.kind, one.text, {"job": one.job} if one.job else {}))
            if file:
                self._errands.add(note, file, one)

    @property
    def _slowness(self) -> float:
        """Return how many ticks there are for one that is recorded, at least 1: a file has all."""
        return max(1.0, self._ring.crowd / MANY) if self._ring and not self._file else 1.0

    @property
    def _kept_ring(self) -> Ring | None:
        """Return the ring while its disk takes it; None if there is none."""
        return self._ring if self._ring in self._targets else None

    def happened(self, cause: str, text: str, **dims: str) -> None:
        """Queue an event, which may begin an incident; any thread may call it."""
        self._errands.add(self._begin, Event(time.time_ns(), cause, text, dims))  # compared with the points' time

    def note_job(self, job: str, sentence: str, is_slow: bool) -> None:  # noqa: FBT001  # by position only
        """Record why a job is slow, or that it no longer is; incidents that end later repeat it."""
        self._slow.pop(job, None)
        if is_slow:
            self._slow[job] = f"job {job}: {sentence}"
        self.happened(WHY, f"job {job}: {sentence}", job=job)

    def seal(self, job: str = "", code: str = "") -> Mapping[str, Any]:
        """Begin an incident because a user asks for it or `job` has failed; return the answer for the status socket."""
        if not (ring := self._kept_ring):
            return {"sealed": False}
        if job:
            ended, _, number = code.partition(":")
            how = f"was ended by signal {number}" if number.strip("0") else f"ended with {ended}"
            self.happened(JOB, f"job {job} {how}", job=job)
        else:
            self.happened(ASKED, "somebody asked for it")
        return {"sealed": True, "folder": str(ring.incidents), "seconds": AFTER / 1e9}

    def end(self, last: str = "", code: int = 0) -> None:
        """End the open incident and send its point; `last`: the sentence on the end of a command, `code`: its code."""
        named = len(self._pipeline.incidents)
        self._errands.add(self._write, self._ticks)
        if last:
            self.happened(COMMAND if code else ENDED, last)
        self._errands.add(self._finish)
        self._errands.wait(SEALING)
        at = time.time_ns()  # compared with the points' time
        if new := self._pipeline.incidents[named:]:
            self._pipeline.send([incident.point(at) for incident in new], at)

    def close(self) -> None:
        """Wait until all is written, at most ENDING seconds; called after `end`."""
        if not self._errands.wait(ENDING):
            self.trouble = self.trouble or "the disk was too slow for the last readings"

    def _open_ring(self, state: Path, keep: float, header: Header) -> None:
        ring = self._ring = Ring(state, keep, header, self._is_sent)
        self._targets.append(ring)
        if ring.left:
            self._tell(Event(0, ring.left.stem.partition("-")[2], "the last run was killed"), ring.left)

    def _is_sent(self, metric: Metric, dims: Dimensions) -> bool:
        """Return whether a sink sends this series, or at least none leaves it out because of `max_series`."""
        fates = {route.sends(metric, dims) for route in self._pipeline.routes}
        return True in fates or False not in fates

    def _write(self, ticks: Sequence[Tick]) -> None:
        for points, at in ticks:
            self._write_one(points, at)
        for target in [*self._targets]:
            self._survive(target, target.sync)

    def _write_one(self, points: Sequence[Datapoint], at: int) -> None:
        self._at = at
        if self._open and at < self._open.at - STEP:  # the clock was set back, so the ring starts over
            self._seal(at)
        for target in [*self._targets]:
            self._survive(target, target.add, points, at)
            if target.is_short:
                short = f"more than {MOST_SERIES:,} series, or {MOST_TABLE >> 20} MB of their dimensions"
                self.trouble = self.trouble or short
                self._logger.log(logging.WARNING, "short", f"{short}: the others are left out")
            if (slow := self._slowness) > 1.0:
                self._logger.log(logging.INFO, "many", f"{target.crowd:,} series: one reading in {slow:.1f} is kept")
        if self._open and at >= self._open.at + AFTER:
            self._seal(at)

    def _begin(self, event: Event) -> None:
        """Record an event. It begins an incident, unless one is open or its cause had one recently."""
        for target in [*self._targets]:
            self._survive(target, target.note, event)
        ring = self._kept_ring if event.cause not in (WHY, ENDED) and not self._open else None
        if ring and (event.cause == ASKED or not ring.has(event.cause, event.at)):
            self._open, ring.is_open = event, True

    def _finish(self) -> None:
        if self._open:
            self._seal(self._at)
        for target in filter(None, (self._file, self._ring)):  # also a ring whose disk has failed: it was not killed
            self._survive(target, target.close)

    def _seal(self, at: int) -> None:
        event, self._open = self._open, None
        if event and (ring := self._kept_ring):
            ring.is_open = False
            if slow := "; ".join([*self._slow.values()][-MOST_SLOW:]):
                event = Event(event.at, event.cause, event.text, {**event.dims, WHY: slow})
            if path := self._survive(ring, ring.seal, event, at):
                self.incidents.append(path)
                self._tell(event, path)

    def _tell(self, event: Event, path: Path) -> None:
        self._pipeline.incidents.append(Incident(event.cause, path.name, time.monotonic() + SHOWN))
        level = logging.INFO if event.cause in (ASKED, COMMAND, JOB) else logging.WARNING
        log.log(level, "incident: %s; the minutes around it are in %s", event.text, path)

    def _survive(self, target: Recording | None, call: Callable[..., T], *words: Any) -> T | None:
        """Return the result of a call that writes to `target`; if the disk fails, stop writing to that target."""
        try:
            return call(*words)
        except (OSError, NotARecording) as problem:
            is_known = target is not None and target not in self._targets
            self._targets = [other for other in self._targets if other is not target]
            level = self._level
            if target is self._file and target:
                level, self.trouble = logging.ERROR, f"nothing after {time.strftime('%H:%M:%S')}: {os_text(problem)}"
            elif isinstance(problem, NotARecording):  # other agents have all rings
                level = logging.WARNING
            if not is_known:
                log.log(level, "recorder: %s; it ends, the agent goes on", os_text(problem))
        return None

    def files(self) -> Iterator[Path]:
        """Yield the files of this run that exist."""
        yield from (path for path in (self._file and self._file.path, *self.incidents) if path and path.exists())
