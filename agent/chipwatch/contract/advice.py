"""The base of advisors: the cost of a sink, its dashboards and its alarms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Metric

MONTH: Final = 730 * 3600
"""Seconds of a month in AWS's own calculator."""
Statistic = Literal["mean", "min", "max", "sum", "rate", "absent"]
"""Gauge: a statistic of its values in a period. Counter: its increase (sum) or rate. Or the absence of data."""
Drawn = Literal["mean", "peaks", "rate", "increase"]
"""Gauge: its mean, or also its peaks. Counter: its rate, or its increase for each dot."""
Fold = Literal["", "sum", "mean", "min", "max", "count"]
"""Value of a group of series; empty: each series is a line."""
Shown = Literal["each", "mean", "p95", "groups"]
"""A line for each series of a metric; one for the mean or the 95th percentile of all; or one for each group."""
MACHINE: Final = "machine"
"""Key of groups that stands for the machine's dimensions."""
MAX_GROUPS: Final = 20
"""Groups of a graph, the largest ones."""


class Terms(NamedTuple):
    """The user's prices in dollars; None: the list price."""

    price_per_metric: float | None = None
    price_per_1000_requests: float | None = None
    price_per_gb: float | None = None
    free_tier: bool = False
    """Subtract the account's free tier."""


class Load(NamedTuple):
    """Amounts that all hosts send to a sink in a month."""

    series: int = 0
    metrics: int = 0
    """Distinct names."""
    points: float = 0.0
    requests: float = 0.0
    bytes: float | None = None
    """As `Advisor.measure` counts them; None where bytes are not charged."""
    hosts: int = 1
    watched: int = 0
    """Series of all hosts that the alarms of `chipwatch dashboard` look at."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A line of the bill: `amount` / `per` x `unit_price` = `dollars`."""

    what: str
    amount: float
    unit_price: float | None
    """In dollars; None: not known, which is not 0."""
    per: int = 1
    unit: str = ""
    """Unit of an amount that is a volume, such as GB: the plan then shows the volume of each choice."""
    as_of: str = ""
    """When and where the price was read."""
    dollars: float | None = field(init=False)

    def __post_init__(self) -> None:
        """Compute the dollars."""
        dollars = None if self.unit_price is None else round(self.amount / self.per * self.unit_price, 2)
        object.__setattr__(self, "dollars", dollars)


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of the service, and how much of it is used."""

    what: str
    """In the plural, such as `active series`."""
    limit: float
    used: float
    whose: str
    """Its owner, as in `an account has in a region`."""
    shared: bool = False
    """All hosts together use it."""


class SentMetric(NamedTuple):
    """A metric as a sink sends it: all series with one name and one set of dimensions."""

    metric: Metric
    """Before it is renamed."""
    name: str
    """As it is sent."""
    unit: str
    factor: float
    """Factor of the naming profile for values."""
    dims: tuple[str, ...]
    """Keys of the metric's dimensions, as they are sent, sorted; without the machine's."""
    in_name: tuple[tuple[str, str], ...]
    """Dimensions of the metric whose values are part of the name."""
    drawn: Drawn = "mean"
    series: int = 1
    """Series of a host, as far as their number is known."""
    copy: bool = False
    """A gauge of a naming profile beside the counter: its rate, or its last value; graphs of series draw this one."""


class Chart(NamedTuple):
    """A graph."""

    section: str
    title: str
    series: tuple[SentMetric, ...]
    label: str
    """Label of its axis."""
    top: float | None
    """End of the axis; None: by the values."""
    bottom: float | None
    """Start of the axis; None: by the values."""
    limits: tuple[tuple[str, float], ...] = ()
    """Titles and thresholds of alarms, which are drawn as lines."""
    fold: Fold = ""
    by: tuple[str, ...] = ()
    """Keys that the series of a group share, as they are sent, or `MACHINE`; without keys all are one group."""

    @property
    def lines(self) -> list[tuple[Shown, SentMetric]]:
        """Its lines, in the order of the legend."""
        if self.fold:
            return [("groups", self.series[0])]
        lines: list[tuple[Shown, SentMetric]] = []
        for sent in self.series:
            lines.append(("each", sent))
            if sent == self.gauge:
                lines.append(("mean", sent))
            if sent.drawn == "peaks":
                lines.append(("p95", sent))
        return lines

    @property
    def gauge(self) -> SentMetric | None:
        """Its metric, with the fewest dimensions, if it has one metric and that is a gauge; else None."""
        is_gauge = len({sent.name for sent in self.series}) == 1 and self.series[0].drawn in {"mean", "peaks"}
        return min(self.series, key=lambda sent: len(sent.dims)) if is_gauge else None


class AlarmRule(NamedTuple):
    """A condition on a metric, independent of how the metric is sent."""

    key: str
    """Its name, which never changes."""
    metric: str
    statistic: Statistic
    below: bool
    """The alarm is for values below the threshold, not above."""
    threshold: float
    """In the metric's unit; of a counter of seconds: seconds per second."""
    minutes: float
    """Time for which the condition must hold."""
    severity: Literal["warning", "critical"]
    per: Literal["series", "host", "fleet"]
    """Scope of one state: a series, a host (is it silent?), or all hosts together."""
    title: str
    text: str
    """Meaning, and remedy."""
    but: tuple[tuple[str, str], ...] = ()
    """Dimensions and values of series to exclude."""


