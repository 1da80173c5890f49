"""Spreads the time of a device over jobs and states: pure functions, times in ns of the monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
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
    holders = {}
    for key, holding in now.holders.items():
        earlier = before.holders.get(key) if before else None
        ran = now.moment if holding.present else None
        if holding.present and now.active:
            ran = now.moment - now.idle
        elif earlier and earlier.ran is not None:
            ran = earlier.ran
        holders[key] = holding._replace(since=earlier.since if earlier else min(holding.since, now.moment), ran=ran)
    return now._replace(holders=holders)


def across(before: DeviceReading, now: DeviceReading) -> tuple[DeviceReading, DeviceReading]:
    """
    Adjust two readings between which the agent did not run; keep only the jobs that stayed in `before`.

    A new job counts from the start of its process; if that is before the stop, from `now`, since it came later.
    """
    begun = before.moment
    stayed = {
        key: holding for key, holding in before.holders.items()
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

    Each of n jobs that hold a device is charged an nth. A new job counts from its start. The time between the end of a
    job and the start of the next one is charged to the first as unseen.
    """
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
        for key, share in _split(end - start, holders or left):
            is_seen = holders and end > seen_from
            spent = _spread(share, now, now.holders[key], start, end) if is_seen else {UNSEEN: share}
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


def _split(time: int, keys: Sequence[Key]) -> list[tuple[Key, int]]:
    """Return equal shares of a time, which sum to it."""
    if not keys:
        return []
    share, rest = divmod(time, len(keys))
    return [(key, share + (n < rest)) for n, key in enumerate(keys)]


def _spread(time: int, now: DeviceReading, holding: Holding, start: int, end: int) -> dict[str, int]:
    """Return a job's time between two moments by state."""
    if now.lost:
        return {LOST: time}
    if now.active is None:
        return {UNKNOWN: time}
    worked = round(time * now.active)
    throttled, idle = round(worked * now.throttled), time - worked
    spent = {THROTTLED: throttled, BUSY: worked - throttled}
    if holding.blind:
        return {**spent, UNKNOWN: idle}
    recent = 0.0
    if holding.present and holding.ran is not None:
        recent = min(1.0, max(0.0, (holding.ran + HELD_AFTER - start) / (end - start)))
    stalled = round(idle * recent)
    return {**spent, STALLED: stalled, HELD: idle - stalled}
