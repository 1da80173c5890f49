"""Remembers the last five minutes of jobs, devices and this machine; makes figures of them for `reasons`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.facts import DeviceActivity
from chipwatch.contract.owner import JobCollectives, Rank
from chipwatch.jobs.accounting import SECOND, JobKey
from chipwatch.jobs.causes import SIGNS
from chipwatch.jobs.device_key import DeviceKey, device_of
from chipwatch.jobs.reasons import JobFigure

WINDOW: Final = 300 * SECOND
EVERY: Final = 10 * SECOND
PEERS: Final = 120 * SECOND
"""Time (ns) over which the devices of a job are compared."""
LEAST_READINGS: Final = 6
LEAST_PEERS: Final = 4
MOST: Final = 3
"""Most ranks that a sentence names."""
SPREAD: Final = 5 * 1.4826
"""Median absolute deviations beyond which a device is an outlier: five standard deviations of 1.4826 each."""
RISES: Final = (
    "rdma.link.downed", "rdma.errors", "rdma.retransmits", "rdma.pause.time", "nfs.timeouts", "gpu.link.errors",
    "gpu.pcie.replays",
)  # fmt: skip
"""Counters whose increase is a figure: that of the series that grew most, in each direction if it has directions."""
OF_DEVICES: Final = ("gpu.link.errors", "gpu.pcie.replays")
"""Counters that must grow far more on one device than on the job's other devices, if it has four or more."""
READ: Final = ("disk.read", "nfs.read")
WRITTEN: Final = ("disk.written", "nfs.written")
CLOCKS: Final = ("gpu.clock.sm", "gpu.clock.graphics")
POWER: Final = "gpu.power"
UNANSWERED: Final = "nfs.unanswered"
NAMED: Final = frozenset((*RISES, UNANSWERED))
LAUNCHED: Final = "job.collectives"
KEPT: Final = NAMED | {LAUNCHED, *READ, *WRITTEN, *CLOCKS, POWER, "gpu.temperature"}
PHASES: Final = ("startup", "no_process", "held")
"""Causes of idle time before a job's work; figures cover only the time after them."""
THROTTLED: Final = "throttled"
"""Key, beside metrics, of the share of a tick in which heat or power slowed a device."""
ValuesBySeries = Mapping[tuple[str, Dimensions], float]


class DeviceMoment(NamedTuple):
    """A device of a job in one tick: cumulative figures (ns, weighted by slices), and its process."""

    allocated: int
    late: int
    """Time without a kernel, because the device waited for data or the host."""
    waiting: int
    """Time in which kernels ran, but no unit of the GPU computed."""
    pid: int = 0
    blocked: bool = False
    """True if the process is in an uninterruptible wait."""
    delay: float = 0.0
    """Seconds since the process's start in which its main thread was ready to run but had no CPU."""


class JobMoment(NamedTuple):
    """A job in one tick: cumulative figures (ns, weighted by slices)."""

    times: Mapping[str, int]
    idle: Mapping[str, int]
    busy: Mapping[str, int]
    """Time of the job's devices with a kernel, by kind of work."""
    waited: Mapping[str, float] = {}
    """Time of the job's devices without a kernel, by cause; and the sums of `Spent.shown`."""
    devices: Mapping[DeviceKey, DeviceMoment] = {}
    transfers: Mapping[int, tuple[int, int]] = {}
    """PID -> bytes that the process has read, and written."""


class Moment(NamedTuple):
    """One remembered tick."""

    at: int
    values: ValuesBySeries
    jobs: Mapping[JobKey, JobMoment]


