"""Spreads the time of a device over jobs and states: pure functions, times in ns of the monotonic clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

LOST, THROTTLED, BUSY, STALLED, HELD = "lost", "throttled", "busy", "stalled", "held"
UNKNOWN, UNSEEN = "unknown", "unseen"
STATES: Final = (BUSY, STALLED, HELD, THROTTLED, LOST, UNKNOWN, UNSEEN)
SECOND: Final = 1_000_000_000
HELD_AFTER: Final = 60 * SECOND
"""Time without a kernel after which a process holds a device: checkpoints and evaluations pause for less."""
MOST_INTERVALS: Final = 2
"""Intervals before a reading that it covers; a longer pause means that the agent was suspended or hung."""
BOOT_TIME: Final = SECOND
"""Largest error of a process's start time, which seems too early: it is computed from btime, in whole seconds."""

Key = tuple[str, str, str]
"""The identity of a job: `Owner.key`."""


class Holding(NamedTuple):
    """A job on a device."""

    since: int
    """When its process began, or when it was first seen."""
    present: bool = True
    """True if a process of it is on the device."""
    blind: bool = False
    """Its processes cannot be known."""
    ran: int | None = None
    """Time of the last kernel while its process was there; before the first kernel, the start of that process."""
    work: float | None = None
    """Its part of the device's work since the last reading, in the unit of the other holders; None: unknown."""


class DeviceReading(NamedTuple):
    """A device, or a part of it, at one moment."""

    moment: int
    holders: Mapping[Key, Holding]
    active: float | None = None
    """Share of the time since the last reading in which a kernel ran, or None."""
    idle: int = 0
    """Time since the last kernel, if one ran since the last reading."""
    throttled: float = 0.0
    lost: bool = False
    paused: bool = False
    """Nothing read the device from here until the next reading, so that this time is unseen."""


def following(before: DeviceReading | None, now: DeviceReading) -> DeviceReading:
    """Return `now` with `since` and `ran` of its holders taken from `before`."""
    if not now.holders:
        return now
    holders = {}
    for key, holding in now.holders.items():
        earlier = before.holders.get(key) if before else None
        ran = now.moment if holding.present else None
        if holding.present and now.active and holding.work != 0:
            ran = now.moment - now.idle
        elif earlier and earlier.ran is not None:
            ran = earlier.ran
        since = earlier.since if earlier else min(holding.since, now.moment)
        holders[key] = Holding(since, holding.present, holding.blind, ran, holding.work)
    return now._replace(holders=holders)


def across(before: DeviceReading, now: DeviceReading) -> tuple[DeviceReading, DeviceReading]:
    """
    Adjust two readings between which the agent did not run; keep only the jobs that stayed in `before`.

    A new job counts from the start of its process; if that is before the stop, from `now`, since it came later.
    Kernels may have run in between, so that this time does not count towards `held`.
    """
    begun, between = before.moment, now.moment - before.moment
    stayed = {
        key: holding if holding.ran is None else holding._replace(ran=holding.ran + between)
        for key, holding in before.holders.items()
        if key in now.holders and (not now.holders[key].present or now.holders[key].since <= begun)
    }  # fmt: skip
    holders = {
        key: holding._replace(since=now.moment) if key not in stayed and holding.since <= begun - BOOT_TIME else holding
        for key, holding in now.holders.items()
    }
    return before._replace(holders=stayed), now._replace(holders=holders)


def charges(before: DeviceReading, now: DeviceReading, interval: int) -> dict[Key, dict[str, int]]:
    """
    Return the time from `before` to `now` by job and state; readings are due each `interval`.

    Of n jobs that hold a device each is charged the time of its kernels, and an nth of the rest; an nth of all where
    their work is unknown. A new job counts from its start. The time between the end of a job and the start of the next
    one is charged to the first as unseen.
    """
    if not (before.holders or now.holders):
        return {}
    begun, ended = before.moment, now.moment
    seen_from = begun if now.lost else max(begun, ended - MOST_INTERVALS * interval)
    seen_from = ended if before.paused else seen_from
    starts = {
        key: begun if key in before.holders else min(max(holding.since, begun), ended)
        for key, holding in now.holders.items()
    }
    left = [key for key in before.holders if key not in now.holders] if starts else []
    edges = sorted({begun, seen_from, ended, *starts.values()})
    charged: dict[Key, dict[str, int]] = {}
    for start, end in pairwise(edges):
        holders = [key for key, since in starts.items() if since <= start]
        is_seen = holders and end > seen_from
        for key, spent in _spread(now, holders, start, end) if is_seen else _each(UNSEEN, end - start, holders or left):
            states = charged.setdefault(key, {})
            for state, time in spent.items():
                if time:
                    states[state] = states.get(state, 0) + time
    return charged


def allocated(before: DeviceReading, now: DeviceReading) -> int:
    """Return the time from `before` to `now` in which the device was held: the sum of `charges`."""
    if not now.holders:
        return 0
    first = before.moment if before.holders else min(holding.since for holding in now.holders.values())
    return now.moment - min(max(first, before.moment), now.moment)


def _split(time: int, weights: Sequence[float]) -> list[int]:
    """Return parts of a time in proportion to weights, which sum to it; equal ones if nothing has a weight."""
    if not (total := sum(weights)):
        return _equal(time, len(weights))
    edges = [min(time, round(time * (share / total))) for share in accumulate(weights)]
    return [end - start for start, end in pairwise([0, *edges[:-1], time])] if edges else []


def _equal(time: int, count: int) -> list[int]:
    """Return so many equal parts of a time, which sum to it."""
    return [time * (n + 1) // count - time * n // count for n in range(count)]


def _each(state: str, time: int, keys: Sequence[Key]) -> Iterator[tuple[Key, dict[str, int]]]:
    """Yield equal parts of a time, in one state."""
    for key, share in zip(keys, _equal(time, len(keys)), strict=True):
        yield key, {state: share}


def _spread(now: DeviceReading, keys: Sequence[Key], start: int, end: int) -> Iterator[tuple[Key, dict[str, int]]]:
    """Yield the time between two moments by job and state."""
    time = end - start
    if now.lost or now.active is None:
        yield from _each(LOST if now.lost else UNKNOWN, time, keys)
        return
    worked = round(time * now.active)
    works = _split(worked, [now.holders[key].work or 0.0 for key in keys])
    rests = _equal(time - worked, len(keys))
    for key, work, idle in zip(keys, works, rests, strict=True):
        holding, throttled = now.holders[key], round(work * now.throttled)
        spent = {THROTTLED: throttled, BUSY: work - throttled}
        if holding.blind:
            yield key, {**spent, UNKNOWN: idle}
            continue
        recent = 0.0
        if holding.present and holding.ran is not None:
            recent = min(1.0, max(0.0, (holding.ran + HELD_AFTER - start) / (end - start)))
        stalled = round(idle * recent)
        yield key, {**spent, STALLED: stalled, HELD: idle - stalled}
