"""The clock: in each tick it reads all collectors, runs the processors, and passes the points to every sink's route."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chipwatch.base.side_thread import SIDE
from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import text_of
from chipwatch.contract.facts import DeviceFacts
from chipwatch.engine.derivation import Derivation
from chipwatch.engine.notices import Notices
from chipwatch.engine.sampler import RETRY, Reading, Sampler
from chipwatch.engine.watchdog import Progress, Watchdog

if TYPE_CHECKING:
    from chipwatch.engine.route import Route  # loads SQLite, which a verdict does without
    from chipwatch.engine.self_metrics import Incident

log = logging.getLogger(__name__)
T = TypeVar("T")

GRACE: Final = 0.25
"""Seconds that a tick waits for readings; one that comes later is part of the next tick."""
FIRST_READING: Final = 5.0
"""Seconds that a single reading waits for collectors: no tick follows it, and a driver may be slow to wake up."""
LAST_READING: Final = 1.0
"""Seconds that the last tick waits for readings."""
DEADLINE: Final = 7.0
"""Most seconds that the last delivery takes after the stop. What is not delivered by then stays in the spools."""
LONGEST_WAIT: Final = 1.0
"""Longest single wait in seconds. Python calls the handler of a signal only after a wait that has just begun."""
WORKING: Final = 0.95
"""Share of the time for which a device must work to count as busy."""
PART, PAUSE = 2, 5e-5
"""
Collectors that are read in one go, and the seconds until the next ones, where ticks are frequent.