class Alarm(NamedTuple):
    """A rule for a metric as it is sent."""

    name: str
    rule: AlarmRule
    sent: SentMetric
    threshold: float
    """In the unit that is sent."""
    minutes: float

    @property
    def but(self) -> list[tuple[str, str]]:
        """Dimensions and values, as they are sent, of series to exclude."""
        return [(key, value) for key, value in self.rule.but if key in self.sent.dims]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The machines and options of dashboards and alarms."""

    machine: tuple[str, ...] = ()
    """The keys of the machine's dimensions, as they are sent, sorted."""
    window: float = 60.0
    """Seconds of one point of a series."""
    prefix: str = "chipwatch"
    """Name of the dashboard, and start of the names of alarms."""
    period: int | None = None
    """Seconds of one dot of a graph; unless set, the window, and a minute at least."""
    runbooks: str = "docs/runbooks"
    """Folder or address of the pages about the alarms."""
    dims_as: str | None = None
    """Text in place of the common dimensions: a variable of a template."""
    notify: tuple[str, ...] = ()
    """Topics or channels for alarms."""
    hosts: int = 0
    """Machines that should send."""
    groups: tuple[str, ...] = ()
    """Groups of machines with automatic scaling, whose members should send in addition to `hosts`."""
    resources: tuple[str, ...] = ()
    """Monitored resources that send; unless set, the configured one."""

    def runbook(self, rule: AlarmRule) -> str:
        """Return the address of the page about an alarm."""
        return f"{self.runbooks.rstrip('/')}/{rule.key}.md"


@dataclass(frozen=True, slots=True)
class Tariff:
    """The way in which a service charges."""

    service: str = ""
    """The service that has these prices."""
    charges_for: Literal["series", "points", "bytes"] = "series"
    apart: str = ""
    """Why each host has its own series whatever the dimensions are; empty: the dimensions decide."""
    ended: str = "cost until their hour ends"
    """Fate of series that have ended."""


class Board(NamedTuple):
    """Limits of a dashboard, and the way its queries find series."""

    max_lines: int
    """Limit of lines of a graph."""
    program: str = ""
    """The program that draws the dashboards, if it is not the sink's service; `--cloud` takes it, too."""
    by_name: bool = False
    """A query finds all series of a name, whatever their dimensions are."""
    counts_hosts: bool = False
    """A series that has ended cannot be watched: silent hosts are found by counting those that send."""


class Advisor(ABC):
    """
    Knows what a sink's service charges and allows, and how its dashboards and alarms are written.

    Derive from it. `costs` must be there; every other method does nothing unless you write it. Register the class in
    the entry point group `chipwatch.advisors` under the name of the sink. Only `chipwatch plan`, `dashboard` and
    `check` load it.

    All of it is pure: no file, no network. Raise Refused with what to do for requests that the service cannot fulfil.
    """

    tariff: Tariff = Tariff()
    board: ClassVar[Board | None] = None
    """None: it has no dashboards, and none of the methods for them is called."""

    def __init__(self, config: Any, terms: Terms) -> None:
        """Take the sink's own Config and the user's prices."""

    @abstractmethod
    def costs(self, load: Load) -> Iterable[Cost]:
        """Return the bill for a month; nothing if nothing is charged."""

    def quotas(self, load: Load) -> Iterable[Quota]:
        """Return the limits of the service, and how much of them is used."""
        return ()

    def notes(self, load: Load) -> Iterable[str]:
        """Return sentences that explain the bill, or what the same load costs in another way."""
        return ()

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        """Return the bytes that are charged for one window of one host; None: bytes are not charged."""
        return None

    def dashboard(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str]:
        """Return the documents of a dashboard with these graphs: several if a limit requires it."""
        return ()

    def omissions(self, charts: Sequence[Chart]) -> Iterable[str]:
        """Return sentences on what a dashboard with these graphs leaves out of a large fleet."""
        return ()

    def alarms(self, alarms: Sequence[Alarm], scope: Scope) -> Iterable[str]:
        """Return the documents of these alarms."""
        return ()

    def records(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str] | None:
        """Return the documents of rules that record the groups of these graphs; None: it keeps no results."""
        return None
