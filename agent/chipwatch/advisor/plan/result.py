"""The result of a plan: amounts and costs of each sink, as configured and with other options."""

from __future__ import annotations

from dataclasses import dataclass

from chipwatch.contract.advice import Cost, Quota, Tariff


@dataclass(frozen=True, slots=True)
class Choice:
    """Amounts and costs of one sink with certain options (`flags`), for all hosts and a month."""

    flags: str
    now: bool
    series: int
    points: float
    requests: float
    requests_per_second: float
    bytes: float | None
    """None if bytes are not charged."""
    volume: float | None
    """Amount in `unit` if a volume is charged."""
    unit: str
    bill: tuple[Cost, ...]
    quotas: tuple[Quota, ...]
    dollars: float | None
    """None if a price is unknown."""
    is_cut: bool
    """True if max_series keeps some series back."""
    beside: tuple[str, ...] = ()
    """Sentences on what is not in the bill: alarms, another way to send the same; only as configured."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """Interval of readings, window and flush of a sink, in seconds."""

    interval: float
    window: float
    flush: float

    @property
    def step(self) -> float:
        """Seconds between two points of a series."""
        return max(self.window, self.interval)

    @property
    def period(self) -> float:
        """Seconds between two flushes: `flush`, or the window if that is longer."""
        return max(self.flush, self.step)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """The part of a plan for one sink."""

    sink: str
    kind: str
    """`priced`, `free`, or `unknown` if the sink has no advisor."""
    level: str
    cadence: Cadence
    tariff: Tariff
    max_series: int | None
    metrics: dict[str, int]
    """Metric -> number of its series on this machine that are sent now."""
    held: dict[str, int]
    """Metric -> number of its counters on this machine that are 0, so that they are not sent yet."""
    series: int
    """Number of series of `metrics` that max_series allows."""
    rejected: tuple[str, ...]
    """A sentence for each metric that the sink never accepts."""
    words: dict[str, str]
    """Dimension of the machine -> `host` if each host has its own value, `shared` if hosts share one."""
    requests_per_period: int
    """Requests of one host at each flush."""
    notes: tuple[str, ...]
    now: Choice
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The load and cost of each sink, for `hosts` machines like this one."""

    hosts: int
    month_seconds: int
    collectors: dict[str, int]
    absent: dict[str, str]
    failed: dict[str, str]
    sinks: tuple[SinkPlan, ...]
    families: tuple[str, ...] = ()
    """Collectors that the machines are assumed to have; nothing was read if this is set."""
    devices: int = 0
    """Accelerators that each machine is assumed to have."""
