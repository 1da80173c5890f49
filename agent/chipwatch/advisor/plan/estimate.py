"""Makes a plan: how much a configuration would send, and the cost, as it is and with other options."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, get_args

from chipwatch.advisor.advisors import advisor_of, asked
from chipwatch.advisor.dashboard.alarms import RULES
from chipwatch.advisor.discovery import SOME_TIME, Discovery, assumed, discover, of_machines
from chipwatch.advisor.plan.result import Cadence, Choice, Plan, SinkPlan
from chipwatch.config import plugins
from chipwatch.config.identity.names import PASSING, PER_HOST
from chipwatch.config.instances import build_collectors, build_plugin, build_processors, build_sinks
from chipwatch.config.load import sink_options
from chipwatch.config.naming import rename
from chipwatch.config.options import Config, LevelName
from chipwatch.contract.advice import MONTH, Advisor, Cost, Load, Quota, Tariff, Terms
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.owner import KUBERNETES, Owner
from chipwatch.contract.sink import Sink
from chipwatch.engine import build
from chipwatch.engine.owners import OwnerLabels
from chipwatch.engine.window import Window

WINDOWS: Final = (10.0, 60.0, 300.0)
"""Windows (s) to which a plan compares the configured one."""
MAX_SAMPLES: Final = 600
"""Most samples of a series in the window that is measured in bytes."""
HOLDER: Final = Owner(KUBERNETES, "x" * 20, "", "x" * 8, "x" * 8, "x" * 12, "x" * 20, "x" * 8)
"""Somebody who holds a device, with names of usual lengths."""
MAX_SIZED: Final = 1000
"""Most series that are measured in bytes; their mean stands for all."""


def make(
    config: Config,
    hosts: int = 1,
    terms: Terms = Terms(),  # noqa: B008  # a constant
    *,
    families: Sequence[str] = (),
    devices: int = 8,
) -> Plan:
    """
    Make the plan for machines like this one, or for machines with `families`; use no network.

    Raise ConfigError or NotLoaded.
    """
    config = of_machines(config, families)
    sinks = build_sinks(config)
    collectors, processors = build_collectors(config), build_processors(config)
    build.check_includes(config, collectors, processors)
    metrics = build.declared(collectors, processors)
    rejected = {name: build.faults(name, sink, config, metrics) for name, sink in sinks.items()}
    advisors = {name: advisor_of(name, config, terms) for name in sinks}
    machine = _assumed(config, devices) if families else discover(config, sinks)
    plans = tuple(
        _Planner(name, sink, config, advisors[name], machine, hosts=hosts).plan(tuple(f.text for f in rejected[name]))
        for name, sink in sinks.items()
    )
    if terms.price_per_gb is not None and not any(plan.now.unit == "GB" for plan in plans):
        raise ConfigError("--price-per-gb: no sink here charges by the GB; name one that does with --sink")
    read = machine.series, machine.absent, machine.failed
    return Plan(hosts, MONTH, *read, plans, tuple(families), devices if families else 0)


def _assumed(config: Config, devices: int) -> Discovery:
    """Return a made-up point for each series of the configured collectors, with the fewest dimensions of its metric."""
    points_of = assumed(config, devices)
    points = sorted(chain(*points_of.values()), key=lambda point: (len(point.dims), -point.metric.level))
    least: dict[str, int] = {}
    series = {
        (point.metric.name, point.dims): point
        for point in points
        if least.setdefault(point.metric.name, len(point.dims)) == len(point.dims)
    }
    sent = [*series.values()]
    return Discovery(sent, sent, {name: len(points) for name, points in points_of.items()}, {}, {})


@dataclass(frozen=True)
class _Case:
    """The configuration of a sink: the present one, or with one option changed."""

    flags: str
    level: LevelName
    cadence: Cadence
    separate: bool
    """True if each host has separate series."""
    moved: bool = False
    """True to assume that every counter has moved, so that it is sent."""
    now: bool = False
    owned: bool = False
    """True if the points of devices say who holds them; where series cost, each device changes hands once an hour."""


class _Planner:
    """Makes the plan of one sink."""

    def __init__(
        self, name: str, sink: Sink, config: Config, advisor: Advisor | None, machine: Discovery, *, hosts: int
    ) -> None:
        self._name, self._sink, self._config, self._advisor = name, sink, config, advisor
        self._tariff = advisor.tariff if advisor else Tariff()
        self._machine, self._hosts = machine, hosts
        self._options = sink_options(name, config)
        limits = sink.limits
        flush = limits.flush if self._options.flush is None else self._options.flush
        assert config.interval is not None
        cadence = Cadence(config.interval, build.window_length(name, sink, config), flush)
        self._max_series = limits.max_series if self._options.max_series is None else self._options.max_series
        self._zeros = limits.zeros if self._options.zeros is None else self._options.zeros
        self._words = {word: "host" if word in PER_HOST else "shared" for word in (*config.common_dims, *config.dims)}
        self._dims = Dimensions(dict.fromkeys(config.common_dims, "x" * 20), **config.dims)
        separate = "host" in self._words.values()
        keys = build.owner_labels(name, sink, config)
        holders = (HOLDER, HOLDER._replace(pod="y" * 20, job="y" * 20))[: 1 + (self._tariff.charges_for == "series")]
        self._labels = OwnerLabels(keys or ("pod", "namespace", "container"), lambda _: holders)
        self._labels.update(machine.points, list)
        level = self._options.level or config.level
        self._now = _Case("as configured", level, cadence, separate, now=True, owned=bool(keys))

    def plan(self, rejected: tuple[str, ...]) -> SinkPlan:
        """Return the plan; `rejected`: a sentence for each metric that the sink never accepts."""
        wanted, advisor = self._wanted(self._now), self._advisor
        now = self._choice(self._now)
        kind = "unknown" if advisor is None else "priced" if now.bill else "free"
        metrics = Counter(point.metric.name for point in wanted)
        unmoved = Counter(point.metric.name for point in self._wanted(replace(self._now, moved=True))) - metrics
        load = Load(now.series, len(metrics), now.points, now.requests, now.bytes, self._hosts)
        watched = sum(metrics.get(rule.metric, rule.per != "series") for rule in RULES)  # one where hosts are counted
        load = load._replace(watched=watched * now.series // max(1, self._admitted(wanted)))
        notes: list[str] = []
        if advisor:
            with asked(self._name):
                notes += advisor.notes(load)
                now = replace(now, beside=tuple(advisor.beside(load)))
        if passing := [word for word in self._words if word in PASSING]:
            notes.append(f"{', '.join(passing)}: each new value makes new series; the old ones {self._tariff.ended}.")
        return SinkPlan(
            sink=self._name,
            kind=kind,
            level=self._now.level,
            cadence=self._now.cadence,
            tariff=self._tariff,
            max_series=self._max_series or None,
            metrics=dict(sorted(metrics.items())),
            held=dict(sorted(unmoved.items())),
            series=self._admitted(wanted),
            rejected=rejected,
            words=self._words,
            requests_per_period=self._requests(wanted, self._now.cadence),
            notes=tuple(notes),
            now=now,
            choices=tuple(map(self._choice, self._cases())) if kind != "free" else (),
        )

    def _cases(self) -> Iterator[_Case]:
        """Yield each variant of the configuration to price: another level, window or machine dimension."""
        now, other, spacing = self._now, replace(self._now, now=False), self._sink.limits.spacing
        moved = replace(other, flags="every counter above 0", moved=True)
        owned = replace(other, flags="owner_labels", owned=True)
        yield from (case for case in (moved, owned) if self._wanted(case) != self._wanted(now))
        for level in get_args(LevelName):
            yield replace(other, flags=f"--level {level}", level=level, now=level == now.level)
        c = now.cadence
        twice = [2 * c.window] if self._tariff.charges_for != "series" else []
        for window in sorted({*WINDOWS, c.window, *twice} - {0.0}):
            if window >= max(c.interval, spacing):
                cadence = replace(c, window=window)
                yield replace(other, flags=f"--window {window:g}", cadence=cadence, now=cadence == c)
        if spacing <= 1:
            quick = replace(self._config, high_resolution_metrics=True, interval=1.0)
            if (flush := self._options.flush) is None:
                flush = build_plugin(plugins.SINKS, self._name, quick).limits.flush
            cadence = Cadence(1.0, 1.0, flush)
            yield replace(other, flags="--high-resolution-metrics", cadence=cadence, now=cadence == c)
        if self._tariff.apart:
            return
        of_host = [word for word, kind in self._words.items() if kind == "host"]
        for word in self._config.common_dims:
            separate = any(kept != word for kept in of_host)
            yield replace(other, flags=f"--common-dims without {word}", separate=separate)
        if not of_host:
            yield replace(other, flags="--common-dims ...,instance_id", separate=True)

    def _wanted(self, case: _Case) -> list[Datapoint]:
        """Return a point of each series that is sent in a case."""
        chosen = build.build_filter(replace(self._options, level=case.level), self._sink.limits, self._config)
        wanted = [point for point in self._machine.points if chosen.wants(point.metric)]
        copies = rename.copier(build.profile_of(self._sink, self._config))
        wanted = [*wanted, *copies(wanted)] if copies else wanted
        if not case.moved:
            held = build.held_at_zero(self._name, self._sink, self._config, self._machine.events)
            wanted = [
                point for point in wanted if point.value or not (held(point.metric) or self._is_held(point.metric))
            ]
        return self._labels(wanted) if case.owned else wanted

    def _is_held(self, metric: Metric) -> bool:
        """
        Return True if a counter at 0 is assumed to stay there, so that the sink does not send it.

        Counters of bytes are assumed to move: they are 0 only at the first reading.
        """
        return self._zeros is False and metric.kind is Kind.COUNTER and metric.unit != "By"

    def _admitted(self, wanted: Sequence[Datapoint]) -> int:
        return min(len(wanted), self._max_series or len(wanted))

    def _choice(self, case: _Case) -> Choice:
        """Compute the amounts and costs of a case for all hosts."""
        wanted, c = self._wanted(case), case.cadence
        hosts, one_host, advisor = self._hosts, self._admitted(wanted), self._advisor
        sends = hosts * self._requests(wanted, c)
        series = one_host * (hosts if case.separate or self._tariff.apart else 1)
        names = len({point.metric.name for point in wanted})
        load = Load(series, names, hosts * one_host * MONTH / c.step, sends * MONTH / c.period, hosts=hosts)
        bill, quotas = list[Cost](), list[Quota]()
        if advisor:
            with asked(self._name):
                if advisor.measure(()) is not None:
                    size = advisor.measure(self._windowed(wanted, c)) or 0
                    load = load._replace(bytes=hosts * size * MONTH / c.step)
                bill, quotas = [*advisor.costs(load)], [*advisor.quotas(load)]
        unit = next((line.unit for line in bill if line.unit), "")
        dollars = [line.dollars for line in bill if line.dollars is not None]
        return Choice(
            flags=case.flags,
            now=case.now,
            series=series,
            points=load.points,
            requests=load.requests,
            requests_per_second=sends / c.period,
            bytes=load.bytes,
            volume=sum(line.amount for line in bill if line.unit == unit) if unit else None,
            unit=unit,
            bill=tuple(bill),
            quotas=tuple(quotas),
            dollars=round(sum(dollars), 2) if advisor and len(dollars) == len(bill) else None,
            is_cut=one_host < len(wanted),
        )

    def _requests(self, wanted: Sequence[Datapoint], c: Cadence) -> int:
        """Return the number of requests of one host at each flush."""
        limits = self._sink.limits
        series, windows, most = self._admitted(wanted), c.period / c.step, limits.max_points
        if series and limits.max_bytes is not None:
            points = self._windowed(wanted[:MAX_SIZED], c)
            size = sum(self._sink.size(point) for point in points) / max(1, len(points))
            most = max(1, min(most, int(limits.max_bytes / size))) if size else most
        if limits.one_per_series:
            return math.ceil(windows) * math.ceil(series / most)
        return math.ceil(series * windows / most)

    def _windowed(self, wanted: Sequence[Datapoint], c: Cadence) -> list[Datapoint]:
        """Return the datapoints of one window; all samples of a gauge are different, the largest case."""
        window = Window(c.window, born=0, increases=self._sink.limits.increases)
        length = int(c.window * 1e9) or 1
        start = (SOME_TIME // length + 1) * length
        series = {(point.metric.name, point.dims) for point in wanted}
        read = (*self._machine.before, *self._labels(self._machine.before))
        before = [point for point in read if (point.metric.name, point.dims) in series]
        passed = window.add([point._replace(at=start - 1) for point in before], start - 1)
        for n in range(min(MAX_SAMPLES, max(1, int(c.window / c.interval)))):
            risen = [p._replace(at=start + n, value=p.value + n * (p.metric.kind is Kind.GAUGE)) for p in wanted]
            passed = window.add(risen, start + n)
        done = window.close() if c.window else passed
        return [point._replace(dims=self._dims | point.dims) for point in done]
