"""The clock: requests readings, waits for them, and passes them to every route."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import text_of
from chipwatch.contract.extensions import DeviceFacts, Follows
from chipwatch.logs.throttled import ThrottledLogger
from chipwatch.pipeline.reading_thread import CollectorReading, ReadingBatch, ReadingQueue, ReadingThread
from chipwatch.pipeline.sampler import Derivation, Sampler

if TYPE_CHECKING:
    from chipwatch.pipeline.route import Route  # loads SQLite, which a verdict does without
    from chipwatch.pipeline.self_metrics import Incident

log = logging.getLogger(__name__)
T = TypeVar("T")

GRACE: Final = 0.25
"""Seconds that a tick waits for readings; a later one goes into the next tick."""
FIRST_READING: Final = 5.0
"""Seconds that a single reading waits: no tick follows it, and a driver may be slow to wake up."""
WORKING: Final = 0.95
"""Share of busy time from which a device does not count as idle."""
LAST_READING: Final = 1.0
"""Seconds that the last tick waits for readings."""
DEADLINE: Final = 7.0
"""Seconds after the stop until the sinks have to be done; what they do not deliver stays spooled."""
LONGEST_WAIT: Final = 1.0
"""Seconds of one wait: a signal that comes just before a wait has its handler called only after it."""
CLOSING: Final = 0.1
"""Seconds to wait at the end for a thread that closes collectors."""
SHARED: Final = "collect"
"""Name of the thread that collectors share."""


class Pipeline:
    """
    Samplers, processors and routes, driven by one clock.

    Ticks stay on the grid of the first one: no drift, and after an overrun missed ticks are counted, not made up for.
    An exception of a part costs only its share of a tick; it is logged and counted.

    Collectors that read only the kernel's files share a thread. If the call of one goes on when the tick has waited
    long enough, that one keeps the thread; the others go on at another thread in the same tick, and lose nothing but
    the time, at most GRACE seconds for each one that hangs.
    """

    def __init__(
        self,
        samplers: Sequence[Sampler],
        routes: Sequence[Route],
        readings: ReadingQueue,
        *,
        interval: float,
        derivations: Sequence[Derivation] = (),
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Tick every `interval` seconds; `readings` is where the samplers put their readings."""
        self.samplers, self.derivations, self.routes = samplers, derivations, routes
        self._readings, self._interval, self._clock = readings, interval, clock
        self._shared = ReadingThread(SHARED, readings)
        self._followers: list[Sampler] = []
        """Samplers of collectors that read after the others, since they need what those found in the same tick."""
        if any(derivation.needs_facts for derivation in derivations):
            self._followers = [sampler for sampler in samplers if isinstance(sampler.collector, Follows)]
            for sampler in samplers:
                sampler.needs_facts = True
        self.devices: dict[str, DeviceFacts] = {}
        """The last devices and processes by collector, which may be late; empty unless a processor needs facts."""
        self._first = [sampler for sampler in samplers if sampler not in self._followers]
        self._grace = min(GRACE, interval / 2)
        self.stopped: float | None = None
        """When it was stopped (monotonic seconds), or None."""
        self.is_ending = False
        """True from the last tick on."""
        self._logger = ThrottledLogger(log, "tick")
        self.ticks = self.missed = self.failed = 0
        self.ticked: float | None = None
        """When the last tick ended (monotonic seconds), or None."""
        self.incidents: list[Incident] = []
        """Incidents that were recorded."""
        self.after_tick: list[Callable[[], None]] = []
        """Called after each tick, on the clock's thread."""
        self.listeners: list[Callable[[Sequence[Datapoint], int], None]] = []
        """Called with the datapoints of each tick and its time (ns), on the clock's thread."""

    def start(self) -> None:
        """Start the threads; raise RuntimeError if that is not possible."""
        for thread in [self._shared, *(sampler.thread for sampler in self.samplers if not sampler.shares_thread)]:
            thread.start()
        for route in self.routes:
            route.worker.start()

    def gather(self, at: int, grace: float | None = None) -> list[Datapoint]:
        """
        Return what collectors yield within `grace` seconds, and what processors derive from it.

        A collector that is still reading is not asked again. A stop ends the wait, but not that of the last tick, which
        also waits for collectors that are still reading. With `grace` the points are sorted.
        """
        deadline = time.monotonic() + (self._grace if grace is None else grace)
        points: list[Datapoint] = []
        facts: list[object] = []
        now = time.monotonic()
        due = [sampler for sampler in self._first if sampler.is_due(now)]
        finders = [sampler for sampler in due if sampler.finds_devices]  # none, as a rule, where there is no device
        self._read(due, at, deadline, points, facts, finders=finders)
        tick: tuple[Datapoint, ...] = ()
        with_devices = any(sampler.is_due(now) for sampler in finders)
        for derivation in self.derivations:
            if not derivation.is_wanted(with_devices=with_devices):
                continue
            if len(tick) < len(points):
                tick = tuple(points)
            points += derivation.run(tick, at, facts)
        if grace is not None:  # a single reading has the same order each time, whichever collector was quicker
            points.sort(key=lambda point: (point.metric.name, point.dims.items_sorted))
        for listener in self.listeners:
            self._survive("listener", listener, points, at)
        return points

    def _read(
        self,
        samplers: list[Sampler],
        at: int,
        deadline: float,
        points: list[Datapoint],
        facts: list[object],
        *,
        finders: Sequence[Sampler],
    ) -> None:
        """Read `samplers` and followers: these after the others, or with them where no device can be found."""
        if not self._followers or not finders:
            for sampler in self._followers:
                if sampler.needs_devices and sampler.ok and not sampler.is_busy:
                    self._place(sampler)
                else:
                    sampler.follow((), ())
                    samplers.append(sampler)
            self._wait(self._request(samplers, at), deadline, points, facts)
            return
        self._wait(self._request(samplers, at), deadline, points, facts)
        device_facts = [self.devices[finder.name] for finder in finders if finder.name in self.devices]
        pids = {process.pid for devices in device_facts for process in devices.processes or ()}
        idle = {pid for devices in device_facts for pid in _idle(devices)}
        for sampler in self._followers:
            sampler.follow(pids, idle)
        late = max(deadline, time.monotonic() + self._grace)
        self._wait(self._request(self._followers, at), late, points, facts)

    def _request(self, samplers: Sequence[Sampler], at: int) -> set[ReadingBatch]:
        """Request a reading of each; return what to wait for, in the last tick also readings that go on."""
        batches: set[ReadingBatch] = set()
        together: list[Sampler] = []
        for sampler in samplers:
            if self.is_ending and sampler.is_reading and sampler.batch:
                batches.add(sampler.batch)
            elif sampler.begin():
                if (thread := self._place(sampler)) is self._shared:
                    together.append(sampler)
                else:
                    batches.add(thread.read([sampler], at))
        if together:
            batches.add(self._shared.read(together, at, is_shared=True))
        return batches

    def _place(self, sampler: Sampler) -> ReadingThread:
        """Return the thread of the next reading; end the one that is not needed any more."""
        if sampler.shares_thread and sampler.thread is not self._shared:
            sampler.thread.end()
            sampler.thread = self._shared
        elif sampler.thread is self._shared and not sampler.shares_thread:
            sampler.thread = ReadingThread(f"{SHARED}-{sampler.name}", self._readings)
        return sampler.thread

    def _wait(self, batches: set[ReadingBatch], deadline: float, points: list[Datapoint], facts: list[object]) -> None:
        """Take readings until all `batches` have come, the deadline is over, or the agent stops."""
        while batches or not self._readings.empty():
            is_cut = self.stopped is not None and not self.is_ending
            if (reading := self._readings.get(0.0 if is_cut else max(0.0, deadline - time.monotonic()))) is None:
                if is_cut or not (any(batch.is_shared for batch in batches) and self._free_shared()):
                    break
                deadline = time.monotonic() + self._grace
                continue
            points += reading.points
            facts += reading.facts
            self.devices |= {fact.source: fact for fact in reading.facts if isinstance(fact, DeviceFacts)}
            batches.discard(reading.batch)

    def _free_shared(self) -> bool:
        """Move the collectors of the shared thread to another one, but not the one that hangs; False: none does."""
        other = ReadingThread(SHARED, self._readings)
        if hung := self._shared.give_up(self.samplers, other):
            hung.separate(self._grace / 2)
            self._shared = other
        return hung is not None

    def tick(self, grace: float | None = None, earlier: Sequence[Datapoint] = ()) -> None:
        """Pass one reading from the collectors to the spools; stop if a collector's input has ended for good."""
        at = self._clock()
        points = self._survive("readings", self.gather, at, grace) or []
        self.send(points + [point._replace(at=at) for point in earlier], at)
        if [True for sampler in self.samplers if sampler.ended]:  # a list, since a generator takes a call for each
            self.stop()
        self.ticks += 1
        self.ticked = time.monotonic()
        for call in [*self.after_tick]:
            self._survive("after the tick", call)

    def send(self, points: Sequence[Datapoint], at: int) -> None:
        """Pass points to the routes; for the clock's thread, or after `run`."""
        for route in self.routes:
            self._survive(f"sink {route.name}", route.take, points, at)
            self._survive(f"sink {route.name}", route.worker.watch)

    def run(self, duration: float | None = None) -> None:
        """Tick until `stop`, or for `duration` seconds; then once more, for the time since the last tick."""
        begun = due = time.monotonic()
        end = None if duration is None else begun + duration
        while self.stopped is None:
            self.tick()
            due += self._interval
            now = time.monotonic()
            if now > due:
                late = int((now - due) // self._interval)
                self.missed += late
                due += late * self._interval
            wake = due if end is None else min(due, end)
            if self._stops_before(wake) or (end is not None and wake == end):
                break
        self.is_ending = True
        self.tick(LAST_READING)

    def once(self, pause: float) -> None:
        """
        Read twice, `pause` seconds apart, since a rate needs two readings; send the second.

        If an input ended with the first reading, the first is sent.
        """
        at = self._clock()
        points = self._survive("readings", self.gather, at, FIRST_READING) or []
        ended = {metric.name for sampler in self.samplers if sampler.ended for metric in sampler.collector.metrics}
        first = [point for point in points if point.metric.name not in ended]
        last = [point for point in points if point.metric.name in ended]
        for route in self.routes:
            self._survive(f"sink {route.name}", route.prime, first, at)
        if not self._stops_before(time.monotonic() + pause):
            self.tick(FIRST_READING, last)

    def _stops_before(self, due: float) -> bool:
        """Wait until `due` (monotonic seconds), or until `stop`; return whether it was stopped."""
        while self.stopped is None and (left := due - time.monotonic()) > 0:
            self._readings.wait(min(left, LONGEST_WAIT))
        return self.stopped is not None

    def stop(self) -> None:
        """End `run`; safe from a signal handler and from any thread."""
        self.stopped = self.stopped or time.monotonic()
        self._readings.put(CollectorReading([]))  # ends a wait

    def close(self, deadline: float = DEADLINE) -> None:
        """End the windows, let sinks deliver until `deadline` seconds after the stop, keep the rest in the spools."""
        self._free_shared()
        shared, groups = self._shared, dict[ReadingThread, list[Sampler]]()
        for sampler in self.samplers:
            groups.setdefault(sampler.thread, []).append(sampler)
        for thread, group in groups.items():
            thread.close(group)
        for route in self.routes:
            self._survive(f"sink {route.name}", route.close_window)
            route.worker.stop()
        end = (self.stopped or time.monotonic()) + deadline
        for route in self.routes:
            route.worker.join(max(0.0, end - time.monotonic()))
            self._survive(f"sink {route.name}", route.spool.close)
        for thread, group in groups.items():
            has_ended = thread.join(CLOSING if any(sampler.ok for sampler in group) else 0.0)
            if thread is shared:
                while not has_ended and self._free_shared():
                    has_ended = self._shared.join(CLOSING)
        for derivation in self.derivations:
            derivation.close()

    def _survive(self, who: str, call: Callable[..., T], *args: Any) -> T | None:
        """Return what `call` returns; log and count an exception under the name `who`, and return None."""
        try:
            return call(*args)
        except Exception as bug:
            self.failed += 1
            kind = type(bug).__name__
            self._logger.log(logging.ERROR, f"{who} {kind}", f"{who} failed: {kind}: {text_of(bug)}", traceback=True)
            return None


def _idle(facts: DeviceFacts) -> set[int]:
    """Return the processes on devices that had time without work."""
    busy = {device.dims for device in facts.activity if device.active is not None and device.active >= WORKING}
    return {process.pid for process in facts.processes or () if process.dims not in busy}
