"""Runs collectors and processors, whose calls may fail or hang, on other threads than the clock's."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar, cast

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.errors import InputEnded, PartlyCollected, Unavailable, text_of
from chipwatch.contract.extensions import (
    Device,
    DeviceActivity,
    DeviceFacts,
    DeviceProcess,
    Follows,
    FollowsIdle,
    HasActivity,
    HasDevices,
    HasEvidence,
    HasFacts,
    HasIdentity,
    HasProcesses,
    HasVerdictMetrics,
    KeepsState,
    NeedsDevices,
    NeedsFacts,
    NeverWaits,
    ReadsByLevel,
    YieldsOtherNames,
    names_of,
    state_of,
)
from chipwatch.contract.processor import Processor
from chipwatch.host.blocking_call import BlockingCall
from chipwatch.logs.throttled import ThrottledLogger
from chipwatch.pipeline.reading_thread import CollectorReading, ReadingBatch, ReadingQueue, ReadingThread
from chipwatch.pipeline.validation import ForkGuard, Validation

log = logging.getLogger(__name__)
T = TypeVar("T")
F = TypeVar("F", bound=Device | DeviceActivity | DeviceProcess)

RETRY: Final = 300.0
"""Seconds after which a collector that was not available is opened again."""
PATIENCE: Final = 2.0
"""Seconds that the clock waits for a processor, which computes on data in memory."""
PROBATION: Final = 60
"""Readings in time after which a collector returns to the thread that it has held up."""
MOST_FACTS: Final = 10_000
"""Processes, activities and other facts, of each kind, that are taken from one reading."""

NUMBERS: Final = {
    DeviceProcess: ("pid", "memory", "utilization", "occupancy"),
    DeviceActivity: ("active", "idle", "throttled", "energy", "slices"),
}
"""Fields of facts that are numbers, or None where that is their default."""


class PluginRunner:
    """The state of one collector or processor, and how its last call went; used by one thread, read by others."""

    def __init__(self, plugin: Collector | Processor, kind: str, name: str, level: Level) -> None:
        """Keep points of at most `level`, and points of the metrics that a verdict needs."""
        self.name = name
        self._logger = ThrottledLogger(log, f"{kind} {name}")
        always = plugin.always if isinstance(plugin, HasVerdictMetrics) else frozenset()
        is_dynamic = isinstance(plugin, YieldsOtherNames) and plugin.dynamic
        self.validation = Validation(level, self._logger, always, lambda: None if is_dynamic else plugin.metrics)
        self._guard = ForkGuard(self._logger)
        self._survive = self._guard.survive
        self.ok: bool | None = None
        """True if the last call succeeded in time; None before the first call, and without anything to read."""
        self.trouble: str | None = None
        """The problem of the last call, or None."""
        self.earlier: str | None = None
        """The problem of the call before it, or None."""
        self.yielded = 0
        """Points of the last call."""
        self.seconds = 0.0
        """Seconds that the last call took."""
        self.failed = 0
        self.unavailable: str | None = None
        """Why there is nothing to read or to derive from, or None."""

    def _attempt(self, read: Callable[[list[Datapoint]], None]) -> list[Datapoint]:
        """Return the points that `read` adds to a list; log and count what it raises, and keep the points so far."""
        begun = time.monotonic()
        points: list[Datapoint] = []
        self.earlier, self.trouble = self.trouble, None
        problems = self.validation.problems
        problems.clear()
        try:
            self._guard.call(lambda: read(points))
        except BaseException as bug:  # a plugin's SystemExit, too
            self.ok = False
            self.failed += 1
            self.trouble = f"{type(bug).__name__}: {text_of(bug)}"
            is_bug = not isinstance(bug, OSError)  # which is a fault of the host
            self._logger.log(logging.ERROR, type(bug).__name__, f"failed: {text_of(bug)}", traceback=is_bug)
        if problems:
            self.trouble = "; ".join(filter(None, (self.trouble, *problems.values())))
        self.seconds, self.yielded = time.monotonic() - begun, len(points)
        return points


class Derivation(PluginRunner):
    """
    Runs one processor on a separate thread, and validates its points like a collector's.

    An exception costs only this processor's points of this tick; it is logged and counted. So does a call that does
    not return in time; the processor is then passed over until it does.
    """

    def __init__(self, name: str, processor: Processor, level: Level) -> None:
        """Keep derived points of at most `level`."""
        super().__init__(processor, "processor", name, level)
        self.processor = processor
        self.needs_facts = isinstance(processor, NeedsFacts)
        self._needs_devices = isinstance(processor, NeedsDevices) and processor.needs_devices is True
        self.keep: Callable[[bytes], None] | None = None
        """Writes the state of the processor to disk; called on its thread."""
        self._next: Callable[[], object] = lambda: None
        self._thread = BlockingCall(self._do_next, f"derive-{name}")

    def is_wanted(self, *, with_devices: bool) -> bool:
        """Return whether to call it; if it needs devices, not until there may be some."""
        is_idle = self._needs_devices and self.ok is None and not with_devices
        self.unavailable = "no collector has found a device" if is_idle else None
        return not is_idle

    def run(self, tick: Sequence[Datapoint], at: int, facts: Sequence[object] = ()) -> list[Datapoint]:
        """Return what the processor derives from `tick`, the points so far; nothing if it fails."""
        return self._ask(lambda: self._attempt(partial(self._derive, tick, at, facts))) or []

    def restore(self, saved: bytes, path: object) -> None:
        """Give the processor what was saved in the file `path`."""
        failure = f"cannot take its state from {path}, it begins without"
        processor = self.processor
        assert isinstance(processor, KeepsState)
        self._ask(lambda: self._survive(partial(processor.restore, saved), failure))
        self._thread.close()  # it may never be asked again

    def close(self) -> None:
        """Let the thread end."""
        self._thread.close()

    def _do_next(self) -> object:
        return self._next()

    def _ask(self, call: Callable[[], T]) -> T | None:
        """Return what `call` returns on the processor's thread; log and count it if that takes too long."""
        self._next = call
        try:
            result = self._thread.ask(PATIENCE)
        except TimeoutError:
            self.ok = False
            self.failed += 1
            self.trouble = "its last call has not returned; passed over until it does"
            self._logger.log(logging.WARNING, "busy", self.trouble)
            return None
        self._logger.resolved("busy", "its calls return again")
        return cast("T", result)

    def _derive(self, tick: Sequence[Datapoint], at: int, facts: Sequence[object], points: list[Datapoint]) -> None:
        if isinstance(self.processor, NeedsFacts):
            self.processor.facts = facts
        try:
            self.validation.take(self.processor.derive(tick, at), at, points)
        except PartlyCollected as partly:
            self.trouble = "; ".join(partly.problems)
            self._logger.log(logging.WARNING, "partly", self.trouble)
        except BaseException:
            points.clear()
            raise
        self.ok = True
        if self.keep:
            self._survive(partial(self._save, self.keep), "cannot save its state")

    def _save(self, keep: Callable[[bytes], None]) -> None:
        """Keep the state before the points are sent: after a kill, no counter falls below what was sent."""
        assert isinstance(self.processor, KeepsState)
        if (saved := state_of(self.processor)) is not None:
            keep(saved)


