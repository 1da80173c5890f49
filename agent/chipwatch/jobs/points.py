"""Makes datapoints of the accounts of jobs and devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.owner import Owner
from chipwatch.jobs import metrics
from chipwatch.jobs.accounting import SECOND, STALLED
from chipwatch.jobs.device import JobDevice
from chipwatch.jobs.device_key import DeviceKey
from chipwatch.jobs.ledger import ENERGY, JOULE, OTHER, STATE, Account, JobLedger, sums_of

JobSeries = tuple[Account, dict[str, float], list[float]]
"""
The account of a job, with the devices that it holds in this tick: source of the allocation -> number of devices, of
which a partition counts by its slices; and for each device the share of the time in which kernels ran.
"""


class JobPoints:
    """Yields the datapoints of a tick; keeps the states that were counted before, to send them as 0."""

    def __init__(self, ledger: JobLedger, *, with_user: bool) -> None:
        """`with_user`: the user is a dimension of each job."""
        self._ledger, self._with_user = ledger, with_user
        self.level = Level.ALL
        """The highest level of metrics that anyone wants."""
        self._counts: dict[Dimensions, float] = {}
        """The numbers of accelerators that were sent; a state that no device has any more is sent as 0."""

    def of_jobs(self, devices: Mapping[DeviceKey, JobDevice], ended: Sequence[Account], at: int) -> Iterator[Datapoint]:
        """Yield the points of all jobs that hold a device, and the last points of jobs that ended."""
        families: dict[int, JobSeries] = {id(past): (past, {}, []) for past in ended}
        for device in devices.values():
            shares: dict[Dimensions, float] = {}
            for holder in device.held.values():
                account = self._ledger.account(holder.owner, at)
                _, gpus, work = families.setdefault(id(account), (account, {}, []))
                gpus[holder.source] = gpus.get(holder.source, 0.0) + device.activity.slices
                if device.work is not None and account.owner is not OTHER:
                    work.append(device.work)
                if self.level >= metrics.HELD.level:
                    owner = OTHER if account.owner is OTHER else holder.owner
                    dims = _dims_of(owner, self._with_user, device.dims)
                    shares[dims] = shares.get(dims, 0.0) + holder.share
            for dims, share in shares.items():
                yield metrics.HELD.point(at, share, dims)
            if device.sharing and self.level >= metrics.JOBS.level:
                yield metrics.JOBS.point(at, len(device.held), _with(device.dims, f"basis {device.sharing}"))
        for family in families.values():
            yield from self._family(family, at)

    def _family(self, series: JobSeries, at: int) -> Iterator[Datapoint]:
        (held, gpus, work), account = series, self._ledger.to_send(series[0])
        dims = _dims_of(held.owner, self._with_user)
        for source, count in gpus.items():
            yield metrics.GPUS.point(at, count, _with(dims, f"source {source}"))
        for key, spent in account.sums.items():
            metric = metrics.TIMES.get(key.partition(" ")[0])
            if metric and self.level >= metric.level:
                yield metric.point(at, spent / SECOND, _with(dims, key), start_time=account.starts[key])
        if len(work) > 1 and self.level >= metrics.IMBALANCE.level:
            yield metrics.IMBALANCE.point(at, 100 * (max(work) - min(work)), dims)
        if account.memory:
            yield metrics.MEMORY.point(at, account.memory, dims)
        if account.sums and (self.level >= metrics.ENERGY.level or self._ledger.price is not None):
            start = min(account.starts.values())
            if self.level >= metrics.ENERGY.level:
                yield metrics.ENERGY.point(
                    at, sum(sums_of(account.sums, ENERGY).values()) / JOULE, dims, start_time=start
                )
            if (cost := self._ledger.cost(sum(sums_of(account.sums, STATE).values()) / SECOND)) is not None:
                yield metrics.COST.point(at, cost, dims, start_time=start)

    def of_devices(self, devices: Mapping[DeviceKey, JobDevice], at: int) -> Iterator[Datapoint]:
        """Yield the number of accelerators by state, and the idle and busy time of GPUs."""
        if self.level < metrics.COUNT.level:
            return
        self._counts = dict.fromkeys(self._counts, 0.0) | counted(devices)
        for dims, count in self._counts.items():
            yield metrics.COUNT.point(at, count, dims)
        for place, device in devices.items():
            spent = device.spent
            times = (metrics.IDLE, "cause", spent.idle), (metrics.BUSY, "kind", spent.busy)
            energy = metrics.SPENT, "state", spent.energy
            for metric, key, by_word in (*times, energy) if place[0][0] == "gpu" else ():
                for word, amount in by_word.items():
                    start = spent.starts.setdefault(key + word, self._ledger.clocks.ticked)
                    yield metric.point(at, amount / SECOND, _with(device.dims, f"{key} {word}"), start_time=start)


@lru_cache(maxsize=20_000)
def _dims_of(owner: Owner, with_user: bool, device: Dimensions | None = None) -> Dimensions:  # noqa: FBT001  # keys
    dims = owner.dims(user=with_user, container=device is not None)
    return dims | device if device else dims


@lru_cache(maxsize=20_000)
def _with(dims: Dimensions, pair: str) -> Dimensions:
    """Return `dims` with one more, which `pair` names as in `state busy`."""
    return dims | dict([pair.split(" ", 1)])


def counted(devices: Mapping[DeviceKey, JobDevice]) -> dict[Dimensions, float]:
    """Return the number of accelerators by state and cause, as dimensions; partitions count by their slices."""
    counts, wholes = defaultdict[Dimensions, float](float), defaultdict[DeviceKey, float](float)
    for place, device in devices.items():
        wholes[place[:1]] += device.activity.slices
    for place, device in devices.items():
        counts[count_dims(device.state, device.cause)] += device.activity.slices / (wholes[place[:1]] or 1.0)
    return counts


@lru_cache
def count_dims(state: str, cause: str) -> Dimensions:
    """Return the dimensions of a number of accelerators: the state, and for stalled ones the cause if it is known."""
    has_cause = state == STALLED and cause not in ("", "other")
    return Dimensions(state=state, cause=cause) if has_cause else Dimensions(state=state)
