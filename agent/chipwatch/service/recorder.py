"""Records a run on a separate thread: to the ring of the last minutes, to incidents, and to a file of the user."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from chipwatch.base.version import __version__
from chipwatch.config.load import recorder_options
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions
from chipwatch.contract.errors import ConfigError, os_text
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.self_metrics import SHOWN, Incident
from chipwatch.history.columns import NotARecording
from chipwatch.history.event import WHY, Event
from chipwatch.history.journal import MOST_SERIES, MOST_TABLE, STEP
from chipwatch.history.ring import Ring

if TYPE_CHECKING:
    from chipwatch.history.record_file import RecordFile
    from chipwatch.jobs.verdict.events import EventHistory

log = logging.getLogger(__name__)

AFTER: Final = 120 * 10**9
"""Nanoseconds after an event at which its incident ends."""
Tick = tuple[Sequence[Datapoint], int]
TOGETHER: Final = 2.0
"""Seconds of ticks that are queued and written together, as one part."""
MOST_WAITING: Final = 30
MOST_WAITING_POINTS: Final = 600_000
"""Most parts that may wait for a slow disk, and most points in them (80 MB); further ones are dropped."""
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
        return RecordFile(path, partial(_header, common, time.time_ns(), config.interval))
    except NotARecording as problem:
        raise ConfigError(f"record: {problem}") from problem
    except OSError as problem:
        raise ConfigError(f"record: {path}: {os_text(problem)}; choose another place") from problem


def _header(common: Callable[[], Dimensions | None], started: int, interval: float | None) -> Mapping[str, Any]:
    dims = {key: value for key, value in (common() or {}).items() if not key.startswith(HIDDEN)}
    about = {"chipwatch": 1, "version": __version__, "host": {"hostname": platform.node()} | dims}
    return about | {"started": started, "interval": interval}


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
        self._started = time.time_ns()  # compared with the points' time
        self._queue: SimpleQueue[list[Tick] | Event | None] = SimpleQueue()
        self._ticks: list[Tick] = []
        """Ticks that are not queued yet. They are queued together, because waking the thread takes CPU time."""
        self._batch = int(TOGETHER / (config.interval or TOGETHER)) or 1
        self._targets: list[Any] = []
        self._ring: Ring | None = None
        self._broken: Ring | None = None
        """The ring, after its disk failed. It is closed at the end; if that fails too, the next start seals it."""
        self._open: Event | None = None
        self._slow: dict[str, str] = {}
        """Job -> the sentence on why it is slow."""
        self._late, self._short = False, ""
        is_durable = any(route.worker.sink.limits.durable for route in pipeline.routes)
        self._level = logging.WARNING if is_durable or file else logging.DEBUG
        """Level of messages that recording has failed. It is low if nobody asked for durable data."""
        self.incidents: list[Path] = []
        """Files of the incidents of this run."""
        if file:
            self._targets.append(file)
        options = recorder_options(config)
        if state and options:
            header = partial(_header, common, self._started, config.interval)
            self._survive(lambda: self._open_ring(Ring(state, options.keep, header)))
        self._thread = Thread(target=self._run, name="recorder", daemon=True)
        if self._targets:
            pipeline.listeners.append(self.take)
            for derivation in pipeline.derivations:
                derivation.note = self.note_job
            self._thread.start()

    def take(self, points: Sequence[Datapoint], at: int) -> None:
        """Queue the points of a tick, after `history` has taken them; the clock's thread calls it."""
        for event in self._history.events(points):
            self._queue.put(event)
        self._ticks.append((points, at))
        if len(self._ticks) < self._batch:
            return
        ticks, self._ticks = self._ticks, []
        parts = self._queue.qsize()
        if parts < MOST_WAITING and parts * sum(len(points) for points, _ in ticks) < MOST_WAITING_POINTS:
            self._queue.put(ticks)
        elif not self._late:
            self._late = True
            self.trouble = self.trouble or "the disk was too slow for some readings"
            log.warning("recorder: the disk is too slow; ticks are left out")

    def happened(self, cause: str, text: str, **dims: str) -> None:
        """Queue an event, which may begin an incident; any thread may call it."""
        self._queue.put(Event(time.time_ns(), cause, text, dims))  # compared with the points' time

    def note_job(self, job: str, sentence: str, is_slow: bool) -> None:  # noqa: FBT001  # by position only
        """Record why a job is slow, or that it no longer is; incidents that end later repeat it."""
        self._slow.pop(job, None)
        if is_slow:
            self._slow[job] = f"job {job}: {sentence}"
        self.happened(WHY, f"job {job}: {sentence}", job=job)

    def seal(self, job: str = "", code: str = "") -> Mapping[str, Any]:
        """Begin an incident because a user asks for it or `job` has failed; return the answer for the status socket."""
        if not self._ring:
            return {"sealed": False}
        if job:
            ended, _, number = code.partition(":")
            how = f"was ended by signal {number}" if number.strip("0") else f"ended with {ended}"
            self.happened(JOB, f"job {job} {how}", job=job)
        else:
            self.happened(ASKED, "somebody asked for it")
        return {"sealed": True, "folder": str(self._ring.incidents), "seconds": AFTER / 1e9}

    def end(self, failure: str | None = None) -> None:
        """End the open incident and send its point; `failure`: the sentence of a last event."""
        named = len(self._pipeline.incidents)
        if self._thread.is_alive():
            self._queue.put(self._ticks)
            if failure:
                self.happened(COMMAND, failure)
            self._queue.put(None)
            self._thread.join(SEALING)
        at = time.time_ns()  # compared with the points' time
        if new := self._pipeline.incidents[named:]:
            self._pipeline.send([incident.point(at) for incident in new], at)

    def close(self) -> None:
        """Wait until all is written, at most ENDING seconds."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(ENDING)
            if self._thread.is_alive():
                self.trouble = self.trouble or "the disk was too slow for the last readings"

    def _open_ring(self, ring: Ring) -> None:
        self._ring = ring
        self._targets.append(ring)
        if ring.left:
            self._tell(Event(0, ring.left.stem.partition("-")[2], "the last run was killed"), ring.left)
            self.incidents.clear()  # it is the last run's

    def _run(self) -> None:
        at = self._started
        while (item := self._queue.get()) is not None:
            if isinstance(item, Event):
                self._begin(item)
                continue
            for points, at in item:
                self._write(points, at)
        if self._open:
            self._seal(at)
        for target in self._targets:
            self._survive(target.close, target)
        if self._broken:
            with suppress(OSError):
                self._broken.close()

    def _write(self, points: Sequence[Datapoint], at: int) -> None:
        if self._open and at < self._open.at - STEP:  # the clock was set back, so the ring starts over
            self._seal(at)
        for target in [*self._targets]:
            more = {"is_open": self._open is not None} if target is self._ring else {}
            self._survive(lambda: target.add(points, at, **more), target)  # noqa: B023  # called at once
            if target.is_short and not self._short:
                self._short = f"more than {MOST_SERIES:,} series, or {MOST_TABLE >> 20} MB of their dimensions"
                self.trouble = self.trouble or self._short
                log.warning("recorder: %s: the others are left out", self._short)
        if self._open and at >= self._open.at + AFTER:
            self._seal(at)

    def _begin(self, event: Event) -> None:
        """Record an event. It begins an incident, unless one is open or its cause had one recently."""
        for target in [*self._targets]:
            self._survive(lambda: target.note(event), target)  # noqa: B023  # called at once
        is_first = event.cause == ASKED or self._ring is None or not self._ring.has(event.cause, event.at)
        if event.cause != WHY and self._open is None and is_first:
            self._open = event

    def _seal(self, at: int) -> None:
        event, self._open = self._open, None
        if event and (ring := self._ring):
            if slow := "; ".join([*self._slow.values()][-MOST_SLOW:]):
                event = Event(event.at, event.cause, event.text, {**event.dims, WHY: slow})
            self._survive(lambda: self._tell(event, ring.seal(event, at)), ring)

    def _tell(self, event: Event, path: Path) -> None:
        self._pipeline.incidents.append(Incident(event.cause, path.name, time.monotonic() + SHOWN))
        self.incidents.append(path)
        level = logging.INFO if event.cause in (ASKED, COMMAND, JOB) else logging.WARNING
        log.log(level, "incident: %s; the minutes around it are in %s", event.text, path)

    def _survive(self, call: Callable[[], object], target: object = None) -> None:
        """Call a function that writes to `target`; if the disk fails, stop writing to that target."""
        try:
            call()
        except (OSError, NotARecording) as problem:
            self._targets = [other for other in self._targets if other is not target]
            if target is self._ring:
                self._broken, self._ring = self._ring, None
            level = self._level
            if target is self._file and target:
                level, self.trouble = logging.ERROR, f"nothing after {time.strftime('%H:%M:%S')}: {os_text(problem)}"
            log.log(level, "recorder: %s; it ends, the agent goes on", os_text(problem))

    def files(self) -> Iterator[Path]:
        """Yield the files of this run that exist."""
        file = [self._file.path] if self._file else []
        yield from (path for path in (*file, *self.incidents) if path.exists())
