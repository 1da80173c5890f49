"""Facts as collectors give them, made by hand."""

from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch.contract.facts import DeviceActivity, DeviceFacts, DeviceProcess
from chipwatch.contract.owner import GroupUse, JobFacts, Owner, ProcessUse
from chipwatch.jobs.processor import JobsProcessor

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
TICK = 5.0


def job(number, **more):
    """Return the owner of a Slurm job."""
    return Owner("slurm", str(number), **more)


class Machine:
    """A processor that is given facts tick by tick."""

    def __init__(self, **config):
        self.processor = JobsProcessor(JobsProcessor.Config(**config))
        self.moment, self.at = 1000 * SECOND, START
        self.totals, self.points = {}, []

    def tick(self, processes, activity, *, owners=(), allocations=(), uses=(), points=(), names=None, seconds=TICK,
             used=(), stopped=(), collectives=(), host=(), blocked=(), delays=(), transfers=(), followed=None, missing=()):  # fmt: skip
        """
        Derive from processes (gpu, pid[, memory]), activity (gpu -> options) and owners (pid -> owner).

        `host`: more points, each a metric's name, its dimensions and a value.
        """
        self.moment += int(seconds * SECOND)
        self.at += int(seconds * SECOND)
        listed = None if processes is None else [DeviceProcess(dims_of(gpu), *rest) for gpu, *rest in processes]
        found = [DeviceActivity(dims_of(gpu), **options) for gpu, options in activity.items()]
        known = {str(gpu): dims_of(gpu) for gpu in activity} if names is None else names
        jobs = JobFacts(
            self.moment, dict(owners), [*allocations], [*uses], blocked=frozenset(blocked), missing=dict(missing),
            processes=dict(used), stopped=frozenset(stopped), delays=dict(delays), transfers=dict(transfers),
            followed=followed,
        )  # fmt: skip
        self.facts = [DeviceFacts(self.moment, listed, known, found), jobs, *collectives]
        tick = [gauge(name, "%", "").point(self.at, value, dims_of(gpu)) for gpu, name, value in points]
        tick += [gauge(name, "1", "").point(self.at, value, Dimensions(dims)) for name, dims, value in host]
        self.points = [*self.processor.derive(tick, self.at, self.facts)]
        return self.points

    def use(self, owner, seconds=TICK, **rates):
        """Return the usage of a job's cgroup that grew by rates since the last call."""
        total = self.totals.setdefault(
            owner, {"cpu": 0.0, "io_some": 0.0, "cpu_some": 0.0, "memory_full": 0.0, "swapped": 0}
        )
        for name, rate in (
            ("cpu", rates.get("cpu", 0)),
            ("io_some", rates.get("io", 0)),
            ("cpu_some", rates.get("crowded", 0)),
            ("memory_full", rates.get("memory", 0)),
        ):
            total[name] += rate * seconds
        total["swapped"] += rates.get("swap", 0)
        total["periods"] = total.get("periods", 0) + 50
        total["throttled"] = total.get("throttled", 0) + round(50 * rates.get("quota", 0))
        return GroupUse(owner, **total, **{key: rates[key] for key in ("cores", "blocked") if key in rates})

    def process(self, pid, seconds=TICK, *, own=0.0, child=0.0, waits=False, children=1, lacks=0.0, bound=0,
                are_all_bound=False, **_):  # fmt: skip
        """Return what a process and its children did, whose CPU time and waits grew by rates since the last call."""
        total = self.totals.setdefault(pid, [0.0, 0.0, 0.0])
        total[:] = (before + rate * seconds for before, rate in zip(total, (own, child, lacks), strict=True))
        keys = [(pid + 1000 * n, 1.0) for n in range(1, children + 1)]
        return ProcessUse(
            total[0], dict.fromkeys(keys, total[1]), waits, dict.fromkeys(keys, total[2]), bound, are_all_bound
        )

    def values(self, name):
        """Return the values of a metric by its dimensions, without the names of these."""
        return {tuple(point.dims.values()): point.value for point in self.points if point.metric.name == name}


def dims_of(gpu):
    """Return the dimensions of GPU 0, or of instance 0.1."""
    number, _, part = str(gpu).partition(".")
    return Dimensions(gpu=number, mig=part) if part else Dimensions(gpu=number)
