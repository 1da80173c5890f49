"""Runs one collector: opens it, reads it, and opens it again later if it finds nothing to read."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.errors import InputEnded, PartlyCollected, Unavailable
from chipwatch.contract.facts import (
    Device,
    DeviceActivity,
    DeviceFacts,
    DeviceProcess,
    MachineIdentity,
    RiseEvidence,
    Unlisted,
    names_of,
)
from chipwatch.contract.plugin import Given
from chipwatch.engine.validation import PluginRunner
from chipwatch.host.blocking_call import BlockingCall
from chipwatch.host.pace import IS_LAST, SLACK

RETRY: Final = 300.0
"""Seconds after which a collector that found nothing to read is opened again."""
MOST_FACTS: Final = 10_000
"""Most facts of one type that are taken from one reading."""
NUMBERS: Final[Mapping[type, Mapping[str, Any]]] = {
    Device: {},
    DeviceProcess: dict.fromkeys(("memory", "utilization", "occupancy")) | {"pid": 0},
    DeviceActivity: dict.fromkeys(("active", "idle", "energy")) | {"throttled": 0.0, "slices": 1.0},
}
"""Types of facts about a device, with their fields that must be numbers; a field with None here may be None."""
OF_MACHINE: Final = frozenset({MachineIdentity, RiseEvidence})
"""Types of facts that the agent uses itself; no processor gets them."""


class FactsReader:
    """Reads the facts of one collector; used on the collector's thread, after a reading."""

    def __init__(
        self, name: str, collector: Collector, learn: Callable[[Mapping[str, str]], None] = lambda _: None
    ) -> None:
        """Call `learn` with values of the machine's dimensions that a reading found, when they change."""
        self._name, self._learn = name, learn
        self._facts = partial(type(collector).facts, collector)  # an attribute may hide the method
        known = type(collector).knows
        self._kinds = frozenset((*known, Unlisted) if DeviceProcess in known else known)
        self._words: Mapping[str, str] = {}
        self.evidence: Mapping[Dimensions, tuple[int, str]] = {}
        """Time of a counter's last rise (ns since the epoch) and a text that shows why, by the counter's dimensions."""
        self.has_any = not self._kinds <= OF_MACHINE
        """True if the collector may have facts for processors."""
        self.is_due = not self._kinds.isdisjoint(OF_MACHINE)
        """True if the facts must be read."""
        self._is_wanted = False

    def want(self) -> None:
        """From now on, read the facts for processors, too."""
        self._is_wanted, self.is_due = True, bool(self._kinds)

    def read(self) -> list[object]:
        """Return the facts of the last reading, for processors; raise TypeError for a fact that is malformed."""
        all_facts = [*islice(self._facts(), MOST_FACTS * (len(self._kinds) + 6))]
        if not (all_facts or self.has_any or self.evidence or self._words):
            return all_facts
        by_kind: dict[type, list[Any]] = {kind: [] for kind in (Unlisted, *NUMBERS, *OF_MACHINE, *self._kinds)}
        for fact in all_facts:
            kind: Any = type(fact)
            if kind not in self._kinds or (kind in NUMBERS and not _is_sound(kind, *map(type, fact))):
                kinds = ", ".join(kind.__name__ for kind in self._kinds)
                raise TypeError(f"expected one of {kinds} as in chipwatch.contract.facts, got {fact!r:.100}")
            by_kind[kind].append(fact)
        for each in by_kind.values():
            del each[MOST_FACTS:]
        self.evidence = {fact.dims: (fact.at, fact.text) for fact in by_kind.pop(RiseEvidence)}
        words = {word: value for fact in by_kind.pop(MachineIdentity) for word, value in fact.words.items()}
        if words != self._words:
            self._words = words
            self._learn(words)
        unlisted, devices, listed, activity = (
            by_kind.pop(kind) for kind in (Unlisted, Device, DeviceProcess, DeviceActivity)
        )
        processes = None if unlisted or DeviceProcess not in self._kinds else listed
        facts = [fact for each in by_kind.values() for fact in each]
        if processes is not None or activity or devices:
            facts.append(DeviceFacts(time.monotonic_ns(), processes, names_of(devices), activity, self._name, devices))
        return facts if self._is_wanted else []