A job on the same CPU loses what is done in one go: a whole tick is a millisecond, and many times a second that shows.
"""
CLOSING: Final = 0.1
"""Seconds to wait at the end until a collector is closed."""


class StopRequest:
    """
    A request to stop. Any thread and any signal handler may make it; it ends a wait of the clock.

    It uses a lock and not a threading.Event: a handler that calls `set` while it interrupts a `wait` hangs for ever.
    """

    def __init__(self) -> None:
        self.at: float | None = None
        """Time of the request (monotonic seconds), or None."""
        self.is_last = False
        """True once the last tick has begun."""
        self._lock = threading.Lock()
        self._lock.acquire()

    def make(self) -> None:
        """Request a stop; safe to call twice."""
        self.at = self.at or time.monotonic()
        with suppress(RuntimeError):  # the lock is free already, since a request was made before
            self._lock.release()

    def comes_before(self, due: float) -> bool:
        """Wait until `due` (monotonic seconds) or until a request; return whether there was one."""
        while self.at is None and (left := due - time.monotonic()) > 0:
            self._lock.acquire(timeout=min(left, LONGEST_WAIT))
        return self.at is not None


class TickReadings:
    """
    Reads the collectors and runs the processors of one tick after another; used by the clock's thread.

    A collector that is still reading is not asked again; its late reading becomes part of the next tick. Followers are
    collectors that read the processes on other collectors' devices; they read last, since they need the pids of this
    tick.
    """

    def __init__(
        self,
        samplers: Sequence[Sampler],
        derivations: Sequence[Derivation],
        grace: float,
        stop: StopRequest,
        progress: Progress,
    ) -> None:
        """Wait at most `grace` seconds for readings; after a request to stop, only in the last tick."""
        self._derivations, self._grace, self._stop, self._progress = derivations, grace, stop, progress
        self.is_frequent = grace < GRACE
        needs_facts = any(derivation.needs.facts for derivation in derivations)
        self._followers = [sampler for sampler in samplers if needs_facts and sampler.needs.pids]
        self._first = [sampler for sampler in samplers if sampler not in self._followers]
        for sampler in samplers if needs_facts else ():
            sampler.knowledge.want()
        self.devices: dict[str, DeviceFacts] = {}
        """The last devices and processes by collector, which may be late; empty unless somebody needs facts."""
        self._points: list[Datapoint] = []
        self._facts: list[object] = []
        self._awake, self._wake = list[Sampler](), 0.0
        """The collectors to look at in each tick, and the time (monotonic seconds) at which another one is due."""

    def gather(self, at: int, grace: float | None) -> list[Datapoint]:
        """
        Return the points that collectors yield within `grace` seconds, and the points that processors derive from them.

        The last tick also waits for readings that an earlier tick began. With `grace`, the points are sorted.
        """
        self._points, self._facts = [], []
        deadline = time.monotonic() + (self._grace if grace is None else grace)
        with_devices = self._read_all(at, deadline)
        for derivation in self._derivations:
            if derivation.is_wanted(with_devices=with_devices):
                self._progress.what = f"processor {derivation.name}"
                self._points += derivation.run(tuple(self._points), at, self._facts)
        if grace is not None:  # a single reading: its order must not depend on which collector was quicker
            self._points.sort(key=lambda point: (point.metric.name, point.dims.items_sorted))
        return self._points

    def _read_all(self, at: int, deadline: float) -> bool:
        """Read the collectors that are due, followers last; return whether a collector that finds devices is due."""
        now, is_last = time.monotonic(), self._stop.is_last
        if now >= self._wake or is_last:
            self._awake, self._wake = self._first, now + RETRY
        due = [sampler for sampler in self._awake if sampler.is_due(now, is_last=is_last)]
        if len(due) < len(self._awake):
            self._wake = min(self._wake, *(sampler.due for sampler in self._awake if sampler not in due))
            self._awake = due
        # Collectors that find devices: usually none on a host without a device.
        finders = [sampler for sampler in due if sampler.knowledge.has_any and not sampler.needs.pids]
        if not finders:
            for follower in self._followers:
                needs_devices = follower.needs_devices and follower.ok and not follower.is_busy
                if not (needs_devices and follower.rest(now)):
                    follower.follow((), ())
                    due.append(follower)
        self._read(due, at, deadline)
        if finders and self._followers:
            facts = [self.devices[finder.name] for finder in finders if finder.name in self.devices]
            pids = {process.pid for devices in facts for process in devices.processes or ()}
            idle = {pid for devices in facts for pid in _idle(devices)}
            for follower in self._followers:
                follower.follow(pids, idle)
            self._read(self._followers, at, max(deadline, time.monotonic() + self._grace))
        return any(finder.is_due(now) for finder in finders)

    def _read(self, samplers: Sequence[Sampler], at: int, deadline: float) -> None:
        """Take late readings, then a new one of each sampler; wait until `deadline` for readings on other threads."""
        waited_for, own = list[Sampler](), list[Sampler]()
        for sampler in samplers:
            if sampler.is_busy:
                if self._stop.is_last and not sampler.is_hung:
                    waited_for.append(sampler)
                    continue
                self._take(sampler, 0.0)
            if sampler.request(at, is_last=self._stop.is_last):
                (waited_for if sampler.is_busy else own).append(sampler)
        for number, sampler in enumerate(own, 1):
            if self.is_frequent and not number % PART:
                time.sleep(PAUSE)
            self._progress.what = f"collector {sampler.name}"
            self._add(sampler.read(at, is_last=self._stop.is_last))
        self._progress.what = "waiting for collectors"
        for sampler in waited_for:
            # A signal that stops the agent does not end a wait, so each wait is short.
            while not self._take(sampler, min(GRACE, deadline - time.monotonic())):
                if (self._stop.at and not self._stop.is_last) or time.monotonic() >= deadline:
                    break

    def _take(self, sampler: Sampler, timeout: float) -> bool:
        """Add the reading from the sampler's thread to the tick; return whether it came."""
        if (reading := sampler.take(timeout)) is not None:
            self._add(reading)
        return not sampler.is_busy

    def _add(self, reading: Reading) -> None:
        self._points += reading.points
        if reading.facts:
            self._facts += reading.facts
            self.devices |= {fact.source: fact for fact in reading.facts if isinstance(fact, DeviceFacts)}