class Sampler(PluginRunner):
    """
    Runs one collector, never twice at once: from `open` to `close` on one daemon thread, unless it never waits.

    A collector whose reading does not return is skipped and counted until it returns. A collector that finds nothing
    to read is closed, and its thread ends. Collectors that never wait share a thread; one that holds it up all the
    same keeps it, the others move to another, and it follows them after PROBATION readings in time.
    """

    def __init__(
        self,
        name: str,
        collector: Collector,
        level: Level,
        readings: ReadingQueue,
        *,
        retry: float = RETRY,
        learn: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        """
        Put readings of at most `level` on `readings`; open an unavailable collector again after `retry` seconds.

        `learn` is called on this sampler's thread with what readings say of this machine's identity.
        """
        super().__init__(collector, "collector", name, level)
        self.collector = collector
        if isinstance(collector, ReadsByLevel):
            collector.level = level
        self._identify = collector.identity if isinstance(collector, HasIdentity) else None
        self._retry, self._retry_at = retry, -math.inf
        self.absence_level = logging.DEBUG
        """Log level of the message that nothing can be read."""
        self.thread = ReadingThread(f"collect-{name}", readings)
        """The thread of the collector, which may be shared."""
        self.batch: ReadingBatch | None = None
        """The last batch that the collector is in."""
        self.is_busy = False
        """True from the request of a reading until its end."""
        self.is_open = self._is_hung = False
        self._follow = collector.follow if isinstance(collector, Follows) else None
        self._follow_idle = collector.follow_idle if isinstance(collector, FollowsIdle) else None
        self.needs_devices = isinstance(collector, NeedsDevices) and collector.needs_devices is True
        """True if there is nothing to read where no collector finds a device."""
        self._has_facts = isinstance(collector, HasDevices | HasProcesses | HasActivity | HasFacts)
        self.finds_devices = self._has_facts and not self._follow
        """True if it lists devices, or other facts, where there are some."""
        is_marked = self._survive(lambda: isinstance(collector, NeverWaits), "cannot tell whether it waits")
        self._marked: Any = collector if is_marked else None
        self._never_waits = False
        self._alone, self._in_time = 0, math.inf
        self._ask_marker()
        self._learn = learn
        self._learned: Mapping[str, str] = {}
        self.ended: InputEnded | None = None
        """The end of the collector's input, once it has ended for good."""
        self.found: str | None = None
        """The collector's description of its devices, after the first reading."""
        self.is_counted = self.is_silent = False
        """True if the driver counted that, or does not answer; see Unavailable."""
        self.partial = self.skipped = 0
        self._processes = collector.processes if isinstance(collector, HasProcesses) else None  # asked once: it is slow
        self._activity = collector.activity if isinstance(collector, HasActivity) else None
        self._more_facts = collector.facts if isinstance(collector, HasFacts) else None
        self._devices = collector.devices if isinstance(collector, HasDevices) else None
        serves = self._has_facts or self._follow or self._identify or isinstance(collector, HasEvidence)
        self._is_mute = not serves and self._survive(self.validation.wants_none, "cannot list its metrics") is True
        """True if no sink wants a metric of it, and nobody else: it is read once, to say that it is there."""
        self.needs_facts = False
        """True if a processor needs the facts of the collector, too."""
        self._facts: list[object] = []

    @property
    def shares_thread(self) -> bool:
        """True if the next reading may come on the thread that collectors share."""
        return self._never_waits and not self._alone

    def is_due(self, now: float) -> bool:
        """Return whether the collector is open, still reads, or is to be opened at `now` (monotonic seconds)."""
        return self.is_open or self.is_busy or now >= self._retry_at

    def begin(self) -> bool:
        """Return whether a reading is to be requested; called by the clock's thread."""
        if self.ended:
            return False
        if self.is_busy:
            self.thread.put([])  # starts it if that was not possible before
            self.skipped += 1
            self._is_hung, self.ok = True, False
            self._logger.log(logging.WARNING, "busy", "the last reading has not returned; skipped until it does")
            return False
        if not self.is_open and time.monotonic() < self._retry_at:
            return False
        if self._is_mute and self.ok and not self.yielded:
            return False
        self.is_busy, self._is_hung = True, False
        return True

    @property
    def is_reading(self) -> bool:
        """True while a reading is in progress that was in time so far."""
        return self.is_busy and not self._is_hung

    def separate(self, in_time: float) -> None:
        """Keep away from the shared thread until PROBATION readings took less than `in_time` seconds each."""
        self._alone, self._in_time = PROBATION, in_time

    def follow(self, pids: Collection[int], idle: Collection[int]) -> None:
        """Pass the pids on devices to a collector that reads processes; called by the clock's thread."""
        if self._follow:
            self._survive(partial(self._follow, pids), "cannot follow processes")
        if self._follow_idle:
            self._survive(partial(self._follow_idle, idle), "cannot follow processes")
        self._ask_marker()

    def read(self, at: int) -> CollectorReading:
        """Read once; called by the thread."""
        points = self._attempt(partial(self._read, at))
        if self.unavailable is not None and not self.is_open:
            self.close()
        if self._alone:
            self._alone = self._alone - 1 if self.seconds < self._in_time else PROBATION
        self._ask_marker()
        return CollectorReading(points, self._facts)

    def close(self) -> None:
        """Close the collector; called by the thread."""
        self.is_open = False
        self._survive(self.collector.close, "failed to close")

    def _ask_marker(self) -> None:
        if self._marked is None:
            return
        try:
            self._never_waits = self._marked.never_waits is True
        except BaseException as bug:
            self._never_waits = False
            self._logger.log(logging.ERROR, "marker", f"cannot tell whether it waits: {text_of(bug)}", traceback=True)

    def _read(self, at: int, points: list[Datapoint]) -> None:
        """Read once into `points`; raise only what is a bug of the collector, or an OSError."""
        self._facts = []
        try:
            if not self.is_open:
                self._retry_at = time.monotonic() + self._retry
                self.collector.open()
                self.is_open, self.unavailable = True, None
                self._logger.resolved("unavailable", "available now")
            self.validation.take(self.collector.collect(at), at, points)
            self.ok = True
            if self.skipped:
                self._logger.resolved("busy", "its readings return again")
            if self.found is None:
                self.found = f"{self._survive(self.collector.describe, 'cannot describe what it found') or ''}"
        except InputEnded as end:
            self._partly(end.problems)
            self.ok, self.ended = True, end
        except Unavailable as reason:
            self.is_open, self.unavailable, self.ok = False, str(reason), None
            self.is_counted, self.is_silent = reason.is_counted, reason.is_silent
            text = f"nothing to read: {reason}; tried again every {self._retry:g} s"
            self._logger.log(self.absence_level, "unavailable", text)
        except PartlyCollected as partly:
            self._partly(partly.problems)
            self.ok = True
        if self.is_open and self.needs_facts and self._has_facts:
            self._facts = self._survive(self._ask_facts, "cannot tell its facts") or []
        if self._identify and self.is_open and (words := self._identify()) != self._learned:
            self._learned = words
            self._learn(words)

    def _ask_facts(self) -> list[object]:
        """Return what the collector found beside its points."""
        listed = self._processes() if self._processes else None
        processes = None if listed is None else _checked(listed, DeviceProcess)
        activity = _checked(self._activity(), DeviceActivity) if self._activity else []
        facts = [*islice(self._more_facts(), MOST_FACTS)] if self._more_facts else []
        devices = _checked(self._devices(), Device) if self._devices else []
        if processes is not None or activity or devices:
            names = names_of(devices)
            facts.append(DeviceFacts(time.monotonic_ns(), processes, names, activity, self.name, devices))
        return facts

    def _partly(self, problems: Sequence[str]) -> None:
        self.partial += len(problems)
        self.trouble = "; ".join(problems) or None
        for problem in problems:
            self._logger.log(logging.WARNING, problem, problem)


def _checked(facts: Iterable[F], kind: type[F]) -> list[F]:
    """Return the first facts; raise TypeError for one that would break the clock or a processor."""
    checked, names = [*islice(facts, MOST_FACTS)], NUMBERS.get(kind, ())
    for fact in checked:
        is_sound = type(fact) is kind and type(fact.dims) is Dimensions
        for name in names if is_sound else ():
            number = getattr(fact, name)
            is_sound &= isinstance(number, (int, float)) or number is kind._field_defaults.get(name, 0)
        if not is_sound:
            raise TypeError(f"expected {kind.__name__} as in chipwatch.contract.extensions, got {fact!r:.100}")
    return checked
