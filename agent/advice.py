"""The contract of an advisor: what a sink costs, and how its dashboards and alarms are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

from agent.datapoint import Datapoint, Metric

MONTH: Final = 730 * 3600
"""Seconds of a month, as AWS's own calculator has it."""
Statistic = Literal["mean", "min", "max", "sum", "rate", "absent"]
"""Of a period: of a gauge's values; how far a counter rose, or its rise a second; or that nothing comes."""
Drawn = Literal["mean", "peaks", "rate", "increase"]
"""Of a gauge its mean, or its peaks as well; of a counter its rise a second, or its rise for each dot."""


# -- what it costs ------------------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """What users say of their prices, in dollars; None: the list price."""

    price_per_metric: float | None = None
    price_per_1000_requests: float | None = None
    free_tier: bool = False
    """Take the account's free tier off."""


class Load(NamedTuple):
    """What a sink is sent in a month, by all hosts."""

    series: int = 0
    metrics: int = 0
    """Different names."""
    points: float = 0.0
    requests: float = 0.0
    bytes: float | None = None
    """As `Advisor.measure` counts them; None where it does not."""
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
    """Of the amount, where it is a volume, such as GB: the plan then shows the month's volume beside each choice."""
    as_of: str = ""
    """When and where the price was read."""
    dollars: float | None = field(init=False)

    def __post_init__(self) -> None:
        """Multiply."""
        dollars = None if self.unit_price is None else round(self.amount / self.per * self.unit_price, 2)
        object.__setattr__(self, "dollars", dollars)


@dataclass(frozen=True, slots=True)
class Quota:
    """How much of what a service allows is used."""

    what: str
    """In the plural, such as `active series`."""
    limit: float
    used: float
    whose: str
    """Who has it: `an account has in a region`."""
    shared: bool = False
    """All hosts together use it."""


# -- dashboards and alarms ----------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A metric as a sink sends it: all series of one name and one set of dimensions."""

    metric: Metric
    """Before it is renamed."""
    name: str
    """As it is sent."""
    unit: str
    factor: float
    """What the naming profile multiplies values by."""
    dims: tuple[str, ...]
    """The keys of its own dimensions, as they are sent, sorted; the machine's come on top."""
    held: tuple[tuple[str, str], ...]
    """Dimensions of the metric that the name holds, and their values."""
    drawn: Drawn = "mean"


class Chart(NamedTuple):
    """A graph."""

    section: str
    title: str
    series: tuple[Sent, ...]
    label: str
    """Of its axis."""
    top: float | None
    """Where the axis ends; None: where the values do."""
    bottom: float | None
    """Where it begins."""


class Rule(NamedTuple):
    """What is wrong with a metric, before it is known how the metric is sent."""

    key: str
    """Its name; a promise for ever."""
    metric: str
    statistic: Statistic
    below: bool
    """It is wrong to be below the threshold, not above."""
    threshold: float
    """In the metric's unit; of a counter of seconds: seconds a second."""
    minutes: float
    """For how long."""
    severity: Literal["warning", "critical"]
    per: Literal["series", "host", "fleet"]
    """What is judged by itself: each series, each host (is it silent?), or all hosts as one."""
    title: str
    text: str
    """What it means, and what to do."""
    but: tuple[tuple[str, str], ...] = ()
    """Dimensions and values of series that are of no interest."""


class Alarm(NamedTuple):
    """A rule about a metric as it is sent."""

    name: str
    rule: Rule
    sent: Sent
    threshold: float
    """In the unit that is sent."""
    minutes: float

    @property
    def but(self) -> list[tuple[str, str]]:
        """Dimensions and values, as they are sent, of series that are of no interest."""
        return [(key, value) for key, value in self.rule.but if key in self.sent.dims]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What dashboards and alarms are about, and what is wanted of them."""

    machine: tuple[str, ...] = ()
    """The keys of the machine's dimensions, as they are sent, sorted."""
    window: float = 60.0
    """Seconds of one point of a series."""
    prefix: str = "chipwatch"
    """What the dashboard is called, and what the names of alarms begin with."""
    period: int | None = None
    """Seconds that one dot of a graph stands for; the window, and a minute at least, unless set."""
    dims_as: str | None = None
    """What to write in place of the common dimensions: a template's variable."""
    notify: tuple[str, ...] = ()
    """Whom an alarm tells."""
    hosts: int = 0
    """Machines that should send."""
    groups: tuple[str, ...] = ()
    """Groups of machines, each scaled by itself, whose members should send besides those."""
    resources: tuple[str, ...] = ()
    """Monitored resources that send; the configured one unless set."""


# -- the advisor --------------------------------------------------------------------------------------------------


class Advisor(Protocol):
    """
    Knows what a sink's service charges and allows, and writes its dashboards and alarms.

    What you write: `__init__(self, config, terms)`, where `config` is the sink's own Config; `costs`; and what else
    applies. Register the class in the entry point group `agent.advisors` under the name of the sink. It is loaded by
    `agent plan`, `agent dashboard` and `agent check` only.

    All of it is pure: no file, no network. Raise Refused with what to do where the service cannot do what is asked.
    """

    service: str = ""
    """Whose prices these are."""
    charges_for: Literal["series", "points"] = "series"
    apart: str = ""
    """Why each host has series of its own whatever the dimensions are; empty: the dimensions decide."""
    ended: str = "cost until their hour ends"
    """What becomes of series that have ended."""
    max_lines: int = 0
    """Lines that a graph may have; 0: this sink has no dashboards and no alarms."""
    by_name: bool = False
    """A query finds all series of a name, whatever their dimensions are."""
    counts_hosts: bool = False
    """A series that has ended cannot be watched: silent hosts are found by counting the others."""

    def __init__(self, config: Any, terms: Terms) -> None:
        """Take the sink's Config and the user's prices."""

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        """Return the bytes that are charged for one window of one host; None: bytes do not matter."""
        del window
        return None

    def costs(self, load: Load) -> Iterable[Cost]:
        """Return the bill for a month; nothing where nothing is charged."""
        ...

    def quotas(self, load: Load) -> Iterable[Quota]:
        """Return what the service allows, and how much of it is used."""
        del load
        return ()

    def notes(self) -> Iterable[str]:
        """Return sentences that explain the bill."""
        return ()

    def dashboard(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str]:
        """Return the documents of a dashboard with these graphs: several where a limit splits them."""
        del charts, scope
        return ()

    def alarms(self, alarms: Sequence[Alarm], scope: Scope) -> Iterable[str]:
        """Return the documents that make these alarms."""
        del alarms, scope
        return ()