class RecentMoments:
    """Keeps one tick in ten seconds, for five minutes."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque()

    def is_due(self, at: int) -> bool:
        """Return True if this tick is to be remembered; forget all ticks if the clock went back."""
        if self._moments and at < self._moments[-1].at:
            self._moments.clear()
        return not self._moments or at - self._moments[-1].at >= EVERY - SECOND // 2

    def take(
        self, at: int, tick: Iterable[Datapoint], activity: Iterable[DeviceActivity], jobs: Mapping[JobKey, JobMoment]
    ) -> None:
        """Remember a tick."""
        while len(self._moments) > 1 and at - self._moments[0].at > WINDOW:
            self._moments.popleft()
        values = {(point.metric.name, point.dims): point.value for point in tick if point.metric.name in KEPT}
        values |= {(THROTTLED, device.dims): device.throttled for device in activity}
        self._moments.append(Moment(at, values, jobs))

    def of(self, key: JobKey) -> Span:
        """Return the moments of a job since its last phase without work (PHASES) ended."""
        moments = [moment for moment in self._moments if key in moment.jobs]
        if len(moments) < 2:
            return Span(key)
        before, now = (moment.jobs[key].idle for moment in moments[-2:])
        over = [cause for cause in PHASES if now.get(cause, 0) == before.get(cause, 0)]
        idles = [[moment.jobs[key].idle.get(cause, 0) for cause in over] for moment in moments]
        return Span(key, [moment for moment, idle in zip(moments, idles, strict=True) if idle == idles[-1]])


class Span(NamedTuple):
    """Consecutive moments of one job, from which its figures are computed."""

    key: JobKey
    moments: Sequence[Moment] = ()

    @property
    def seconds(self) -> float:
        """Return the seconds from the first moment to the last."""
        return (self.moments[-1].at - self.moments[0].at) / SECOND if self.moments else 0.0

    def figures(self, places: Iterable[DeviceKey]) -> Iterator[JobFigure]:
        """Yield the figures of the job on its devices, `places`. A later figure replaces one of the same name."""
        if not self.moments:
            return
        first, last = (moment.jobs[self.key] for moment in (self.moments[0], self.moments[-1]))
        mine = {place[:1] for place in places}
        shares = {figure.name: figure for figure in _shares(first, last)}
        yield from shares.values()
        waited = _grown(first.waited, last.waited)
        for cause, signs in SIGNS.items():  # each figure is a mean over the time that was idle for its cause
            if (idle := waited.get(cause, 0.0)) > 0:
                yield from (JobFigure(name, waited.get(name, 0.0) / idle) for name in signs)
        yield from self._transfers()
        yield from self._rises(mine)
        recent = [moment for moment in self.moments if self.moments[-1].at - moment.at <= PEERS]
        if len(recent) >= LEAST_READINGS:
            late = [*_late([moment.jobs[self.key].devices for moment in recent], recent[-1].at - recent[0].at, shares)]
            yield from late
            busiest = next((figure.word for figure in late if figure.name == "last"), "")
            yield from _compare([moment.values for moment in recent], mine, busiest)

    def _transfers(self) -> Iterator[JobFigure]:
        """Yield MB/s written while devices waited for data, and the share of writes in all bytes."""
        waited = [moment.jobs[self.key].waited.get("data", 0) for moment in self.moments]
        gaps = [gap for gap, times in zip(pairwise(self.moments), pairwise(waited), strict=True) if times[0] < times[1]]
        seconds = sum(now.at - before.at for before, now in gaps) / SECOND
        first, own = (
            dict(chain.from_iterable(moment.jobs[self.key].transfers.items() for moment in order))
            for order in (self.moments[::-1], self.moments)
        )
        if own:
            read, written = (float(sum(own[pid][n] - first[pid][n] for pid in own)) for n in (0, 1))
        elif len(self.moments[-1].jobs) == 1:  # with several jobs, another one may be writing
            read, written = (sum(_rise(*gap, names) for gap in gaps) for names in (READ, WRITTEN))
        else:
            return
        if seconds and read + written:
            yield JobFigure("written", written / seconds / 1e6)
            yield JobFigure("written.share", written / (read + written))

    def _rises(self, mine: set[DeviceKey]) -> Iterator[JobFigure]:
        """Yield the increase of each counter of RISES, for the device, port or server where it is largest."""
        begun = dict(chain.from_iterable(moment.values.items() for moment in reversed(self.moments)))
        ended = dict(chain.from_iterable(moment.values.items() for moment in self.moments))
        rises = {series: max(0.0, value - begun[series]) for series, value in ended.items()}
        worst = {name: _worst(name, rises, mine) for name in OF_DEVICES} if len(mine) >= LEAST_PEERS else {}
        most: dict[str, JobFigure] = {}
        for (name, dims), rise in rises.items():
            number, place = rise, device_of(dims)[:1]
            if name == LAUNCHED and dims.get("job") == self.key[-1]:
                yield JobFigure("collectives", rise)
            if name == UNANSWERED:
                number = self.moments[-1].values.get((name, dims), 0.0)
            figure = f"{name}.{dims['direction']}" if "direction" in dims else name
            is_mine = (not place or place in mine) and (name not in worst or place == worst[name])
            if name in NAMED and is_mine and number > most.get(figure, JobFigure(figure, 0.0)).number:
                words = (dims[key] for key in ("device", "port", "source") if key in dims)
                most[figure] = JobFigure(figure, number, dims.get("gpu") or " ".join(words))
        yield from most.values()


def of_ranks(reports: Sequence[JobCollectives]) -> Iterator[JobFigure]:
    """Yield the ranks of a job that NCCL reports as behind, missing or failed, and those that PyTorch's dumps name."""
    for name in ("absent", "behind", "missing", "failed") if reports else ():
        total, word = 0, ""
        for report in reports:
            ranks: Sequence[Rank] = getattr(report, name)
            number: int = getattr(report, f"{name}_count", len(ranks))
            total += number
            if number:
                dead = f" ({report.dead} dead)" if report.dead else ""
                rest = (f" and {number - MOST} more" if number > MOST else "") + dead
                word = ", ".join(map(_name, ranks[:MOST])) + rest or f"{number} ranks"
                yield JobFigure("lag", 0.0, report.lag)
        yield JobFigure(f"ranks.{name}", total, word)


