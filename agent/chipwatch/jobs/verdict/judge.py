"""Judges a machine: combines expectations, rules and the states of collectors into one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chipwatch.jobs.verdict import expect, rules
from chipwatch.jobs.verdict.callers import DEGRADED, FIT, NOT_FIT, UNKNOWN
from chipwatch.jobs.verdict.rules import Reason


class Unknown(NamedTuple):
    """Something that could not be determined, and why; `decides`: the verdict depends on it."""

    about: str
    why: str
    decides: bool


class Verdict(NamedTuple):
    """The judgement of this machine's fitness for work, with its reasons."""

    reasons: Sequence[Reason]
    fine: Sequence[str]
    unknown: Sequence[Unknown]
    source: str
    """Origin of the readings: `agent` for the running agent, `reading` for this command."""

    @property
    def word(self) -> str:
        """Return the verdict: not fit if a reason says so; else unknown if an unknown decides; else degraded or fit."""
        if any(reason.severity == NOT_FIT for reason in self.reasons):
            return NOT_FIT
        if any(unknown.decides for unknown in self.unknown):
            return UNKNOWN
        return DEGRADED if self.reasons else FIT


def judge(
    answer: Mapping[str, Any], expected: list[expect.Expected], sys: Path, unknown: list[Unknown], source: str
) -> Verdict:
    """Return the verdict on an answer of EventHistory; further unknown things are added to `unknown`."""
    series, collectors = [rules.Seen(*fields) for fields in answer["series"]], answer["collectors"]
    missing, open_questions = expect.compare(expected, series, collectors, sys)
    reasons = [*missing, *rules.reasons(series)]
    wrong = [reason for reason in reasons if reason.severity != UNKNOWN]
    unknown += [Unknown(one.about, f"{one.says}. {one.do}", decides=True) for one in reasons if one.severity == UNKNOWN]
    unknown += [Unknown(about, why, decides=True) for about, why in open_questions]
    silent: list[tuple[str, str]] = []
    for name, collector in collectors.items():
        state, error = collector["state"], collector["error"]
        if state == "failing":
            unknown.append(Unknown(name, error, decides=True))
        elif state == "absent" and name == "kernel":  # a missing permission, not a missing device
            unknown.append(Unknown("kernel log", error, decides=False))
        elif state == "absent" and collector.get("is_silent"):
            unknown.append(Unknown(name, error, decides=True))
        elif error and state == "ok":
            unknown.append(Unknown(name, error, decides=False))
        silent += [(dims["gpu"], why) for dims, why in collector.get("silent", ()) if "gpu" in dims]
    unknown += [Unknown(f"gpu {gpu}", why, decides=True) for gpu, why in silent]
    if any("gpu.fault" in collector["metrics"] for collector in collectors.values()):
        unknown += [Unknown(about, why, decides=False) for about, why in rules.unreported_faults(series)]
    if not series and not any(collector["state"] in ("ok", "failing") for collector in collectors.values()):
        unknown.append(Unknown("machine", "nothing was read yet", decides=True))
    if answer.get("is_short"):
        unknown.append(Unknown("rates of errors of GPUs", "there was no time for a second reading", decides=False))
    logged = [rules.KERNEL] if collectors.get("kernel", {}).get("state") == "ok" else []
    return Verdict(wrong, [*rules.fine(series, reasons, logged, all_answer=not silent)], unknown, source)
