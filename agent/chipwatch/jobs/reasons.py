"""Finds why a job is slow: a pure function from its figures of the last minutes to causes, by a table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from chipwatch.contract.rules import RULES

FIGURES: Final[Mapping[str, tuple[float, str, str]]] = RULES["figures"]
"""Figure -> the least value that counts, its text, its source."""
WORD: Final = re.compile(r"{([\w.]+)}")
MOST: Final = 3
"""Most causes in an answer."""
LATE: Final = "rank.late"
ALL: Final = "all"
"""The loss of a job that stands still."""
WIDE: Final = (ALL, "slow", "last", LATE)
"""Losses of one rank that all other ranks wait for: each rank loses that time."""
LEAST: Final = 0.05
"""Share of GPU time below which nothing counts as slowing a job."""
LEAST_SECONDS: Final = 55.0
"""Seconds of readings without which no share of the time is stated."""
USELESS: Final = ("stalled", "held", "throttled", "lost")
UNREAD: Final = ("unknown", "unseen")


class JobFigure(NamedTuple):
    """One figure of a job, and the device, rank or server that it is about."""

    name: str
    """A name that rules use, in a condition or as a word of their sentence."""
    number: float
    word: str = ""


class Figures(NamedTuple):
    """All figures of a job over the last minutes; a figure that is absent is unknown."""

    numbers: Mapping[str, float]
    """Name -> number. Names that begin with `share.` or `idle.` are shares of the job's GPU time on this machine."""
    words: Mapping[str, str]
    """Name -> the device, rank or server that the figure is about."""
    seconds: float
    """Seconds that the readings cover."""
    gpus: float
    """The job's GPUs on this machine; a partition counts by its slices."""
    ranks: int = 0
    """The job's ranks on all machines; 0 if unknown."""
    unknown: Sequence[str] = ()
    """Things that could not be read, and why."""


class Cause(NamedTuple):
    """Something that slows a job, and what to do about it."""

    cause: str
    says: str
    do: str
    evidence: Sequence[str]
    """The figures that show it, each with its source."""
    lost: float
    """Mean number of GPUs that stand still because of it; 0 if a cause above it explains the same loss."""
    is_most: bool = False
    """True if `lost` is an upper limit."""


class Reasons(NamedTuple):
    """Why a job is slow: causes, the largest loss first, or why none is named."""

    causes: Sequence[Cause] = ()
    nothing: str = ""
    """A sentence that nothing slows the job; "" if that is not so or not known."""
    unknown: str = ""
    """Why it is not known whether something slows the job."""
    lost: float | None = None
    """Share of the job's GPU time on this machine in which nothing was computed; None if unknown."""

    @property
    def sentence(self) -> str:
        """Return the sentence of the first cause, or why none is named."""
        return self.causes[0].says if self.causes else self.nothing or f"not known: {self.unknown}"

    @property
    def answer(self) -> dict[str, Any]:
        """Return the reasons for JSON."""
        return {**self._asdict(), "causes": [cause._asdict() for cause in self.causes], "sentence": self.sentence}


def reasons(figures: Figures) -> Reasons:
    """Return at most three causes. With less than a minute of readings, only rules that need no share apply."""
    numbers = figures.numbers
    is_read = figures.seconds >= LEAST_SECONDS
    rules = [rule for rule in RULES["why"] if (is_read or loss_of(rule) == ALL) and _holds(rule, numbers)]
    still = {rule["cause"] for rule in rules if loss_of(rule) == ALL}
    explained: set[str] = set()
    causes = []
    for rule in rules:
        loss, is_again = loss_of(rule), loss_of(rule) in explained
        if (still and rule.get("is_effect")) or (is_again and loss != ALL):
            continue
        explained.add(loss)
        share = 1.0 if loss == ALL else numbers[loss]
        wide = figures.ranks if loss in WIDE else 0
        says = WORD.sub(lambda match: figures.words.get(match[1], "?"), rule["says"])
        lost = 0.0 if is_again else share * max(wide, 1.0 if loss == LATE else figures.gpus)
        figured = ((numbers[name], *FIGURES[name]) for name in rule["when"])
        shown = [f"{text.format(number).replace('%', ' %')} ({source})" for number, _, text, source in figured]
        do = RULES["do"].get(rule["do"], rule["do"])
        causes.append(Cause(rule["cause"], says, do, shown, lost, rule.get("is_most", False)))
    causes.sort(key=lambda cause: (cause.cause not in still, -cause.lost))  # a standstill's causes come first
    lost = sum(numbers.get(f"share.{state}", 0.0) for state in USELESS) + numbers.get("share.waiting", 0.0)
    if causes:
        return Reasons(causes[:MOST], lost=lost if is_read else None)
    if not is_read:
        return Reasons(unknown=f"it was read for {figures.seconds:.0f} s, a minute is needed")
    rest = "; clocks are not compared: --level detailed" if figures.gpus >= 4 and "clocks" not in numbers else ""
    unknown = _unknown(figures, lost)
    return Reasons(nothing="" if unknown else f"nothing slows it{rest}", unknown=unknown, lost=lost)


def _unknown(figures: Figures, lost: float) -> str:
    """Return why a job may be slow although no rule applies; "" if nothing slows it."""
    numbers, why = figures.numbers, "; ".join(figures.unknown)
    unread = sum(numbers.get(f"share.{state}", 0.0) for state in UNREAD)
    if unread >= LEAST:
        return why or f"{100 * unread:.0f} % of its GPU time was not read"
    if lost >= LEAST:
        return f"its GPUs do nothing {100 * lost:.0f} % of the time, and no reading shows why"
    if max(figures.ranks, figures.gpus) <= 1 or "share.waiting" in numbers or numbers.get("collectives"):
        return ""
    if not why and figures.ranks:  # all ranks may hang in a collective that all have launched
        why = f"RAS counts no new collective in {figures.seconds:.0f} s"
    why = why or "NCCL's RAS does not answer, and the GPUs' units are not read"
    return f"whether its kernels wait for each other: {why}"


def loss_of(rule: Mapping[str, Any]) -> str:
    """Return the figure that says how much a rule's cause costs, or ALL: the first one, if the rule names none."""
    return str(rule.get("loss", rule["when"][0]))


def _holds(rule: Mapping[str, Any], numbers: Mapping[str, float]) -> bool:
    """Return whether a job has each figure of `when`, and none of `unless`."""
    has = (numbers.get(name, 0.0) >= FIGURES[name][0] for name in rule["when"])
    return all(has) and not any(numbers.get(name, 0.0) >= FIGURES[name][0] for name in rule.get("unless", ()))
