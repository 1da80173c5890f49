"""Divides the time of a device among jobs and states: pure functions; times are ns of the monotonic clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

LOST, THROTTLED, BUSY, STALLED, HELD = "lost", "throttled", "busy", "stalled", "held"
UNKNOWN, UNSEEN = "unknown", "unseen"
STATES: Final = (BUSY, STALLED, HELD, THROTTLED, LOST, UNKNOWN, UNSEEN)
SECOND: Final = 1_000_000_000
HELD_AFTER: Final = 60 * SECOND
"""Time without a kernel after which an idle device counts as held; checkpoints and evaluations pause for less."""
MOST_INTERVALS: Final = 2
"""Intervals that one reading covers at most; a longer pause means that the agent was suspended or hung."""
BOOT_TIME: Final = SECOND
"""Time by which a process's start may seem too early: it is computed from the boot time, in whole seconds."""

JobKey = tuple[str, str, str]
"""The identity of a job: `Owner.key`."""
Charges = Iterator[tuple[JobKey, dict[str, int]]]
"""Jobs, each with its time (ns) by state."""


class Holding(NamedTuple):
    """A job on a device."""

    since: int
    """When its process began, or when it was first seen."""
    present: bool = True
    """True if a process of the job is on the device."""
    blind: bool = False
    """True if nobody can know whether a process of the job is on the device."""
    ran: int | None = None
    """Time of the last kernel since the job's process came; before its first kernel, the time of the first reading."""
    work: float | None = None
    """The job's share of the device's work since the last reading, relative to the other jobs; None if unknown."""


class DeviceReading(NamedTuple):
    """A device, or a partition of one, at one moment."""

    moment: int
    holders: Mapping[JobKey, Holding]
    active: float | None = None
    """Share of the time since the last reading in which a kernel ran; None if unknown."""
    idle: int = 0
    """Time since the last kernel, if one ran since the last reading."""
    throttled: float = 0.0
    lost: bool = False
    paused: bool = False
    """True if the agent stopped after this reading: the time until the next reading counts as unseen."""


def following(before: DeviceReading | None, now: DeviceReading) -> DeviceReading:
    """Return `now`, whose holders keep their `since` and `ran` of `before`."""
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
    Adjust two readings between which the agent did not run; return both. In the first, only jobs that stayed remain.

    A new job counts from the start of its process, or from `now` if that process is older than the stop: it took the
    device later. The time between the readings does not count towards `held`, because kernels may have run in it.
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


def charges(before: DeviceReading, now: DeviceReading, interval: int) -> dict[JobKey, dict[str, int]]:
    """
    Return the time from `before` to `now` (ns) by job and state; a reading is due every `interval` ns.

    If n jobs hold the device, each is charged the time of its kernels and an nth of the remaining time. If their
    work is unknown, each is charged an nth of everything. A new job is charged from its start. The time between the end
    of one job and the start of the next is charged to the first job, as unseen.
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
    charged: dict[JobKey, dict[str, int]] = {}
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
    """Return the time from `before` to `now` in which jobs held the device: the sum of `charges`."""
    if not now.holders:
        return 0
    first = before.moment if before.holders else min(holding.since for holding in now.holders.values())
    return now.moment - min(max(first, before.moment), now.moment)


def added(charged: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of some times by state."""
    total: dict[str, int] = {}
    for states in charged:
        for state, time in states.items():
            total[state] = total.get(state, 0) + time
    return total


def _split(time: int, weights: Sequence[float]) -> list[int]:
    """Divide a time in proportion to weights, without a remainder; in equal parts if all weights are 0."""
    if not (total := sum(weights)):
        return _equal(time, len(weights))
    edges = [min(time, round(time * (share / total))) for share in accumulate(weights)]
    return [end - start for start, end in pairwise([0, *edges[:-1], time])] if edges else []


def _equal(time: int, count: int) -> list[int]:
    """Divide a time into `count` equal parts, without a remainder."""
    return [time * (n + 1) // count - time * n // count for n in range(count)]


def _each(state: str, time: int, keys: Sequence[JobKey]) -> Charges:
    """Yield each job with an equal part of a time, all in one state."""
    for key, share in zip(keys, _equal(time, len(keys)), strict=True):
        yield key, {state: share}


def _spread(now: DeviceReading, keys: Sequence[JobKey], start: int, end: int) -> Charges:
    """Yield each job with its time from `start` to `end`, by state."""
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
