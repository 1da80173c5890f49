"""Why a job is slow: a pure function from figures of the last minutes to causes, by the rules of reasons.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

TABLE: Final = json.loads(Path(__file__).with_suffix(".json").read_bytes())
WORD: Final = re.compile(r"{([\w.]+)}")
MOST: Final = 3
"""Causes that are named."""
LATE: Final = "rank.late"
WIDE: Final = ("all", "slow", "last", LATE)
"""Losses of one rank for which all others wait, where others are known."""
LEAST: Final = 0.05
"""Share of GPU time below which nothing counts as slowing a job."""
LEAST_SECONDS: Final = 55.0
"""Seconds of readings from which a share is stated."""
USELESS: Final = ("stalled", "held", "throttled", "lost")
UNREAD: Final = ("unknown", "unseen")


class JobFigure(NamedTuple):
    """A figure of a job, and the device, rank or server that it is about."""

    name: str
    """A name of the table, or a word alone for a sentence."""
    number: float
    word: str = ""


class Figures(NamedTuple):
    """The figures of a job over the last minutes; an absent one is unknown."""

    numbers: Mapping[str, float]
    """By the names of the table; `share.` and `idle.` are shares of the GPU time on this machine."""
    words: Mapping[str, str]
    """The device, rank or server that a figure is about."""
    seconds: float
    """Time that was read."""
    gpus: float
    """On this machine."""
    ranks: int = 0
    """On all machines; 0 if unknown."""
    unknown: Sequence[str] = ()
    """Unknown things, and why they are unknown."""


class Cause(NamedTuple):
    """Something that slows a job, and what to do."""

    cause: str
    says: str
    do: str
    evidence: Sequence[str]
    """Figures, and where they come from."""
    lost: float
    """GPUs that stand still for it, as a mean; 0 if a cause above it has the same loss."""
    is_most: bool = False
    """The loss is at most that."""


class Reasons(NamedTuple):
    """The answer: causes, ranked, or why there are none."""

    causes: Sequence[Cause] = ()
    nothing: str = ""
    """Why nothing slows the job."""
    unknown: str = ""
    """Why it is not known."""
    lost: float | None = None
    """Share of the job's GPU time here in which nothing was computed."""

    @property
    def sentence(self) -> str:
        """Return the first cause, or why none is named."""
        return self.causes[0].says if self.causes else self.nothing or f"not known: {self.unknown}"

    @property
    def answer(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**self._asdict(), "causes": [cause._asdict() for cause in self.causes], "sentence": self.sentence}


def reasons(figures: Figures) -> Reasons:
    """Return at most three causes; only what is certain at once where there are readings of less than a minute."""
    numbers = figures.numbers
    is_read = figures.seconds >= LEAST_SECONDS
    rules = [rule for rule in TABLE["rules"] if (is_read or rule["loss"] == "all") and _holds(rule, numbers)]
    stands = any(rule["loss"] == "all" for rule in rules)
    explained: set[str] = set()
    causes = []
    for rule in rules:
        loss, is_again = rule["loss"], rule["loss"] in explained
        if (stands and rule.get("is_effect")) or (is_again and loss != "all"):
            continue
        explained.add(loss)
        share = 1.0 if loss == "all" else numbers[loss]
        wide = figures.ranks if loss in WIDE else 0
        says = WORD.sub(lambda match: figures.words.get(match[1], "?"), rule["says"])
        lost = 0.0 if is_again else share * max(wide, 1.0 if loss == LATE else figures.gpus)
        figured = ((numbers[name], *TABLE["figures"][name]) for name in rule["when"])
        shown = [f"{text.format(number).replace('%', ' %')} ({source})" for number, text, source in figured]
        causes.append(Cause(rule["cause"], says, rule["do"], shown, lost, rule.get("is_most", False)))
    causes.sort(key=lambda cause: -cause.lost)
    lost = sum(numbers.get(f"share.{state}", 0.0) for state in USELESS) + numbers.get("share.waiting", 0.0)
    if causes:
        if stands:  # causes of one loss stay together
            causes.sort(key=lambda cause: cause.cause not in {rule["cause"] for rule in rules if rule["loss"] == "all"})
        return Reasons(causes[:MOST], lost=lost if is_read else None)
    if not is_read:
        return Reasons(unknown=f"it was read for {figures.seconds:.0f} s, a minute is needed")
    rest = "; clocks are not compared: --level detailed" if figures.gpus >= 4 and "clocks" not in numbers else ""
    unknown = _unknown(figures, lost)
    return Reasons(nothing="" if unknown else f"nothing slows it{rest}", unknown=unknown, lost=lost)


def _unknown(figures: Figures, lost: float) -> str:
    """Return why a job may be slow though no rule holds, "" if nothing slows it."""
    numbers, why = figures.numbers, "; ".join(figures.unknown)
    unread = sum(numbers.get(f"share.{state}", 0.0) for state in UNREAD)
    if unread >= LEAST:
        return why or f"{100 * unread:.0f} % of its GPU time was not read"
    if lost >= LEAST:
        return f"its GPUs do nothing {100 * lost:.0f} % of the time, and no reading shows why"
    if max(figures.ranks, figures.gpus) <= 1 or "share.waiting" in numbers or numbers.get("collectives"):
        return ""
    if not why and "ranks.behind" in numbers:  # all ranks may hang in a collective that all have launched
        why = f"RAS counts no new collective in {figures.seconds:.0f} s"
    why = why or "NCCL's RAS does not answer, and the GPUs' units are not read"
    return f"whether its kernels wait for each other: {why}"


def _holds(rule: Mapping[str, Any], numbers: Mapping[str, float]) -> bool:
    wanted: Mapping[str, float] = rule["when"]
    limits = {**wanted, **rule.get("unless", {})}
    return wanted.keys() == {name for name, least in limits.items() if numbers.get(name, 0.0) >= least}
