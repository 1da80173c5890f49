"""The last minutes of jobs, devices and this machine, as figures for `reasons`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.extensions import DeviceActivity
from chipwatch.contract.owner import JobCollectives, Rank
from chipwatch.processors.jobs.accounting import SECOND, Key
from chipwatch.processors.jobs.causes import Evidence
from chipwatch.processors.jobs.device import Place, place_of

WINDOW: Final = 300 * SECOND
EVERY: Final = 10 * SECOND
PEERS: Final = 120 * SECOND
"""Time over which devices are compared."""
LEAST_READINGS: Final = 6
LEAST_PEERS: Final = 4
MOST: Final = 3
"""Names in a sentence."""
SPREAD: Final = 5 * 1.4826
"""Median absolute deviations from which a device differs; 1.4826 of them are a standard deviation."""
RISES: Final = (
    "rdma.link.downed", "rdma.errors", "rdma.retransmits", "nfs.timeouts", "gpu.link.errors", "gpu.pcie.replays",
)  # fmt: skip
"""Counters whose rise is a figure, of the series that rose most."""
READ: Final = ("disk.read", "nfs.read")
WRITTEN: Final = ("disk.written", "nfs.written")
CLOCKS: Final = ("gpu.clock.sm", "gpu.clock.graphics")
UNANSWERED: Final = "nfs.unanswered"
NAMED: Final = frozenset((*RISES, UNANSWERED))
LAUNCHED: Final = "job.collectives"
KEPT: Final = NAMED | {LAUNCHED, *READ, *WRITTEN, *CLOCKS, "gpu.temperature"}
PHASES: Final = ("startup", "no_process", "held")
"""Causes of idle time that last until something begins: figures are of the time after that."""
THROTTLED: Final = "throttled"
"""Stands among the values for the share of a tick in which heat or power slowed a device down."""
Values = Mapping[tuple[str, Dimensions], float]


class JobMoment(NamedTuple):
    """A job's cumulative figures (ns, weighted), and what it waited for in a tick."""

    times: Mapping[str, int]
    idle: Mapping[str, int]
    busy: Mapping[str, int]
    """Time of its devices with a kernel by kind of work."""
    evidence: Evidence


class Moment(NamedTuple):
    """One tick."""

    at: int
    values: Values
    jobs: Mapping[Key, JobMoment]


class RecentMoments:
    """Keeps a tick every ten seconds, for five minutes."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque()

    def is_due(self, at: int) -> bool:
        """Return whether to take this tick; begin again where the clock went back."""
        if self._moments and at < self._moments[-1].at:
            self._moments.clear()
        return not self._moments or at - self._moments[-1].at >= EVERY - SECOND // 2

    def take(
        self, at: int, tick: Iterable[Datapoint], activity: Iterable[DeviceActivity], jobs: Mapping[Key, JobMoment]
    ) -> None:
        """Remember a tick."""
        while len(self._moments) > 1 and at - self._moments[0].at > WINDOW:
            self._moments.popleft()
        values = {(point.metric.name, point.dims): point.value for point in tick if point.metric.name in KEPT}
        values |= {(THROTTLED, device.dims): device.throttled for device in activity}
        self._moments.append(Moment(at, values, jobs))

    def note(self, key: Key, places: Iterable[Place], numbers: dict[str, float], words: dict[str, str]) -> float:
        """Add the figures of a job on `places`; return the seconds that they are of."""
        moments = [moment for moment in self._moments if key in moment.jobs]
        if len(moments) < 2:
            return 0.0
        before, now = (moment.jobs[key].idle for moment in moments[-2:])
        over = [cause for cause in PHASES if now.get(cause, 0) == before.get(cause, 0)]
        idles = [[moment.jobs[key].idle.get(cause, 0) for cause in over] for moment in moments]
        moments = [moment for moment, idle in zip(moments, idles, strict=True) if idle == idles[-1]]
        first, last, mine = moments[0], moments[-1], {place[:1] for place in places}
        numbers |= _shares(first.jobs[key], last.jobs[key])
        numbers |= _means([moment.jobs[key].evidence for moment in moments[1:]])
        seconds = (last.at - first.at) / SECOND
        rises = {series: max(0.0, value - first.values.get(series, value)) for series, value in last.values.items()}
        read, written = (sum(rises[series] for series in rises if series[0] in names) for names in (READ, WRITTEN))
        if read + written:
            numbers |= {"written": written / seconds / 1e6, "written.share": written / (read + written)}
        for (name, dims), rise in rises.items():
            number = last.values[name, dims] if name == UNANSWERED else rise
            is_mine = not (place := place_of(dims)) or place[:1] in mine
            if name == LAUNCHED and dims.get("job") == key[-1]:
                numbers["collectives"] = rise
            if name in NAMED and is_mine and number > numbers.get(name, 0.0):
                numbers[name] = number
                words[name] = dims.get("gpu") or " ".join(
                    dims[key] for key in ("device", "port", "source") if key in dims
                )
        _compare([moment.values for moment in moments if last.at - moment.at <= PEERS], mine, numbers, words)
        return seconds


def note_ranks(reports: Iterable[JobCollectives], numbers: dict[str, float], words: dict[str, str]) -> int:
    """Add what NCCL says of a job's ranks; return their number, 0 if unknown."""
    total = 0
    for report in reports:
        total += report.ranks
        dead = f" ({report.dead} dead)" if report.dead else ""
        for name, ranks, number in (
            ("ranks.behind", report.behind, report.behind_count),
            ("ranks.missing", report.missing, report.missing_count),
            ("ranks.failed", report.failed, len(report.failed)),
        ):
            numbers[name] = numbers.get(name, 0) + number
            if number:
                rest = (f" and {number - MOST} more" if number > MOST else "") + dead
                words |= {name: ", ".join(map(_place, ranks[:MOST])) + rest or f"{number} ranks", "lag": report.lag}
    return total


