"""`agent plan`: what a configuration will send from this machine, and what that costs, before anything is sent."""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, get_args

from agent.commands.discovery import Discovery, discover
from agent.commands.plan.prices import Line, Prices, Usage, VolumePrices, Wishes, bill, find_prices, read_prices
from agent.config import plugins
from agent.config.load import Config, LevelName, plugin_config, sink_options, sink_type
from agent.datapoint import Datapoint, Dimensions, Kind
from agent.naming import rename
from agent.pipeline.build import (
    build_collectors,
    build_filter,
    build_plugin,
    build_processors,
    build_sinks,
    declared,
    faults,
    window_length,
)
from agent.pipeline.preflight import Fault
from agent.pipeline.window import Window
from agent.sink import Sink

MONTH: Final = 730 * 3600
"""Seconds of a month, as AWS's own calculator has it."""
GB: Final = 1e9
PER_HOST: Final = ("instance_id", "hostname", "ecs_task", "k8s_node", "k8s_pod", "slurm_rank", "run_id")
"""Words of --common-dims whose value no two hosts share: with one of them each host has series of its own."""
PASSING: Final = ("ecs_task", "k8s_pod", "slurm_job", "run_id")
"""Words whose value is new at each start."""
WINDOWS: Final = (10.0, 60.0, 300.0)
"""Windows that a plan compares with the one configured."""
MOST_SAMPLES: Final = 600
"""Samples of a series that stand for a window when its bytes are counted."""
SAMPLE: Final = 1000
"""Series that stand for all when the bytes of a point are counted."""
SOME_TIME: Final = 1_800_000_000 * 10**9
"""When that window is (ns since the epoch)."""


class Cadence(NamedTuple):
    """When a sink is sent what, in seconds."""

    interval: float
    window: float
    flush: float

    @property
    def step(self) -> float:
        """From one point of a series to the next."""
        return max(self.window, self.interval)

    @property
    def period(self) -> float:
        """From one sending to the next."""
        return max(self.flush, self.step)


@dataclass(frozen=True, slots=True)
class Choice:
    """What one way to send comes to, for all hosts and a month."""

    flags: str
    now: bool
    series: int
    points: float
    requests: float
    requests_per_second: float
    gigabytes: float | None
    mebibytes: float | None
    """That the points count as, where bytes are what is charged."""
    bill: tuple[Line, ...]
    dollars: float | None


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What goes to one sink."""

    sink: str
    kind: str
    """`priced`, `free`, or `unknown` where nothing is known of what it costs."""
    level: str
    interval: float
    window: float
    flush: float
    period: float
    """Seconds from one sending to the next: `flush`, or the window where that is longer."""
    spacing: float
    """Seconds that two points of a series must be apart; 0: any."""
    max_points: int
    max_series: int | None
    metrics: dict[str, int]
    """Name -> series, on this machine."""
    series: int
    """Of `metrics`, those that max_series lets through."""
    rejected: tuple[str, ...]
    """What the sink will never take, a sentence each."""
    words: dict[str, str]
    """Dimension of the machine -> `host` where each host has a value of its own, `shared` where hosts share it."""
    requests_per_period: int
    """Of one host, at each sending."""
    prices: Prices | VolumePrices | None
    now: Choice
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes where, from how many hosts like this one."""

    hosts: int
    month_seconds: int
    collectors: dict[str, int]
    absent: dict[str, str]
    failed: dict[str, str]
    sinks: tuple[SinkPlan, ...]


def make(config: Config, wishes: Wishes) -> Plan:
    """Return the plan for `config`; no network is asked. Raise ConfigError or NotLoaded."""
    sinks = build_sinks(config)
    metrics = declared(build_collectors(config), build_processors(config))
    planners = [
        _Planner(name, sink, config, wishes, faults(name, sink, config, metrics)) for name, sink in sinks.items()
    ]
    machine = discover(config, sinks)
    done = tuple(planner.plan(machine) for planner in planners)
    return Plan(wishes.hosts, MONTH, machine.series, machine.absent, machine.failed, done)


