"""The base class of advisors. An advisor knows what a sink's service costs, and writes its dashboards and alarms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Metric

MONTH: Final = 730 * 3600
"""Seconds of a month in AWS's own calculator."""
Statistic = Literal["mean", "min", "max", "sum", "rate", "absent"]
"""The number that an alarm compares. Of a counter: its increase ("sum") or its rate; "absent": no data came."""
Drawn = Literal["mean", "peaks", "rate", "increase"]
"""The values that a graph draws. Of a gauge: "mean", or "peaks" too. Of a counter: "rate", or "increase" per dot."""
Fold = Literal["", "sum", "mean", "min", "max", "count"]
"""The function that makes one line of a group of series; "": each series is a line."""
Shown = Literal["each", "mean", "p95", "groups"]
"""The lines of a metric: one for each series, one for the mean or the 95th percentile of all, one for each group."""
MACHINE: Final = "machine"
"""Key in `Chart.by` that stands for all dimensions of the machine."""
MAX_GROUPS: Final = 20
"""Most groups that a graph draws; the largest ones are chosen."""


class Terms(NamedTuple):
    """The user's prices in dollars, where they differ from the list prices (None)."""

    price_per_metric: float | None = None
    price_per_1000_requests: float | None = None
    price_per_gb: float | None = None
    free_tier: bool = False
    """Subtract the account's free tier."""


class Load(NamedTuple):
    """The amounts that all hosts together send to one sink in a month."""

    series: int = 0
    metrics: int = 0
    """Distinct names of metrics."""
    points: float = 0.0
    requests: float = 0.0
    bytes: float | None = None
    """Bytes, counted by `Advisor.measure`; None if the service does not charge for bytes."""
    hosts: int = 1
    watched: int = 0
    """Series of all hosts that the alarms of `chipwatch dashboard` look at."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of the monthly bill: `amount` / `per` x `unit_price` = `dollars`."""

    what: str
    amount: float
    unit_price: float | None
    """Price of `per` units in dollars; None if it is not known."""
    per: int = 1
    unit: str = ""
    """Unit of the amount if it is a volume, such as GB. With a unit, `chipwatch plan` shows the volume, too."""
    as_of: str = ""
    """When and where the price was read."""
    missing: str = ""
    """The option that gives a price which is not known."""
    dollars: float | None = field(init=False)

    def __post_init__(self) -> None:
        """Compute the dollars."""
        dollars = None if self.unit_price is None else round(self.amount / self.per * self.unit_price, 2)
        object.__setattr__(self, "dollars", dollars)


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of the service, and how much of it is used."""

    what: str
    """The thing that is limited, in the plural: `active series`."""
    limit: float
    used: float
    whose: str
    """The owner of the limit, as a part of a sentence: `an account has in a region`."""
    shared: bool = False
    """True if all hosts together use it, False if each host has it."""


class Former(NamedTuple):
    """The name of a metric in the first of two naming profiles that are sent side by side."""

    name: str
    unit: str
    factor: float
    """Number by which that profile multiplies values."""
    moved: tuple[str, ...]
    """Keys of dimensions that only one of the two profiles has, sorted."""


class SentMetric(NamedTuple):
    """A metric as a sink sends it: all series with one name and one set of dimensions."""

    metric: Metric
    """The metric as chipwatch names it."""
    name: str
    """The name that the sink sends."""
    unit: str
    factor: float
    """Number by which the naming profile multiplies values."""
    dims: tuple[str, ...]
    """Keys of the metric's dimensions as they are sent, sorted; the machine's dimensions are not among them."""
    in_name: tuple[tuple[str, str], ...]
    """Dimensions that the naming profile writes into the name: pairs of key and value."""
    drawn: Drawn = "mean"
    series: int = 1
    """Number of series that a host sends, as far as it is known."""
    copy: bool = False
    """True for a gauge that a naming profile sends beside a counter: its rate, or its last value. Graphs prefer it."""
    former: Former | None = None
    """Its name in the naming profile before this one, if two are sent side by side."""


class Chart(NamedTuple):
    """A graph."""

    section: str
    """The title of the row that it stands in; of one `aside` it says on which machines the row has data."""
    title: str
    series: tuple[SentMetric, ...]
    label: str
    """Label of its axis."""
    top: float | None
    """Largest value of the axis; None: the service chooses it."""
    bottom: float | None
    """Smallest value of the axis; None: the service chooses it."""
    limits: tuple[tuple[str, float], ...] = ()
    """Thresholds of alarms to draw as lines: pairs of title and value."""
    fold: Fold = ""
    by: tuple[str, ...] = ()
    """Keys whose values make the groups, as they are sent, or `MACHINE`; without a key, all series are one group."""
    aside: bool = False
    """True if a plain machine leaves it empty. It then stands in a row at the end, collapsed where the service can."""

    @property
    def lines(self) -> list[tuple[Shown, SentMetric]]:
        """Its lines, in the order of the legend."""
        if self.fold:
            return [("groups", self.series[0])]
        lines: list[tuple[Shown, SentMetric]] = []
        for sent in self.series:
            ways: Mapping[Shown, bool] = {"each": True, "mean": sent == self.gauge, "p95": sent.drawn == "peaks"}
            lines += [(shown, sent) for shown, is_drawn in ways.items() if is_drawn]
        return lines

    @property
    def gauge(self) -> SentMetric | None:
        """The metric with the fewest dimensions, if the graph draws one metric only, and a gauge; else None."""
        is_gauge = len({sent.name for sent in self.series}) == 1 and self.series[0].drawn in {"mean", "peaks"}
        return min(self.series, key=lambda sent: len(sent.dims)) if is_gauge else None


class AlarmRule(NamedTuple):
    """A condition on a metric, independent of how the metric is sent."""

    key: str
    """The rule's name. It never changes: runbooks and alarms refer to it."""
    metric: str
    statistic: Statistic
    below: bool
    """True if values below the threshold are bad, False if values above it are."""
    threshold: float
    """The threshold in the metric's unit; for a counter of seconds, in seconds per second."""
    minutes: float
    """Minutes for which the condition must hold before the alarm goes off."""
    severity: Literal["warning", "critical"]
    per: Literal["series", "host", "fleet"]
    """The thing that is healthy or not: each series, each host (does it still send?), or all hosts together."""
    title: str
    text: str
    """The meaning of the alarm, and the remedy."""
    but: tuple[tuple[str, str], ...] = ()
    """Dimensions of series to exclude: pairs of key and value."""


