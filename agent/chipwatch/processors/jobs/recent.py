"""The last minutes of jobs, devices and this machine, as figures for `reasons`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from statistics import fmean, median
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.extensions import DeviceActivity
from chipwatch.contract.owner import JobCollectives, Rank
from chipwatch.processors.jobs.accounting import SECOND, Key
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
OF_DEVICES: Final = ("gpu.link.errors", "gpu.pcie.replays")
"""Of these the rise must be far above that of the job's other devices, if there are three or more."""
READ: Final = ("disk.read", "nfs.read")
WRITTEN: Final = ("disk.written", "nfs.written")
CLOCKS: Final = ("gpu.clock.sm", "gpu.clock.graphics")
POWER: Final = "gpu.power"
UNANSWERED: Final = "nfs.unanswered"
NAMED: Final = frozenset((*RISES, UNANSWERED))
LAUNCHED: Final = "job.collectives"
KEPT: Final = NAMED | {LAUNCHED, *READ, *WRITTEN, *CLOCKS, POWER, "gpu.temperature"}
SHOWN: Final = {"data": ("files", "loader", "cpus"), "host": ("quota", "memory", "crowded", "swaps")}
"""Figures that show a cause."""
PHASES: Final = ("startup", "no_process", "held")
"""Causes of idle time that last until something begins: figures are of the time after that."""
THROTTLED: Final = "throttled"
"""Stands among the values for the share of a tick in which heat or power slowed a device down."""
Values = Mapping[tuple[str, Dimensions], float]


class DeviceMoment(NamedTuple):
    """A device of a job: cumulative figures (ns, weighted), and its process in a tick."""

    allocated: int
    late: int
    """Time without a kernel, for data or the host."""
    waiting: int
    """Time in which kernels ran and no unit computed."""
    pid: int = 0
    blocked: bool = False
    """The process is in an uninterruptible wait."""
    delay: float = 0.0
    """Seconds for which its main thread was ready to run and had no CPU, since its start."""


class JobMoment(NamedTuple):
    """A job's cumulative figures (ns, weighted)."""

    times: Mapping[str, int]
    idle: Mapping[str, int]
    busy: Mapping[str, int]
    """Time of its devices with a kernel by kind of work."""
    waited: Mapping[str, float] = {}
    """Time of its devices without a kernel by cause, and figures that show the cause times that time."""
    devices: Mapping[Place, DeviceMoment] = {}
    transfers: Mapping[int, tuple[int, int]] = {}
    """Bytes that its processes read and wrote, by pid."""


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
        seconds = (last.at - first.at) / SECOND
        numbers |= _shares(first.jobs[key], last.jobs[key])
        numbers |= _means(first.jobs[key].waited, last.jobs[key].waited)
        numbers |= _transfers(moments, key)
        begun = dict(chain.from_iterable(moment.values.items() for moment in reversed(moments)))
        ended = dict(chain.from_iterable(moment.values.items() for moment in moments))
        rises = {series: max(0.0, value - begun[series]) for series, value in ended.items()}
        worst = {name: _worst(name, rises, mine) for name in OF_DEVICES} if len(mine) >= LEAST_PEERS else {}
        for (name, dims), rise in rises.items():
            number = last.values.get((name, dims), 0.0) if name == UNANSWERED else rise
            is_mine = not (place := place_of(dims)) or place[:1] in mine
            is_mine &= name not in worst or place[:1] == worst[name]
            if name == LAUNCHED and dims.get("job") == key[-1]:
                numbers["collectives"] = rise
            if name in NAMED and is_mine and number > numbers.get(name, 0.0):
                numbers[name] = number
                words[name] = dims.get("gpu") or " ".join(
                    dims[key] for key in ("device", "port", "source") if key in dims
                )
        recent = [moment for moment in moments if last.at - moment.at <= PEERS]
        if len(recent) >= LEAST_READINGS:
            _find_late([moment.jobs[key].devices for moment in recent], recent[-1].at - recent[0].at, numbers, words)
            _compare([moment.values for moment in recent], mine, numbers, words)
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


