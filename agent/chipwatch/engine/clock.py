"""The clock: makes the readings of each tick, and passes them to every route."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import text_of
from chipwatch.contract.facts import DeviceFacts
from chipwatch.engine.derivation import Derivation
from chipwatch.engine.notices import Notices
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.watchdog import Progress, Watchdog

if TYPE_CHECKING:
    from chipwatch.engine.route import Route  # loads SQLite, which a verdict does without
    from chipwatch.engine.self_metrics import Incident

log = logging.getLogger(__name__)
T = TypeVar("T")

GRACE: Final = 0.25
"""Seconds that a tick waits for readings; a later one goes into the next tick."""
FIRST_READING: Final = 5.0
"""Seconds that a single reading waits: no tick follows it, and a driver may be slow to wake up."""
LAST_READING: Final = 1.0
"""Seconds that the last tick waits for readings."""
DEADLINE: Final = 7.0
"""Seconds after the stop until the sinks have to be done; what they do not deliver stays spooled."""
LONGEST_WAIT: Final = 1.0
"""Seconds of one wait: a signal that comes just before a wait has its handler called only after it."""
WORKING: Final = 0.95
"""Share of busy time from which a device does not count as idle."""
CLOSING: Final = 0.1
"""Seconds to wait at the end for a thread that closes a collector."""


class StopRequest:
    """
    A request to stop, which ends a wait; any thread and any handler of a signal may make it.

    It is a lock, since a handler that interrupts a wait for threading.Event would wait for that for ever.
    """

    def __init__(self) -> None:
        self.at: float | None = None
        """When the request was made (monotonic seconds), or None."""
        self.is_last = False
        """True from the last tick on."""
        self._lock = threading.Lock()
        self._lock.acquire()

    def make(self) -> None:
        """Request a stop; safe to call twice."""
        self.at = self.at or time.monotonic()
        with suppress(RuntimeError):  # it was made before, and nothing has waited since
            self._lock.release()

    def comes_before(self, due: float) -> bool:
        """Wait until `due` (monotonic seconds), or until the request; return whether it was made."""
        while self.at is None and (left := due - time.monotonic()) > 0:
            self._lock.acquire(timeout=min(left, LONGEST_WAIT))
        return self.at is not None


class PartRunner:
    """Calls parts of the agent; an exception of one costs only its own share, and is logged and counted."""

    def __init__(self) -> None:
        self._logger = Notices(log, "tick", "tick")
        self.counts = self._logger.counts

    def __call__(self, who: str, call: Callable[..., T], *args: Any) -> T | None:
        """Return what `call` returns; log and count an exception under the name `who`, and return None."""
        try:
            return call(*args)
        except Exception as bug:
            kind = type(bug).__name__
            cause = f"{who} {kind}"
            self._logger.tell("failed", f"{who} failed: {kind}: {text_of(bug)}", cause=cause, traceback=True)
            return None


class TickReadings:
    """
    Reads collectors and runs processors, for one tick after another; used by the clock's thread.

    A collector that has a thread and is still reading is not asked again; what comes late goes into the next tick.
    Collectors that follow others read after them, since they need what those found in the same tick.
    """

    def __init__(
        self,
        samplers: Sequence[Sampler],
        derivations: Sequence[Derivation],
        grace: float,
        is_cut: Callable[[], bool],
        progress: Progress,
    ) -> None:
        """Wait `grace` seconds for readings, unless `is_cut` returns True."""
        self._derivations, self._grace, self._is_cut, self._progress = derivations, grace, is_cut, progress
        needs_facts = any(derivation.needs.facts for derivation in derivations)
        self._followers = [sampler for sampler in samplers if needs_facts and sampler.needs.pids]
        self._first = [sampler for sampler in samplers if sampler not in self._followers]
        self._need_devices = [sampler for sampler in self._followers if sampler.needs_devices]
        self._finders = [sampler for sampler in self._first if sampler.knowledge.has_any and not sampler.needs.pids]
        for sampler in samplers if needs_facts else ():
            sampler.knowledge.want()
        self.devices: dict[str, DeviceFacts] = {}
        """The last devices and processes by collector, which may be late; empty unless somebody needs facts."""
        self._points: list[Datapoint] = []
        self._facts: list[object] = []

    def gather(self, at: int, grace: float | None, *, is_last: bool) -> list[Datapoint]:
        """
        Return what collectors yield within `grace` seconds, and what processors derive from it.

        The last tick also waits for readings that go on. With `grace` the points are sorted.
        """
        self._points, self._facts = [], []
        deadline = time.monotonic() + (self._grace if grace is None else grace)
        with_devices = self._read_all(at, deadline, is_last=is_last)
        tick: tuple[Datapoint, ...] = ()
        for derivation in self._derivations:
            if derivation.is_wanted(with_devices=with_devices):
                self._progress.what = f"processor {derivation.name}"
                if len(tick) < len(self._points):
                    tick = tuple(self._points)
                self._points += derivation.run(tick, at, self._facts)
        if grace is not None:  # a single reading has the same order each time, whichever collector was quicker
            self._points.sort(key=lambda point: (point.metric.name, point.dims.items_sorted))
        return self._points

    def _read_all(self, at: int, deadline: float, *, is_last: bool) -> bool:
        """Read all: followers after the others, or with them where no device can be found; return whether one can."""
        now = time.monotonic()
        due = [sampler for sampler in self._first if sampler.is_due(now)]
        finders = [sampler for sampler in self._finders if sampler in due]  # none, as a rule, without a device
        if not finders:
            for follower in self._followers:
                if follower in self._need_devices and follower.ok and not follower.is_busy:
                    follower.rest()
                else:
                    follower.follow((), ())
                    due.append(follower)
        self._read(due, at, deadline, is_last=is_last)
        if finders and self._followers:
            facts = [self.devices[finder.name] for finder in finders if finder.name in self.devices]
            pids = {process.pid for devices in facts for process in devices.processes or ()}
            idle = {pid for devices in facts for pid in _idle(devices)}
            for follower in self._followers:
                follower.follow(pids, idle)
            self._read(self._followers, at, max(deadline, time.monotonic() + self._grace), is_last=is_last)
        return any(finder.is_due(now) for finder in finders)

    def _read(self, samplers: Sequence[Sampler], at: int, deadline: float, *, is_last: bool) -> None:
        """Take late readings, then one of each sampler, within the deadline where it has a thread."""
        waited_for, own = list[Sampler](), list[Sampler]()
        for sampler in samplers:
            if sampler.is_busy and not (is_last and not sampler.is_hung):
                self._take(sampler, at, 0.0)
            if sampler.is_busy and is_last and not sampler.is_hung:
                waited_for.append(sampler)
            elif sampler.request(at):
                (waited_for if sampler.has_thread else own).append(sampler)
        for sampler in own:
            self._progress.what = f"collector {sampler.name}"
            self._take(sampler, at, 0.0)
        self._progress.what = "waiting for collectors"
        for sampler in waited_for:
            # A handler of a signal that stops the agent does not end a wait, so each is short.
            while not self._take(sampler, at, min(GRACE, deadline - time.monotonic())):
                if self._is_cut() or time.monotonic() >= deadline:
                    break

    def _take(self, sampler: Sampler, at: int, timeout: float) -> bool:
        """Add the sampler's reading to the tick; return whether it came."""
        if (reading := sampler.take(at, timeout)) is not None:
            self._points += reading.points
            self._facts += reading.facts
            self.devices |= {fact.source: fact for fact in reading.facts if isinstance(fact, DeviceFacts)}
        return not sampler.is_busy