class Alarm(NamedTuple):
    """A rule, applied to a metric as the sink sends it."""

    name: str
    rule: AlarmRule
    """The rule with the user's minutes, and without dimensions that the metric does not have."""
    sent: SentMetric
    threshold: float
    """The threshold in the unit that the sink sends."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The machines that dashboards and alarms are for, and the user's options for them."""

    machine: tuple[str, ...] = ()
    """The keys of the machine's dimensions, as they are sent, sorted."""
    window: float = 60.0
    """Seconds of one point of a series."""
    prefix: str = "chipwatch"
    """Name of the dashboard, and start of the names of alarms."""
    period: int | None = None
    """Seconds that one dot of a graph stands for; None: `window`, but at least a minute."""
    runbooks: str = "https://chipwatch.example/source/docs/runbooks"
    """Address of the pages about the alarms; this default stands for the project's, as long as none is registered."""
    dims_as: str | None = None
    """Variable of a template to write in place of the machine's dimensions."""
    notify: tuple[str, ...] = ()
    """Topics or channels that an alarm notifies."""
    hosts: int = 0
    """Machines that should send."""
    groups: tuple[str, ...] = ()
    """Groups of machines with automatic scaling; their members should send, in addition to `hosts`."""
    resources: tuple[str, ...] = ()
    """Monitored resources (Google Cloud) that send; if empty, the one in the configuration."""

    def runbook(self, rule: AlarmRule) -> str:
        """Return the address of the page about an alarm."""
        return f"{self.runbooks.rstrip('/')}/{rule.key}.md"


@dataclass(frozen=True, slots=True)
class Tariff:
    """The way in which a service charges for points."""

    service: str = ""
    """The service that has these prices."""
    charges_for: Literal["series", "points", "bytes"] = "series"
    apart: str = ""
    """Reason why two hosts never share a series; "": they do if their dimensions are equal."""
    ended: str = "cost until their hour ends"
    """Cost of a series after its last point, as the end of a sentence."""


class Board(NamedTuple):
    """Limits of a dashboard, and the way its queries find series."""

    max_lines: int
    """Limit of lines of a graph."""
    program: str = ""
    """The program that draws the dashboards, if it is not the sink's service. `--cloud` accepts this name, too."""
    by_name: bool = False
    """True if a query by the metric's name finds its series with all dimensions."""
    counts_hosts: bool = False
    """True if the service cannot watch a series that has ended. Silent hosts are then found by counting the others."""


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
    """None if the service has no dashboards; then no method that takes charts or alarms is called."""

    def __init__(self, config: Any, terms: Terms) -> None:
        """Take the sink's own Config and the user's prices."""

    @abstractmethod
    def costs(self, load: Load) -> Iterable[Cost]:
        """Return the bill for a month; nothing if nothing is charged."""

    def quotas(self, load: Load) -> Iterable[Quota]:
        """Return the limits of the service, and how much of each this load uses."""
        return ()

    def notes(self, load: Load) -> Iterable[str]:
        """Return sentences that explain the bill."""
        return ()

    def beside(self, load: Load) -> Iterable[str]:
        """Return sentences that `chipwatch plan` prints: what alarms cost beside it, or another way to send it."""
        return ()

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        """Return the bytes that one window of one host is charged for; None if bytes are not charged."""
        return None

    def dashboard(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str]:
        """Return a dashboard with these graphs, as text to import; several texts if the service limits their size."""
        return ()

    def omissions(self, charts: Sequence[Chart]) -> Iterable[str]:
        """Return a sentence for each thing that the dashboard cannot show for a large fleet."""
        return ()

    def alarms(self, alarms: Sequence[Alarm], scope: Scope) -> Iterable[str]:
        """Return these alarms, as texts to import."""
        return ()

    def records(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str] | None:
        """Return recording rules for the groups of these graphs, as texts; None if the service has no such rules."""
        return None