@lru_cache(maxsize=256)
def _is_sound(kind: Any, *types: type) -> bool:
    """Return whether the fields of a fact about a device may have these types; most facts have the same ones."""
    found, numbers = dict(zip(kind._fields, types, strict=True)), NUMBERS[kind]
    are_numbers = all(issubclass(found[name], (int, float, type(default))) for name, default in numbers.items())
    return are_numbers and found["dims"] is Dimensions


class Reading(NamedTuple):
    """The points and facts of one reading."""

    points: list[Datapoint]
    facts: Sequence[object] = ()


class Sampler(PluginRunner):
    """
    Runs one collector, never twice at the same time.

    It calls the collector on a separate daemon thread; a collector that never waits is called by the clock's thread. A
    reading that does not return is skipped and counted until it returns. A collector that finds nothing to read is
    closed, and its thread ends until the next attempt.
    """

    def __init__(
        self,
        name: str,
        collector: Collector,
        level: Level,
        *,
        state: Path | None = None,
        zeros: bool = True,
        retry: float = RETRY,
        learn: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        """
        Take points of at most `level`; open a collector that finds nothing again after `retry` seconds.

        The collector may keep files in `state`; with `zeros` it yields counters of events also while they are 0.
        `learn` is called on the collector's thread with values of the machine's dimensions that a reading found.
        """
        super().__init__(collector, "collector", name, level)
        self.collector = collector
        self._given = self.needs.of(Given(level=level, state=state, zeros=zeros))
        self._retry, self._rests_until, self.due = retry, math.inf, -math.inf
        """`due`: time (monotonic seconds) at which it is read or opened next, unless it is read in each tick."""
        self.absence_level = logging.DEBUG
        """Log level of the line that nothing can be read."""
        self._thread: BlockingCall[Reading | None] | None = None
        self.is_open = self.is_hung = False
        """`is_hung`: the last tick skipped the collector, since its reading has not returned."""
        self.ended: InputEnded | None = None
        """The exception with which the collector's input ended for good, or None."""
        self.found: str | None = None
        """The collector's own description of what it found, after the first reading."""
        self.absence: Unavailable | None = None
        """The exception with which the collector was last unavailable, or None."""
        self.knowledge = FactsReader(name, collector, learn)

    # -- called by the clock's thread ------------------------------------------------------------------------------

    @cached_property
    def is_mute(self) -> bool:
        """True if nothing needs its points or facts. Then it is read once, to see whether it works."""
        serves = type(self.collector).knows or self.needs.pids
        return not serves and self._survive(self.validation.wants_none, "cannot list its metrics") is True

    @property
    def is_busy(self) -> bool:
        """True from the request of a reading on the separate thread until `take` has returned it."""
        return self._thread is not None and self._thread.is_pending

    def is_due(self, now: float, *, is_last: bool = False) -> bool:
        """Return whether to read the collector, or to open it, at `now` (monotonic seconds)."""
        return (self.is_open and (is_last or not self.collector.every)) or now >= self.due or self.is_busy

    def start(self) -> None:
        """Start the collector's thread, if it has one; raise RuntimeError if the system cannot start it."""
        self._place()
        if self._thread:
            self._thread.start()

    def request(self, at: int, *, is_last: bool = False) -> bool:
        """
        Request a reading stamped `at` (ns since the epoch); return False if there is none to make now.

        Its thread begins at once, and `take` returns the reading; without a thread, call `read`.
        """
        if self.ended:
            return False
        if self._thread and (self._thread.is_pending or self._thread.is_ending):
            self.is_hung, self.ok = True, False
            what = "reading" if self.is_busy else "close"
            self._logger.tell("skipped", f"the last {what} has not returned; skipped until it does")
            return False
        if not self.is_open:
            if time.monotonic() < self.due:
                return False
            self._place()
        elif self.ok and not self.yielded and self.is_mute:
            return False
        self.is_hung = False
        try:
            if self._thread:
                self._thread.begin(partial(self.read, is_last=is_last), at)
        except RuntimeError as problem:
            self.ok = False
            self._logger.log(logging.ERROR, "start", f"{problem}; tried again in the next tick")
            return False
        return True

    def take(self, timeout: float) -> Reading | None:
        """Return the reading that its thread makes, or None if it does not come within `timeout` seconds."""
        if self._thread is None or not self._thread.wait(timeout):
            return None
        if not self.is_open:
            self._thread.close()
        return self._thread.take()

    def follow(self, pids: Collection[int], idle: Collection[int]) -> None:
        """Call the collector's `follow` with the pids on devices, and those on devices that were partly idle."""
        self._survive(self.collector.follow, "cannot follow processes", pids, idle)

    def rest(self, now: float) -> bool:
        """Return whether the collector may rest at `now` (monotonic seconds); then close it, and its thread ends."""
        if self.is_open and self._thread:
            self._rests_until = now + (self._survive(self.collector.rests, "cannot tell how long it rests") or 0.0)
            if now < self._rests_until:
                self.is_open, self.due = False, -math.inf
                self._thread.close(self.close)
        return now < self._rests_until

    def end(self) -> None:
        """Request the close of the collector after a reading in progress; do not wait for it."""
        if self._thread:
            self._thread.close(self.close if self.is_open or self.is_busy else None)
        elif self.is_open:
            self.close()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the end of the collector's thread; return whether it has ended."""
        return self._thread is None or self._thread.join(timeout)

    # -- the thread of the collector -------------------------------------------------------------------------------

    def read(self, at: int, *, is_last: bool = False) -> Reading:
        """Open the collector if needed, and read once; the last time it reads also what is read less often."""
        facts: list[object] = []
        before = IS_LAST.set(is_last)
        points = self._attempt(self._read, at, facts)
        IS_LAST.reset(before)
        if self.unavailable is not None and not self.is_open:
            self.close()
        return Reading(points, facts)

    def close(self) -> None:
        """Close the collector."""
        self.is_open = False
        self._survive(self.collector.close, "failed to close")

    def _place(self) -> None:
        """Choose the thread of the collector from its next `open` on: the clock's, or a separate one."""
        if self._survive(self.collector.waits, "cannot tell whether it waits") is False:
            if self._thread:
                self._thread.close()
            self._thread = None
        elif self._thread is None:
            self._thread = BlockingCall(lambda call, *args: call(*args), f"collect-{self.name}")

    def _read(self, at: int, facts: list[object], points: list[Datapoint]) -> None:
        """Add a reading to `points` and `facts`; raise an exception only for a bug of the collector, or an OSError."""
        try:
            if not self.is_open:
                self.due = time.monotonic() + self._retry
                self.collector.open(self._given)
                self.is_open, self.unavailable = True, None
                self._logger.resolved("unavailable", "available now")
            if every := self.collector.every:
                self.due = time.monotonic() + (every - SLACK) * (self.found is not None)
            self.validation.take(self.collector.collect(at), at, points)
            self.ok = True
            if "skipped" in self.counts:
                self._logger.over("skipped")
            if self.found is None:
                self.found = f"{self._survive(self.collector.describe, 'cannot describe what it found') or ''}"
        except Unavailable as reason:
            self.is_open, self.unavailable, self.ok, self.absence = False, str(reason), None, reason
            text = f"nothing to read: {reason}; tried again every {self._retry:g} s"
            self._logger.log(self.absence_level, "unavailable", text)
        except (InputEnded, PartlyCollected) as partly:
            self._wrong.append("; ".join(partly.problems))
            for problem in partly.problems:
                self._logger.tell("partial", problem, cause=problem)
            self.ok, self.ended = True, partly if isinstance(partly, InputEnded) else None
        if self.is_open and self.knowledge.is_due:
            told = self._survive(self.knowledge.read, "cannot tell its facts")
            facts += told or []
            if told is None:
                self._wrong.append("its facts are missing")