class Pipeline:
    """
    The whole agent between collectors and sinks, driven by one clock.

    Ticks are a whole number of intervals after the first one, so they do not drift. If a tick takes too long, the ticks
    that it missed are counted and left out. So is one less than half an interval after a tick that began late, such as
    after a pause of the process: a rate over so short a time says nothing. An exception in a part costs only that part
    of the tick; it is logged and counted.
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
        self._notices = Notices(log, "tick", "tick")
        self._stop = StopRequest()
        self.progress = Progress()
        self._readings = TickReadings(samplers, derivations, min(GRACE, interval / 2), self._stop, self.progress)
        self.ticks = self.missed = 0
        self.ticked: float | None = None
        """End of the last tick (monotonic seconds), or None."""
        self.incidents: list[Incident] = []
        """The incidents that were recorded in this run."""
        self.after_tick: list[Callable[[], None]] = []
        """Functions to call after each tick, on the clock's thread."""
        self.listeners: list[Callable[[Sequence[Datapoint], int], None]] = []
        """Functions to call with the datapoints and the time (ns) of each tick, on the clock's thread."""

    @property
    def stopped(self) -> float | None:
        """Time of the request to stop (monotonic seconds), or None."""
        return self._stop.at

    @property
    def failed(self) -> int:
        """Number of parts of ticks that ended in an exception."""
        return self._notices.counts["failed"]

    @property
    def devices(self) -> Mapping[str, DeviceFacts]:
        """The last devices and processes by collector, which may be late; empty unless somebody needs facts."""
        return self._readings.devices

    def start(self) -> None:
        """Start the threads; raise RuntimeError if the system cannot start one."""
        for sampler in self.samplers:
            sampler.start()
        for route in self.routes:
            route.worker.start()

    def gather(self, at: int, grace: float | None = None) -> list[Datapoint]:
        """
        Return the points of collectors within `grace` seconds, and the ones that processors derive from them.

        With `grace`, the points are sorted.
        """
        points = self._readings.gather(at, grace)
        self.progress.what = "a listener"
        for listener in [*self.listeners]:
            self._survive("listener", listener, points, at)
        return points

    def tick(self, grace: float | None = None, earlier: Sequence[Datapoint] = ()) -> None:
        """Make one tick, from the collectors to the spools; stop if a collector's input has ended for good."""
        self.progress.since, at = time.monotonic(), self._clock()
        points = self._survive("readings", self.gather, at, grace) or []
        if self._readings.is_frequent:
            time.sleep(PAUSE)
        self.send([*points, *(point._replace(at=at) for point in earlier)] if earlier else points, at)
        if [True for sampler in self.samplers if sampler.ended]:  # quicker than any()
            self.stop()
        self.ticks += 1
        self.ticked = time.monotonic()
        self.progress.what = "a part that is called after each tick"
        for call in [*self.after_tick]:
            self._survive("after the tick", call)
        self.progress.since = None

    def send(self, points: Sequence[Datapoint], at: int) -> None:
        """Pass points to all routes; call it on the clock's thread, or after `run`."""
        for route in self.routes:
            self.progress.what = title = f"sink {route.name}"
            self._survive(title, route.take, points, at)
            self._survive(title, route.worker.watch)

    def run(self, duration: float | None = None) -> None:
        """Tick until `stop`, or for `duration` seconds; then tick once more, for the time since the last tick."""
        watchdog = Watchdog(self.progress)
        with suppress(RuntimeError):  # no thread can be started; then a tick that hangs is not named
            SIDE.add(watchdog.look)
        due = time.monotonic()
        end = due + (inf if duration is None else duration)
        while self.stopped is None:
            began = time.monotonic()
            self.tick()
            steps = max(int((time.monotonic() - due) // self._interval), ceil((began - due) / self._interval + 0.5))
            self.missed += steps - 1
            due += steps * self._interval
            if self._stop.comes_before(min(due, end)) or end <= due:
                break
        self._stop.is_last = True
        self.tick(LAST_READING)
        SIDE.remove(watchdog.look)

    def once(self, pause: float) -> None:
        """
        Read twice, `pause` seconds apart, since a rate needs two readings; send only the second reading.

        If a collector's input ended with the first reading, send its points of the first.
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
        """End `run`. A signal handler and any thread may call it."""
        self._stop.make()

    def close(self, deadline: float = DEADLINE) -> None:
        """End the windows, deliver until `deadline` seconds after the stop, and keep the rest in the spools."""
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

    def _survive(self, who: str, call: Callable[..., T], *args: Any) -> T | None:
        """Return what a part of the agent returns, or None after an exception in it, which is logged and counted."""
        try:
            return call(*args)
        except Exception as bug:
            kind = type(bug).__name__
            self._notices.tell("failed", f"{who} failed: {kind}: {text_of(bug)}", cause=f"{who} {kind}", traceback=True)
            return None


def _idle(facts: DeviceFacts) -> set[int]:
    """Return the pids on devices that were partly idle."""
    busy = {device.dims for device in facts.activity if device.active is not None and device.active >= WORKING}
    return {process.pid for process in facts.processes or () if process.dims not in busy}
