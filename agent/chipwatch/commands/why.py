"""`chipwatch why`: why each job is slow, what that costs and what to do, by the running agent."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from chipwatch.contract.errors import ConfigError
from chipwatch.contract.redaction import one_line
from chipwatch.contract.text import similar

WIDTH: Final = 110
DAY: Final = 24


def chosen(answer: Mapping[str, Any], name: str | None) -> list[Mapping[str, Any]]:
    """Return the jobs of that name, all without one; raise ConfigError if there is none."""
    jobs: list[Mapping[str, Any]] = [job for job in answer["jobs"] if name in (None, job["job"])]
    if name is not None and not jobs:
        names = [job["job"] for job in answer["jobs"]]
        close = similar(name, names, 1)
        hint = f"did you mean {close[0]}?" if close else f"those that do: {', '.join(names) or 'none'}"
        raise ConfigError(f"no job {name} holds an accelerator here; {hint}")
    return jobs


def why_text(answer: Mapping[str, Any], name: str | None) -> str:
    """Return a block for each job: its causes, or why there are none."""
    lines = [line for job in chosen(answer, name) for line in _lines(job, answer["dollars_per_hour"])]
    lines = lines or ["no job holds an accelerator"]
    return "\n".join([*lines, *(f"{what} unknown: {one_line(str(why))}" for what, why in answer["missing"].items())])


def _lines(job: Mapping[str, Any], price: float | None) -> Iterator[str]:
    why = job["why"]
    lost = f" loses {100 * why['lost']:.0f} % of its GPU time here" if why["causes"] and why["lost"] else ""
    yield f"job {one_line(job['job'])}{f' ({user})' if (user := one_line(job['user'])) else ''}{lost}:"
    if not why["causes"]:
        yield from _wrapped("  ", why["sentence"])
    for number, cause in enumerate(why["causes"], 1):
        yield from _wrapped(f"  {number}  ", f"{cause['says']}.{_cost(cause, price)}")
        yield from _wrapped("     ", f"by: {'; '.join(cause['evidence'])}")
        yield from _wrapped("     ", cause["do"])


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        one_line(text), WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _cost(cause: Mapping[str, Any], price: float | None) -> str:
    hours = DAY * cause["lost"]
    if not hours:
        return ""
    dollars = "" if price is None else f" (${hours * price:,.2f})"
    return f" {'At most' if cause['is_most'] else 'About'} {hours:.3g} GPU-hours{dollars} a day."