def _name(rank: Rank) -> str:
    who = f"rank {rank.rank}" if rank.rank >= 0 else "a rank"
    return f"{who} ({rank.host} gpu {rank.gpu}, process {rank.pid})" if rank.host else who


def _grown(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {word: now[word] - before.get(word, 0) for word in now}


def _shares(first: JobMoment, last: JobMoment) -> Iterator[JobFigure]:
    """Yield the shares of states, causes and waiting kernels in the job's GPU time."""
    spent, idle = _grown(first.times, last.times), _grown(first.idle, last.idle)
    busy = _grown(first.busy, last.busy)
    if (total := sum(spent.values())) <= 0:
        return
    yield from (JobFigure(f"share.{state}", time / total) for state, time in spent.items())
    yield from (JobFigure(f"idle.{cause}", time / total) for cause, time in idle.items())
    waiting = busy.get("waiting", 0)
    if busy.get("compute", 0) + waiting > 0:
        yield JobFigure("share.waiting", waiting / total)
    yield JobFigure("share.waits", (waiting + idle.get("network", 0) + idle.get("other", 0)) / total)


def _rise(before: Moment, now: Moment, names: Sequence[str]) -> float:
    series = [each for each in now.values if each[0] in names]
    return sum(max(0.0, now.values[each] - before.values.get(each, now.values[each])) for each in series)


def _compare(readings: Sequence[ValuesBySeries], mine: set[DeviceKey], busiest: str) -> Iterator[JobFigure]:
    """Yield the device with a clock far below its peers, the one throttled far more, and the one with less power."""
    names = CLOCKS, (THROTTLED,), ("gpu.temperature",), (POWER,)
    clocks, throttled, heat, power = (_gauges(readings, mine, *each) for each in names)
    if clocks:
        yield JobFigure("clocks", len(clocks))
    if (weak := lowest(power, 0.1)) is not None and weak[0][1] == busiest:
        yield JobFigure("weak", 1 - power[weak] / median(power.values()))
    if (slow := lowest(clocks, 0.05)) is not None:
        middle = median(clocks.values())
        words = f"{slow[0][1]} runs at {clocks[slow]:,.0f} MHz, its peers at {middle:,.0f} MHz"
        yield JobFigure("slow", 1 - clocks[slow] / middle, words)
    if (hot := _highest(throttled, 0.1)) is not None and (slow is None or hot == slow):
        middle = median(throttled.values())
        warm = f" at {heat[hot]:.0f} C" if hot in heat else ""
        words = f"{100 * throttled[hot]:.0f} % of the time{warm}, its peers {100 * middle:.0f} %"
        yield JobFigure("hot", throttled[hot] - middle, words)
        yield JobFigure("hot.gpu", 0.0, hot[0][1])


def _gauges(readings: Sequence[ValuesBySeries], mine: set[DeviceKey], *names: str) -> dict[DeviceKey, float]:
    """Return the mean of a gauge by device, for the first of `names` that any device has."""
    for name in names:
        by_place: dict[DeviceKey, list[float]] = {}
        for values in readings:
            for (metric, dims), value in values.items():
                if metric == name and (place := device_of(dims)) in mine:
                    by_place.setdefault(place, []).append(value)
        if by_place:
            return {place: sum(each) / len(each) for place, each in by_place.items() if len(each) >= LEAST_READINGS}
    return {}


def _worst(name: str, rises: ValuesBySeries, mine: set[DeviceKey]) -> DeviceKey | None:
    """Return the one device of a job whose counter grew far more than its peers'; None if there is none."""
    by_place = dict.fromkeys(mine, 0.0)
    for (metric, dims), rise in rises.items():
        if metric == name and (place := device_of(dims)[:1]) in mine:
            by_place[place] -= rise
    return lowest(by_place, 0.0)


def _late(
    moments: Sequence[Mapping[DeviceKey, DeviceMoment]], time: int, shares: Mapping[str, JobFigure]
) -> Iterator[JobFigure]:
    """Yield the device that all others wait for, and the one that gets its data late, with a sign of the cause."""
    first, last = moments[0], moments[-1]
    spent = {place: last[place].allocated - first[place].allocated for place in last.keys() & first.keys()}
    spent = {place: allocated for place, allocated in spent.items() if allocated > 0}
    late = {place: (last[place].late - first[place].late) / allocated for place, allocated in spent.items()}
    waits = {place: (last[place].waiting - first[place].waiting) / allocated for place, allocated in spent.items()}
    if (busiest := lowest(waits, 0.25)) is not None:
        yield JobFigure("last", median(waits.values()) - waits[busiest], busiest[0][1])
    if (latest := _highest(late, 0.1)) is None:
        return
    words = f"{latest[0][1]} (process {last[latest].pid})"
    yield JobFigure("rank.late", late[latest] - median(late.values()), words)
    blocked = {place: sum(place in now and now[place].blocked for now in moments) / len(moments) for place in spent}
    delays = {place: SECOND * (last[place].delay - first[place].delay) / time for place in spent}
    for name, each in (("rank.files", blocked), ("rank.cpu", delays)):
        if _highest(each, 0.1) == latest:
            yield JobFigure(name, each[latest] - median(each.values()))
    for name in ("idle.data", "idle.host"):  # a wait of this device alone is not a second cause
        if name in shares and shares[name].number <= 2 * late[latest] / len(spent):
            yield JobFigure(name, 0.0)


def _highest(shares: Mapping[DeviceKey, float], least: float) -> DeviceKey | None:
    return lowest({place: 1 - share for place, share in shares.items()}, least)


def median(values: Iterable[float]) -> float:
    """Return the middle of some values; the module `statistics` would take 0.4 MB."""
    ordered = sorted(values)
    return (ordered[len(ordered) // 2] + ordered[~(len(ordered) // 2)]) / 2


def lowest(values: Mapping[DeviceKey, float], least: float) -> DeviceKey | None:
    """Return the one device far below the others, by `least` of their median and by SPREAD; None if there is none."""
    if len(values) < LEAST_PEERS:
        return None
    middle = median(values.values())
    spread = median(abs(value - middle) for value in values.values())
    far = [place for place, value in values.items() if middle - value > max(least * middle, SPREAD * spread)]
    return min(far, key=lambda place: values[place], default=None)
