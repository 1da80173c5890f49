"""The contract of an advisor: what a sink costs, and how its dashboards and alarms are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

from chipwatch.datapoint import Datapoint, Metric

MONTH: Final = 730 * 3600
"""Seconds of a month in AWS's own calculator."""
Statistic = Literal["mean", "min", "max", "sum", "rate", "absent"]
"""Of a gauge's values in a period; of a counter its increase (sum) or rate; or whether there are no data."""
Drawn = Literal["mean", "peaks", "rate", "increase"]
"""Of a gauge its mean, or its peaks too; of a counter its rate, or its increase for each dot."""


class Terms(NamedTuple):
    """The user's prices in dollars; None: the list price."""

    price_per_metric: float | None = None
    price_per_1000_requests: float | None = None
    price_per_gb: float | None = None
    free_tier: bool = False
    """Subtract the account's free tier."""


class Load(NamedTuple):
    """What all hosts send to a sink in a month."""

    series: int = 0
    metrics: int = 0
    """Distinct names."""
    points: float = 0.0
    requests: float = 0.0
    bytes: float | None = None
    """As `Advisor.measure` counts them; None if it does not."""
    hosts: int = 1


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
        """Multiply."""
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
    """Who has it: `an account has in a region`."""
    shared: bool = False
    """All hosts together use it."""


class Sent(NamedTuple):
    """A metric as a sink sends it: all series with one name and one set of dimensions."""

    metric: Metric
    """Before it is renamed."""
    name: str
    """As it is sent."""
    unit: str
    factor: float
    """Factor of the naming profile for values."""
    dims: tuple[str, ...]
    """The keys of its own dimensions, as they are sent, sorted; the machine's are added to these."""
    held: tuple[tuple[str, str], ...]
    """Dimensions of the metric whose values are part of the name."""
    drawn: Drawn = "mean"
    series: int = 1
    """How many series a host has of it, as far as that is known."""


class Chart(NamedTuple):
    """A graph."""

    section: str
    title: str
    series: tuple[Sent, ...]
    label: str
    """Label of its axis."""
    top: float | None
    """End of the axis; None: by the values."""
    bottom: float | None
    """Start of the axis; None: by the values."""
    limits: tuple[tuple[str, float], ...] = ()
    """Titles and thresholds of alarms, which are drawn as lines."""

    @property
    def gauge(self) -> Sent | None:
        """The only metric, as sent with the fewest dimensions, if it is a gauge: its mean and limits say something."""
        is_gauge = len({one.name for one in self.series}) == 1 and self.series[0].drawn in {"mean", "peaks"}
        return min(self.series, key=lambda one: len(one.dims)) if is_gauge else None


class Rule(NamedTuple):
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
    """How long the condition must hold."""
    severity: Literal["warning", "critical"]
    per: Literal["series", "host", "fleet"]
    """What has a state of its own: each series, each host (is it silent?), or all hosts together."""
    title: str
    text: str
    """What it means, and what to do."""
    but: tuple[tuple[str, str], ...] = ()
    """Dimensions and values of series to exclude."""


class Alarm(NamedTuple):
    """A rule for a metric as it is sent."""

    name: str
    rule: Rule
    sent: Sent
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


class Advisor(Protocol):
    """
    Knows what a sink's service charges and allows, and writes its dashboards and alarms.

    What you write: `__init__(self, config, terms)`, where `config` is the sink's own Config; `costs`; and what else
    applies. Register the class in the entry point group `chipwatch.advisors` under the name of the sink. It is loaded
    by `agent plan`, `agent dashboard` and `agent check` only.

    All of it is pure: no file, no network. Raise Refused with what to do for requests that the service cannot fulfil.
    """

    service: str = ""
    """The service that has these prices."""
    charges_for: Literal["series", "points", "bytes"] = "series"
    apart: str = ""
    """Why each host has its own series whatever the dimensions are; empty: the dimensions decide."""
    ended: str = "cost until their hour ends"
    """What happens to series that have ended."""
    board: str = ""
    """The program that draws its dashboards, if it is not the sink's service; `--cloud` takes it, too."""
    max_lines: int = 0
    """Limit of lines of a graph; 0: this sink has no dashboards and no alarms."""
    by_name: bool = False
    """A query finds all series of a name, whatever their dimensions are."""
    counts_hosts: bool = False
    """A series that has ended cannot be watched: silent hosts are found by counting those that send."""

    def __init__(self, config: Any, terms: Terms) -> None:
        """Take the sink's Config and the user's prices."""

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        """Return the bytes that are charged for one window of one host; None: bytes are not charged."""
        del window
        return None

    def costs(self, load: Load) -> Iterable[Cost]:
        """Return the bill for a month; nothing if nothing is charged."""
        ...

    def quotas(self, load: Load) -> Iterable[Quota]:
        """Return the limits of the service, and how much of them is used."""
        del load
        return ()

    def notes(self) -> Iterable[str]:
        """Return sentences that explain the bill."""
        return ()

    def compared(self, load: Load) -> Iterable[str]:
        """Return sentences on what the same load costs in another way."""
        del load
        return ()

    def alarm_notes(self, metrics: int) -> Iterable[str]:
        """Return sentences on what the alarms of `agent dashboard` cost, which look at so many metrics of all hosts."""
        del metrics
        return ()

    def dashboard(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str]:
        """Return the documents of a dashboard with these graphs: several if a limit requires it."""
        del charts, scope
        return ()

    def limits(self, charts: Sequence[Chart]) -> Iterable[str]:
        """Return sentences on what a dashboard with these graphs leaves out of a large fleet."""
        del charts
        return ()

    def alarms(self, alarms: Sequence[Alarm], scope: Scope) -> Iterable[str]:
        """Return the documents of these alarms."""
        del alarms, scope
        return ()