def _place(rank: Rank) -> str:
    who = f"rank {rank.rank}" if rank.rank >= 0 else "a rank"
    return f"{who} ({rank.host} gpu {rank.gpu}, process {rank.pid})" if rank.host else who


def _shares(first: JobMoment, last: JobMoment) -> Iterator[tuple[str, float]]:
    """Yield the parts of the job's GPU time, and of the time of its devices with kernels."""
    spent = {state: last.times[state] - first.times.get(state, 0) for state in last.times}
    total = sum(spent.values())
    if total <= 0:
        return
    yield from ((f"share.{state}", time / total) for state, time in spent.items())
    idle = {f"idle.{cause}": (last.idle[cause] - first.idle.get(cause, 0)) / total for cause in last.idle}
    yield from idle.items()
    busy = {kind: last.busy[kind] - first.busy.get(kind, 0) for kind in last.busy}
    waiting = 0.0
    if busy.get("compute", 0) + busy.get("waiting", 0) > 0:
        waiting = busy.get("waiting", 0) / total
        yield "share.waiting", waiting
    yield "share.waits", waiting + idle.get("idle.network", 0.0) + idle.get("idle.other", 0.0)


def _means(items: Sequence[Evidence]) -> Iterator[tuple[str, float]]:
    """Yield the means of what the job waited for."""
    for name in ("quota", "loader", "memory", "swaps", "crowded"):
        if known := [value for item in items if (value := getattr(item, name)) is not None]:
            yield name, fmean(known)
    yield "files", max(fmean(item.blocked for item in items), fmean(item.io or 0.0 for item in items))
    if used := [item.cpu / item.cpus for item in items if item.cpu is not None and item.cpus]:
        yield "cpus", fmean(used)


def _compare(readings: Sequence[Values], mine: set[Place], numbers: dict[str, float], words: dict[str, str]) -> None:
    """Add the device whose clock is far below that of its peers, and the one that is throttled far more."""

    def means(names: Sequence[str]) -> dict[Place, float]:
        """Return the mean of a gauge by device; of one name for all."""
        for name in names:
            by_place: dict[Place, list[float]] = {}
            for values in readings:
                for (metric, dims), value in values.items():
                    if metric == name and (place := place_of(dims)) in mine:
                        by_place.setdefault(place, []).append(value)
            if by_place:
                return {place: fmean(each) for place, each in by_place.items() if len(each) >= LEAST_READINGS}
        return {}

    clocks, throttled, heat = means(CLOCKS), means((THROTTLED,)), means(("gpu.temperature",))
    if (slow := lowest(clocks, 0.05)) is not None:
        middle = median(clocks.values())
        numbers["slow"] = 1 - clocks[slow] / middle
        words["slow"] = f"{slow[0][1]} runs at {clocks[slow]:,.0f} MHz, its peers at {middle:,.0f} MHz"
    hot = lowest({place: 1 - share for place, share in throttled.items()}, 0.1)
    if hot is not None and (slow is None or hot == slow):
        middle = median(throttled.values())
        numbers["hot"], words["hot.gpu"] = throttled[hot] - middle, hot[0][1]
        warm = f" at {heat[hot]:.0f} C" if hot in heat else ""
        words["hot"] = f"{100 * throttled[hot]:.0f} % of the time{warm}, its peers {100 * middle:.0f} %"


def lowest(values: Mapping[Place, float], least: float) -> Place | None:
    """Return the only device far below the others: by `least` of their median, and by five robust deviations."""
    if len(values) < LEAST_PEERS:
        return None
    middle = median(values.values())
    spread = median(abs(value - middle) for value in values.values())
    far = [place for place, value in values.items() if middle - value > max(least * middle, SPREAD * spread)]
    return min(far, key=lambda place: values[place], default=None)