class Pipeline:
    """
    Samplers, processors and routes, driven by one clock.

    Ticks stay on the grid of the first one: no drift, and after an overrun missed ticks are counted, not made up for.
    An exception of a part costs only its share of a tick; it is logged and counted.
    """

    def __init__(
        self,
        samplers: Sequence[Sampler],
        routes: Sequence[Route],
        *,
        interval: float,
        derivations: Sequence[Derivation] = (),
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Tick every `interval` seconds; `clock` returns the time in ns since the epoch."""
        self.samplers, self.derivations, self.routes = samplers, derivations, routes
        self._interval, self._clock = interval, clock
        self._survive = PartRunner()
        self._stop = StopRequest()
        self.progress = Progress()
        grace = min(GRACE, interval / 2)
        self._readings = TickReadings(samplers, derivations, grace, self._is_cut, self.progress)
        self.ticks = self.missed = 0
        self.ticked: float | None = None
        """When the last tick ended (monotonic seconds), or None."""
        self.incidents: list[Incident] = []
        """Incidents that were recorded."""
        self.after_tick: list[Callable[[], None]] = []
        """Called after each tick, on the clock's thread."""
        self.listeners: list[Callable[[Sequence[Datapoint], int], None]] = []
        """Called with the datapoints of each tick and its time (ns), on the clock's thread."""

    @property
    def stopped(self) -> float | None:
        """When it was stopped (monotonic seconds), or None."""
        return self._stop.at

    @property
    def failed(self) -> int:
        """Parts of ticks that ended in a bug."""
        return self._survive.counts["failed"]

    @property
    def devices(self) -> Mapping[str, DeviceFacts]:
        """The last devices and processes by collector, which may be late; empty unless somebody needs facts."""
        return self._readings.devices

    def _is_cut(self) -> bool:
        """Return whether a tick does not wait any more: a stop ends the wait, but not that of the last tick."""
        return self.stopped is not None and not self._stop.is_last

    def start(self) -> None:
        """Start the threads; raise RuntimeError if that is not possible."""
        for sampler in self.samplers:
            sampler.start()
        for route in self.routes:
            route.worker.start()

    def gather(self, at: int, grace: float | None = None) -> list[Datapoint]:
        """
        Return what collectors yield within `grace` seconds, and what processors derive from it.

        With `grace` the points are sorted.
        """
        points = self._readings.gather(at, grace, is_last=self._stop.is_last)
        self.progress.what = "a listener"
        for listener in self.listeners:
            self._survive("listener", listener, points, at)
        return points

    def tick(self, grace: float | None = None, earlier: Sequence[Datapoint] = ()) -> None:
        """Pass one reading from the collectors to the spools; stop if a collector's input has ended for good."""
        self.progress.since, at = time.monotonic(), self._clock()
        points = self._survive("readings", self.gather, at, grace) or []
        self.send(points + [point._replace(at=at) for point in earlier], at)
        if [True for sampler in self.samplers if sampler.ended]:  # a list, since a generator takes a call for each
            self.stop()
        self.ticks += 1
        self.ticked = time.monotonic()
        self.progress.what = "a part that is called after each tick"
        for call in [*self.after_tick]:
            self._survive("after the tick", call)
        self.progress.since = None

    def send(self, points: Sequence[Datapoint], at: int) -> None:
        """Pass points to the routes; for the clock's thread, or after `run`."""
        for route in self.routes:
            self.progress.what = f"sink {route.name}"
            self._survive(f"sink {route.name}", route.take, points, at)
            self._survive(f"sink {route.name}", route.worker.watch)

    def run(self, duration: float | None = None) -> None:
        """Tick until `stop`, or for `duration` seconds; then once more, for the time since the last tick."""
        watchdog = Watchdog(self.progress)
        watchdog.start()
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
            if self._stop.comes_before(wake) or (end is not None and wake == end):
                break
        self._stop.is_last = True
        self.tick(LAST_READING)
        watchdog.stop()

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
        if not self._stop.comes_before(time.monotonic() + pause):
            self.tick(FIRST_READING, last)

    def stop(self) -> None:
        """End `run`; safe from a signal handler and from any thread."""
        self._stop.make()

    def close(self, deadline: float = DEADLINE) -> None:
        """End the windows, let sinks deliver until `deadline` seconds after the stop, keep the rest in the spools."""
        for sampler in self.samplers:
            self._survive(f"collector {sampler.name}", sampler.end)
        for route in self.routes:
            self._survive(f"sink {route.name}", route.close_window)
            route.worker.stop()
        end = (self.stopped or time.monotonic()) + deadline
        for route in self.routes:
            route.worker.join(max(0.0, end - time.monotonic()))
            self._survive(f"sink {route.name}", route.spool.close)
        for sampler in self.samplers:
            sampler.join(CLOSING if sampler.ok else 0.0)
        for derivation in self.derivations:
            derivation.close()


def _idle(facts: DeviceFacts) -> set[int]:
    """Return the processes on devices that had time without work."""
    busy = {device.dims for device in facts.activity if device.active is not None and device.active >= WORKING}
    return {process.pid for process in facts.processes or () if process.dims not in busy}