class _Planner:
    """Works out one sink's share."""

    def __init__(self, name: str, sink: Sink, config: Config, wishes: Wishes, found: Sequence[Fault]) -> None:
        self._name, self._sink, self._config, self._wishes, self._faults = name, sink, config, wishes, found
        self._options = sink_options(name, config)
        limits = sink.limits
        flush = limits.flush if self._options.flush is None else self._options.flush
        assert config.interval is not None
        self._cadence = Cadence(config.interval, window_length(name, sink, config), flush)
        self._most = limits.max_series if self._options.max_series is None else self._options.max_series
        own = plugin_config(type(sink), "sinks", name, config)
        kind = sink_type(name, config)
        self._emf = kind == "stdout" and own.format == "emf"
        book = read_prices()
        key = "cloudwatch" if self._emf else kind
        region = getattr(own, "region", None) or config.region
        region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
        self._prices = find_prices(book, key, region, wishes)
        self._kind = "priced" if self._prices else "free" if key in book else "unknown"
        self._by_bytes = self._prices if isinstance(self._prices, VolumePrices) else None
        self._words = {word: "host" if word in PER_HOST else "shared" for word in (*config.common_dims, *config.dims)}
        self._dims = Dimensions(dict.fromkeys(config.common_dims, "x" * 20), **config.dims)
        self._machine = Discovery([], [], {}, {}, {})

    def plan(self, machine: Discovery) -> SinkPlan:
        """Return the plan for what `machine` gave."""
        self._machine = machine
        level, c = self._options.level or self._config.level, self._cadence
        wanted = self._wanted(level)
        metrics = Counter(point.metric.name for point in wanted)
        return SinkPlan(
            sink=self._name,
            kind=self._kind,
            level=level,
            interval=c.interval,
            window=c.window,
            flush=c.flush,
            period=c.period,
            spacing=self._sink.limits.spacing,
            max_points=self._sink.limits.max_points,
            max_series=self._most or None,
            metrics=dict(sorted(metrics.items())),
            series=self._admitted(len(wanted)),
            rejected=tuple(fault.text for fault in self._faults),
            words=self._words,
            requests_per_period=self._requests(wanted, c),
            prices=self._prices,
            now=self._choice("as configured", now=True),
            choices=tuple(self._choices(level)) if self._kind != "free" else (),
        )

    def _choices(self, level: LevelName) -> Iterator[Choice]:
        """Yield what each other level, window and word would change; nothing that the far side would refuse."""
        for other in get_args(LevelName):
            yield self._choice(f"--level {other}", level=other, now=other == level)
        c, spacing = self._cadence, self._sink.limits.spacing
        for window in sorted({*WINDOWS, c.window, *([2 * c.window] if self._by_bytes else [])} - {0.0}):
            if window >= max(c.interval, spacing):
                yield self._choice(f"--window {window:g}", cadence=c._replace(window=window), now=window == c.window)
        if spacing <= 1:
            yield self._quick()
        if not self._by_bytes:
            yield from self._other_words()

    def _quick(self) -> Choice:
        """Return what points of a second would come to."""
        quick = dataclasses.replace(self._config, high_resolution_metrics=True, interval=1.0)
        flush = self._options.flush
        if flush is None:
            flush = build_plugin(plugins.SINKS, self._name, quick).limits.flush
        cadence = Cadence(1.0, 1.0, flush)
        return self._choice("--high-resolution-metrics", cadence=cadence, now=cadence == self._cadence)

    def _other_words(self) -> Iterator[Choice]:
        """Yield what each word less would change, or one that tells hosts apart."""
        hosts = [word for word, kind in self._words.items() if kind == "host"]
        for word in self._config.common_dims:
            yield self._choice(f"--common-dims without {word}", apart=any(other != word for other in hosts))
        if not hosts:
            yield self._choice("--common-dims ...,instance_id", apart=True)

    def _wanted(self, level: LevelName) -> list[Datapoint]:
        options = dataclasses.replace(self._options, level=level)
        chosen = build_filter(options, self._sink.limits, self._config)
        wanted = [point for point in self._machine.points if chosen.wants(point.metric)]
        copies = rename.copier(self._config.names)
        return [*wanted, *copies(wanted)] if copies else wanted

    def _admitted(self, series: int) -> int:
        return min(series, self._most) if self._most else series

    def _choice(
        self,
        flags: str,
        *,
        level: LevelName | None = None,
        cadence: Cadence | None = None,
        apart: bool | None = None,
        now: bool = False,
    ) -> Choice:
        """Return what comes of another level, cadence or set of words."""
        wanted = self._wanted(level or self._options.level or self._config.level)
        c = cadence or self._cadence
        apart = self._by_bytes is not None or "host" in self._words.values() if apart is None else apart
        hosts, one_host = self._wishes.hosts, self._admitted(len(wanted))
        sends = hosts * self._requests(wanted, c)
        gigabytes = hosts * self._emf_bytes(wanted, c) * MONTH / c.step / GB if self._emf else None
        series = one_host * (hosts if apart else 1)
        usage = Usage(series, hosts * one_host * MONTH / c.step, sends * MONTH / c.period, gigabytes)
        lines = bill(self._prices, usage, free_tier=self._wishes.free_tier)
        return Choice(
            flags=flags,
            now=now,
            series=series,
            points=usage.points,
            requests=usage.requests,
            requests_per_second=sends / c.period,
            gigabytes=gigabytes,
            mebibytes=self._by_bytes.mebibytes(usage.points) if self._by_bytes else None,
            bill=lines,
            dollars=None if self._kind == "unknown" else round(sum(line.dollars for line in lines), 2),
        )

    def _requests(self, wanted: Sequence[Datapoint], c: Cadence) -> int:
        """Return the requests of one sending of one host."""
        limits = self._sink.limits
        series, windows, most = self._admitted(len(wanted)), c.period / c.step, limits.max_points
        if not series:
            return 0
        if limits.max_bytes is not None:
            points = self._windowed(wanted[:SAMPLE], c)
            size = sum(self._sink.size(point) for point in points) / max(1, len(points))
            most = max(1, min(most, int(limits.max_bytes / size))) if size else most
        if limits.one_per_series:
            return math.ceil(windows) * math.ceil(series / most)
        return math.ceil(series * windows / most)

    def _windowed(self, wanted: Sequence[Datapoint], c: Cadence) -> list[Datapoint]:
        """Return the datapoints of one window, each gauge with as many distinct values as it can have samples."""
        window = Window(c.window, born=0, increases=self._sink.limits.increases)
        length = int(c.window * 1e9) or 1
        start = (SOME_TIME // length + 1) * length
        asked = {(point.metric.name, point.dims) for point in wanted}
        before = [point for point in self._machine.before if (point.metric.name, point.dims) in asked]
        passed = window.add([point._replace(at=start - 1) for point in before], start - 1)
        for n in range(min(MOST_SAMPLES, max(1, int(c.window / c.interval)))):
            passed = window.add([_sample(point, start, n) for point in wanted], start + n)
        done = window.close() if c.window else passed
        return [point._replace(dims=self._dims | point.dims) for point in done]

    def _emf_bytes(self, wanted: Sequence[Datapoint], c: Cadence) -> int:
        """Return the bytes that one window of one host is in the embedded metric format: it is written to a file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "emf"
            tables = {**self._config.sinks, self._name: {**self._config.sinks.get(self._name, {}), "path": str(path)}}
            sink: Sink = build_plugin(plugins.SINKS, self._name, dataclasses.replace(self._config, sinks=tables))
            sink.open()
            sink.write(self._windowed(wanted, c) or [])
            sink.close()
            return path.stat().st_size


def _sample(point: Datapoint, start: int, n: int) -> Datapoint:
    value = point.value + n if point.metric.kind is Kind.GAUGE else point.value
    return point._replace(at=start + n, value=value)
