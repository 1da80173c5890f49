"""
Plugins that have every method of their bases; test_public_types.py checks their types and runs them.

Every name that `chipwatch` exports is used here, with its type asserted where mypy could take it for Any.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_type

from chipwatch import (
    TRUSTED_CLOCK,
    Advisor,
    Alarm,
    AlarmRule,
    Allocation,
    BadBatch,
    Board,
    Chart,
    Collector,
    Cost,
    Counters,
    Datapoint,
    Device,
    DeviceActivity,
    DeviceFacts,
    DeviceProcess,
    Dimensions,
    Given,
    GroupUse,
    InputEnded,
    JobFacts,
    Kind,
    Level,
    Limits,
    Load,
    MachineIdentity,
    Metric,
    Needs,
    Owner,
    PartlyCollected,
    Processor,
    ProcessUse,
    Quota,
    Refused,
    Rejected,
    Retryable,
    RiseEvidence,
    Scope,
    SentMetric,
    Sink,
    SinkClosed,
    Summary,
    Tariff,
    Terms,
    Unavailable,
    Unlisted,
    Watch,
    check_collector,
    check_sink,
    counter,
    gauge,
    watch,
)

POWER = gauge("rich.power", "W", "Power of a device.", Level.BASIC, ("device",))
ENERGY = counter("rich.energy", "J", "Energy of a device.", Level.DETAILED, ("device",))
SENT = counter("rich.sent", "By", "Bytes sent by all ports.")
FOLLOWED = gauge("rich.followed", "{process}", "Processes on devices.")
LOAD = gauge("rich.load", "1", "Power of all devices, in watts, for each device.")
DEVICE = Dimensions(device="0")


class RichCollector(Collector):
    """A collector of accelerators with all that a collector may have."""

    metrics: Sequence[Metric] = (POWER, ENERGY, SENT)
    needs = Needs(level=True, state=True, events={"rich.sent"}, always={"rich.energy"})
    knows = (Device, DeviceProcess, DeviceActivity, MachineIdentity, RiseEvidence, JobFacts)

    @dataclass(frozen=True, slots=True)
    class Config:
        """Options."""

        watts: float = 250.0
        """Power of the device."""
        clean: bool = True
        """The input ends between two records."""
        readings: int | None = None
        """Readings after which the input ends."""

    def __init__(self, config: Config) -> None:
        self._config, self._counters, self._readings = config, Counters(), 0
        self._given = Given()

    def waits(self) -> bool:
        return True

    def yields_others(self) -> bool:
        return False

    def open(self, given: Given) -> None:
        self._given = given
        if self._config.watts < 0:
            raise Unavailable("no device at /dev/rich", is_counted=True)

    def collect(self, at: int) -> Iterator[Datapoint]:
        self._readings += 1
        yield POWER.point(at, self._config.watts, DEVICE)
        yield self._counters.total(SENT, at, {"0": 7, "1": 9})
        if self._given.level >= Level.DETAILED:
            yield assert_type(self._counters.point(ENERGY, at, 1.0, DEVICE), Datapoint)
        if self._readings == self._config.readings:
            raise InputEnded("the recording ends", clean=self._config.clean)
        if self._config.watts > 1000:
            raise PartlyCollected(["device 1: no answer"])

    def describe(self) -> str:
        return "1 device"

    def close(self) -> None:
        self._counters.restart()

    def facts(self) -> Iterator[object]:
        yield assert_type(Device(DEVICE, model="Rich 1", ids=("0",)), Device)
        yield assert_type(DeviceProcess(DEVICE, 1, memory=2.0, utilization=50.0), DeviceProcess)
        if self._config.watts > 1000:
            yield assert_type(Unlisted("the driver lists not all"), Unlisted)
        yield assert_type(DeviceActivity(DEVICE, active=0.5, basis="counter", energy=3.0), DeviceActivity)
        yield assert_type(MachineIdentity({}), MachineIdentity)
        yield assert_type(RiseEvidence(DEVICE, 1, "the log says so"), RiseEvidence)
        owner = assert_type(Owner("slurm", "17", user="ada"), Owner)
        uses = [assert_type(GroupUse(owner, cpu=1.0), GroupUse)]
        allocations = [assert_type(Allocation("0", owner, "environment"), Allocation)]
        processes = {1: assert_type(ProcessUse(1.0, {}), ProcessUse)}
        yield assert_type(JobFacts(1, {1: owner}, allocations, uses, processes=processes), JobFacts)

    def silent(self) -> Mapping[Dimensions, str]:
        return {DEVICE: "it does not answer"}

    def asking(self) -> str:
        return ""

    def rests(self) -> float:
        return 10.0


class RichFollower(Collector):
    """A collector that follows others."""

    metrics: Sequence[Metric] = (FOLLOWED,)
    needs = Needs(pids=True, devices=Level.ALL)

    @dataclass(frozen=True, slots=True)
    class Config:
        """No options."""

    def __init__(self, config: Config) -> None:
        del config
        self._pids: Collection[int] = ()

    def follow(self, pids: Collection[int], idle: Collection[int]) -> None:
        self._pids = {*pids, *idle}

    def collect(self, at: int) -> Iterator[Datapoint]:
        yield FOLLOWED.point(at, len(self._pids))


class RichProcessor(Processor):
    """A processor with all that a processor may have."""

    metrics: Sequence[Metric] = (LOAD,)
    needs = Needs(facts=True, state=True, records=True)

    @dataclass(frozen=True, slots=True)
    class Config:
        """No options."""

    def __init__(self, config: Config) -> None:
        del config
        self._given, self._ticks = Given(), 0

    def open(self, given: Given) -> None:
        self._given = given

    def derive(self, tick: Sequence[Datapoint], at: int, facts: Sequence[object]) -> Iterator[Datapoint]:
        self._ticks += 1
        self._given.note("17", "it is slow", False)  # by position only
        assert_type(self._given.append([{"tick": self._ticks}]), bool)
        names = {name for fact in facts if isinstance(fact, DeviceFacts) for name in fact.names}
        watts = [point.value for point in tick if point.metric is POWER]
        if names and watts:
            yield LOAD.point(at, sum(watts) / len(names))

    def describe(self) -> str:
        return f"{self._ticks} ticks"

    def job_dims(self) -> Sequence[str]:
        return ()

    def owners_of(self, device: Dimensions) -> Sequence[Owner]:
        return [Owner("user", "ada")] if device["gpu"] == "0" else ()

    def answer(self) -> Mapping[str, int]:
        return {"ticks": self._ticks}

    def saved(self) -> bytes | None:
        return str(self._ticks).encode()

    def restore(self, saved: bytes) -> None:
        self._ticks = int(saved)


class RichSink(Sink):
    """A sink with all that a sink may have: appends lines to a file."""

    needs = Needs(state=True, words=("hostname",), libraries=("json",))
    limits = Limits(max_points=100, max_bytes=10_000, window=0, flush=0, durable=False)

    @dataclass(frozen=True, slots=True)
    class Config:
        """Options."""

        path: Path
        """The file."""
        broken: str = ""
        """The error that a write raises."""

    def __init__(self, config: Config) -> None:
        self._config, self._writes = config, 0

    def open(self) -> None:
        if not self._config.path.parent.is_dir():
            raise Refused(f"{self._config.path.parent} is no folder")

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        errors: dict[str, Exception] = {
            "wire": Retryable("no route", after=1.0),
            "point": BadBatch("one of them"),
            "reader": SinkClosed("gone"),
        }
        if self._config.broken:
            raise errors[self._config.broken]
        now = assert_type(TRUSTED_CLOCK(), int | None)
        late = [
            point for point in batch if now is not None and point.at > now + 10**18
        ]  # 30 years: points of a test are of 2027
        with self._config.path.open("a", encoding="utf-8") as file:
            file.writelines(f"{self._line(point)}\n" for point in batch if point not in late)
        return [assert_type(Rejected(point, "too late"), Rejected) for point in late]

    def waits(self) -> bool:
        return True

    def describe(self) -> str:
        return f"appends to {self._config.path}"

    def close(self) -> None:
        self._writes = 0

    def destination(self) -> Mapping[str, str]:
        return {"path": str(self._config.path)}

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        return "no names with a space" if " " in metric.name or len(dims) > 50 else None

    def size(self, point: Datapoint) -> int:
        return len(self._line(point)) + 1

    def prepare(self, points: Sequence[Datapoint]) -> bool:
        self._writes += 1
        return not points

    def saved(self) -> bytes | None:
        return str(self._writes).encode()

    def restore(self, saved: bytes) -> None:
        self._writes = int(saved)

    def check_start(self, dims: Collection[str]) -> str | None:
        return "more than 50 dimensions" if len(dims) > 50 else None

    def find(self, dims: Sequence[str]) -> str:
        return f"cat {self._config.path}, where {', '.join(dims)} stand"

    def status(self) -> str:
        return f"{self._writes} writes"

    def _line(self, point: Datapoint) -> str:
        kind = assert_type(point.metric.kind, Kind)
        summary = assert_type(point.summary, Summary | None)
        return f"{point.metric.name} {kind} {summary.maximum if summary else point.value} {dict(point.dims)}"


class RichAdvisor(Advisor):
    """An advisor with all that an advisor may have."""

    tariff = Tariff("Rich Metrics", charges_for="bytes")
    board = Board(max_lines=20, program="richboard", by_name=True)

    def __init__(self, config: RichSink.Config, terms: Terms) -> None:
        self._path, self._terms = config.path, terms

    def costs(self, load: Load) -> Iterable[Cost]:
        return [
            assert_type(Cost("GB of lines", (load.bytes or 0) / 1e9, self._terms.price_per_gb or 0.5, unit="GB"), Cost)
        ]

    def quotas(self, load: Load) -> Iterable[Quota]:
        return [assert_type(Quota("series", 1000, load.series, "a file may have", shared=True), Quota)]

    def notes(self, load: Load) -> Iterable[str]:
        return [f"The alarms look at {load.watched} series."]

    def beside(self, load: Load) -> Iterable[str]:
        return [f"Another way sends {load.series} series, too."]

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        return sum(len(point.metric.name) for point in window)

    def dashboard(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str]:
        lines = [assert_type(sent, SentMetric).name for chart in charts for sent in chart.series]
        return [f"{scope.prefix}: {' '.join(lines)}"]

    def omissions(self, charts: Sequence[Chart]) -> Iterable[str]:
        return [f"{len(charts)} graphs"]

    def alarms(self, alarms: Sequence[Alarm], scope: Scope) -> Iterable[str]:
        return [f"{scope.prefix} {assert_type(alarm.rule, AlarmRule).key} {alarm.threshold:g}" for alarm in alarms]

    def records(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str]:
        return [f"{scope.prefix}: {len(charts)}"]


def watched(path: Path) -> str:
    """Return the summary of a watch that is not started."""
    run = assert_type(watch(0.5, collectors="cpu", sinks=["rich"], dims={"team": "ml"}, record=path), Watch)
    with_block: Callable[[], Watch] = run.__enter__
    report: Callable[[str], None] = run.report
    del with_block, report
    assert assert_type(run.path, Path) == path.absolute()
    return assert_type(run.summary(), str)


def check_them(path: Path) -> list[type]:
    """Return the classes, checked."""
    collector, processor = RichCollector(RichCollector.Config()), RichProcessor(RichProcessor.Config())
    sink = RichSink(RichSink.Config(path))
    points = assert_type(check_collector(collector, given=Given(level=Level.ALL)), list[Datapoint])
    assert assert_type(check_collector(RichFollower(RichFollower.Config())), list[Datapoint])
    assert watched(path) == "chipwatch: nothing is watched: it was not started"
    assert not assert_type(check_sink(sink, points[:2]), Sequence[Rejected])
    return [type(collector), RichFollower, type(processor), type(sink), RichAdvisor]
