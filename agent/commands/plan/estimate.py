"""`agent plan`: what a configuration will send from this machine, and what that costs, before anything is sent."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, get_args

from agent.advice import MONTH, Advisor, Cost, Load, Quota, Terms
from agent.commands.advisors import advisor_of, asked
from agent.commands.discovery import Discovery, discover
from agent.config import plugins
from agent.config.instances import build_collectors, build_plugin, build_processors, build_sinks
from agent.config.load import Config, LevelName, sink_options
from agent.datapoint import Datapoint, Dimensions, Kind
from agent.identity.names import PER_HOST
from agent.naming import rename
from agent.pipeline.build import build_filter, declared, faults, window_length
from agent.pipeline.preflight import Fault
from agent.pipeline.window import Window
from agent.sink import Sink

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
    bytes: float | None
    """Where they are charged."""
    volume: float | None
    """What is charged where it is not series: see `unit`."""
    unit: str
    bill: tuple[Cost, ...]
    quotas: tuple[Quota, ...]
    dollars: float | None
    """None: not known."""


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
    service: str
    """Whose prices these are."""
    charges_for: str
    """`series` or `points`."""
    apart: str
    """Why each host has series of its own whatever the dimensions are; empty: the dimensions decide."""
    ended: str
    """What becomes of series that have ended."""
    notes: tuple[str, ...]
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


def make(config: Config, hosts: int = 1, terms: Terms = Terms()) -> Plan:  # noqa: B008  # a constant
    """Return the plan for `config`; no network is asked. Raise ConfigError or NotLoaded."""
    sinks = build_sinks(config)
    metrics = declared(build_collectors(config), build_processors(config))
    planners = [
        _Planner(name, sink, config, faults(name, sink, config, metrics), hosts=hosts, terms=terms)
        for name, sink in sinks.items()
    ]
    machine = discover(config, sinks)
    done = tuple(planner.plan(machine) for planner in planners)
    return Plan(hosts, MONTH, machine.series, machine.absent, machine.failed, done)


class _Planner:
    """Works out one sink's share."""

    def __init__(
        self, name: str, sink: Sink, config: Config, found: Sequence[Fault], *, hosts: int, terms: Terms
    ) -> None:
        self._name, self._sink, self._config, self._hosts, self._faults = name, sink, config, hosts, found
        self._advisor = advisor = advisor_of(name, config, terms)
        self._by_points = advisor is not None and advisor.charges_for == "points"
        self._options = sink_options(name, config)
        limits = sink.limits
        flush = limits.flush if self._options.flush is None else self._options.flush
        assert config.interval is not None
        self._cadence = Cadence(config.interval, window_length(name, sink, config), flush)
        self._most = limits.max_series if self._options.max_series is None else self._options.max_series
        self._words = {word: "host" if word in PER_HOST else "shared" for word in (*config.common_dims, *config.dims)}
        self._dims = Dimensions(dict.fromkeys(config.common_dims, "x" * 20), **config.dims)
        self._machine = Discovery([], [], {}, {}, {})

    def plan(self, machine: Discovery) -> SinkPlan:
        """Return the plan for what `machine` gave."""
        self._machine = machine
        level, c = self._options.level or self._config.level, self._cadence
        wanted = self._wanted(level)
        metrics = Counter(point.metric.name for point in wanted)
        now, advisor = self._choice("as configured", now=True), self._advisor
        kind = "unknown" if advisor is None else "priced" if now.bill else "free"
        return SinkPlan(
            sink=self._name,
            kind=kind,
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
            service=advisor.service if advisor else "",
            charges_for=advisor.charges_for if advisor else Advisor.charges_for,
            apart=advisor.apart if advisor else "",
            ended=advisor.ended if advisor else Advisor.ended,
            notes=tuple(advisor.notes()) if advisor else (),
            now=now,
            choices=tuple(self._choices(level)) if kind != "free" else (),
        )

    def _choices(self, level: LevelName) -> Iterator[Choice]:
        """Yield what each other level, window and word would change; nothing that the far side would refuse."""
        for other in get_args(LevelName):
            yield self._choice(f"--level {other}", level=other, now=other == level)
        c, spacing = self._cadence, self._sink.limits.spacing
        for window in sorted({*WINDOWS, c.window, *([2 * c.window] if self._by_points else [])} - {0.0}):
            if window >= max(c.interval, spacing):
                yield self._choice(f"--window {window:g}", cadence=c._replace(window=window), now=window == c.window)
        if spacing <= 1:
            yield self._quick()
        if not (self._advisor and self._advisor.apart):
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
        apart = "host" in self._words.values() if apart is None else apart
        hosts, one_host, advisor = self._hosts, self._admitted(len(wanted)), self._advisor
        sends = hosts * self._requests(wanted, c)
        series = one_host * (hosts if apart or (advisor and advisor.apart) else 1)
        names = len({point.metric.name for point in wanted})
        load = Load(series, names, hosts * one_host * MONTH / c.step, sends * MONTH / c.period, hosts=hosts)
        bill: list[Cost] = []
        quotas: list[Quota] = []
        if advisor:
            with asked(self._name):
                if advisor.measure(()) is not None:
                    size = advisor.measure(self._windowed(wanted, c)) or 0
                    load = load._replace(bytes=hosts * size * MONTH / c.step)
                bill, quotas = [*advisor.costs(load)], [*advisor.quotas(load)]
        unit = next((line.unit for line in bill if line.unit), "")
        known = [line.dollars for line in bill if line.dollars is not None]
        return Choice(
            flags=flags,
            now=now,
            series=series,
            points=load.points,
            requests=load.requests,
            requests_per_second=sends / c.period,
            bytes=load.bytes,
            volume=sum(line.amount for line in bill if line.unit == unit) if unit else None,
            unit=unit,
            bill=tuple(bill),
            quotas=tuple(quotas),
            dollars=round(sum(known), 2) if advisor and len(known) == len(bill) else None,
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


def _sample(point: Datapoint, start: int, n: int) -> Datapoint:
    value = point.value + n if point.metric.kind is Kind.GAUGE else point.value
    return point._replace(at=start + n, value=value)