def _means(first: Mapping[str, float], last: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the figures that show a cause, each as a mean over the time that was idle for it."""
    for cause, names in SHOWN.items():
        if (idle := last.get(cause, 0) - first.get(cause, 0)) > 0:
            yield from ((name, (last.get(name, 0.0) - first.get(name, 0.0)) / idle) for name in names)


def _transfers(moments: Sequence[Moment], key: Key) -> Iterator[tuple[str, float]]:
    """Yield the MB/s that were written while devices waited for data, and the share of writes in all bytes."""
    waited = [moment.jobs[key].waited.get("data", 0) for moment in moments]
    gaps = [gap for gap, times in zip(pairwise(moments), pairwise(waited), strict=True) if times[0] < times[1]]
    seconds = sum(now.at - before.at for before, now in gaps) / SECOND
    first, own = (
        dict(chain.from_iterable(moment.jobs[key].transfers.items() for moment in order))
        for order in (moments[::-1], moments)
    )
    if own:
        read, written = (float(sum(own[pid][n] - first[pid][n] for pid in own)) for n in (0, 1))
    elif len(moments[-1].jobs) == 1:  # else it may be another job that writes
        read, written = (sum(_rise(*gap, names) for gap in gaps) for names in (READ, WRITTEN))
    else:
        return
    if seconds and read + written:
        yield from (("written", written / seconds / 1e6), ("written.share", written / (read + written)))


def _rise(before: Moment, now: Moment, names: Sequence[str]) -> float:
    series = [each for each in now.values if each[0] in names]
    return sum(max(0.0, now.values[each] - before.values.get(each, now.values[each])) for each in series)


def _compare(readings: Sequence[Values], mine: set[Place], numbers: dict[str, float], words: dict[str, str]) -> None:
    """Add the device whose clock is far below that of its peers, and the one that is throttled far more."""
    names = CLOCKS, (THROTTLED,), ("gpu.temperature",), (POWER,)
    clocks, throttled, heat, power = (_gauges(readings, mine, *each) for each in names)
    if clocks:
        numbers["clocks"] = len(clocks)
    weak = lowest(power, 0.1)
    if weak is not None and "last" in numbers and weak[0][1] == words["last"]:
        numbers["weak"] = 1 - power[weak] / median(power.values())
    if (slow := lowest(clocks, 0.05)) is not None:
        middle = median(clocks.values())
        numbers["slow"] = 1 - clocks[slow] / middle
        words["slow"] = f"{slow[0][1]} runs at {clocks[slow]:,.0f} MHz, its peers at {middle:,.0f} MHz"
    hot = _highest(throttled, 0.1)
    if hot is not None and (slow is None or hot == slow):
        middle = median(throttled.values())
        numbers["hot"], words["hot.gpu"] = throttled[hot] - middle, hot[0][1]
        warm = f" at {heat[hot]:.0f} C" if hot in heat else ""
        words["hot"] = f"{100 * throttled[hot]:.0f} % of the time{warm}, its peers {100 * middle:.0f} %"


def _gauges(readings: Sequence[Values], mine: set[Place], *names: str) -> dict[Place, float]:
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


def _worst(name: str, rises: Values, mine: set[Place]) -> Place | None:
    """Return the only device of a job whose counter rose far more than that of any peer."""
    by_place = dict.fromkeys(mine, 0.0)
    for (metric, dims), rise in rises.items():
        if metric == name and (place := place_of(dims)[:1]) in mine:
            by_place[place] -= rise
    return lowest(by_place, 0.0)


def _find_late(
    moments: Sequence[Mapping[Place, DeviceMoment]], time: int, numbers: dict[str, float], words: dict[str, str]
) -> None:
    """Add the device that is late, with a sign of its cause, and the one for which all others wait."""
    first, last = moments[0], moments[-1]
    spent = {place: last[place].allocated - first[place].allocated for place in last.keys() & first.keys()}
    spent = {place: allocated for place, allocated in spent.items() if allocated > 0}
    late = {place: (last[place].late - first[place].late) / allocated for place, allocated in spent.items()}
    waits = {place: (last[place].waiting - first[place].waiting) / allocated for place, allocated in spent.items()}
    if (busiest := lowest(waits, 0.25)) is not None:
        numbers["last"], words["last"] = median(waits.values()) - waits[busiest], busiest[0][1]
    if (latest := _highest(late, 0.1)) is None:
        return
    numbers["rank.late"] = late[latest] - median(late.values())
    words["rank.late"] = f"{latest[0][1]} (process {last[latest].pid})"
    blocked = {place: fmean(place in moment and moment[place].blocked for moment in moments) for place in spent}
    delays = {place: SECOND * (last[place].delay - first[place].delay) / time for place in spent}
    for name, shares in (("rank.files", blocked), ("rank.cpu", delays)):
        if _highest(shares, 0.1) == latest:
            numbers[name] = shares[latest] - median(shares.values())
    for name in ("idle.data", "idle.host"):  # waits of this device alone are not a second cause
        if numbers.get(name, 0.0) <= 2 * late[latest] / len(spent):
            numbers.pop(name, None)


def _highest(shares: Mapping[Place, float], least: float) -> Place | None:
    return lowest({place: 1 - share for place, share in shares.items()}, least)


def lowest(values: Mapping[Place, float], least: float) -> Place | None:
    """Return the only device far below the others: by `least` of their median, and by five robust deviations."""
    if len(values) < LEAST_PEERS:
        return None
    middle = median(values.values())
    spread = median(abs(value - middle) for value in values.values())
    far = [place for place, value in values.items() if middle - value > max(least * middle, SPREAD * spread)]
    return min(far, key=lambda place: values[place], default=None)
