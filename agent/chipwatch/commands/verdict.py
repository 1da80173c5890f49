"""`chipwatch verdict`: prints the verdict on this machine, as text for people, a line for programs, or JSON."""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

from chipwatch.base.redaction import one_line
from chipwatch.base.text import line_width
from chipwatch.commands.command_line import flags
from chipwatch.commands.output import show, wrapped
from chipwatch.config.identity.names import places
from chipwatch.config.load import load
from chipwatch.jobs.verdict import expect
from chipwatch.jobs.verdict.callers import DEGRADED, NOT_FIT, UNKNOWN, code_of
from chipwatch.jobs.verdict.judge import Unknown, Verdict, judge
from chipwatch.jobs.verdict.reading import expected_by_type, readings
from chipwatch.jobs.verdict.rules import HOUR, Reason
from chipwatch.service.wanted import check_places
from chipwatch.show.report.amounts import utc

TIMEOUT: Final = 2.0
"""Default time limit (s), from the start of this program."""
WIDTH: Final = 100
"""Most columns of the text; a terminal may have fewer."""
MAX_EVIDENCE: Final = 200
"""Most characters of a message of the kernel."""
DRA: Final = re.compile(r"gpu-\d+")
"""A GPU's name in the pools of NVIDIA's DRA driver: its minor number (kubernetes-sigs/dra-driver-nvidia-gpu#428)."""
TAINT: Final = {"key": "chipwatch/health", "value": "Unhealthy", "effect": "NoSchedule"}
"""The taint of a GPU that is not fit; KEP-4680 has the word, KEP-5055 the effect."""
STATUS: Final = {NOT_FIT: "True", UNKNOWN: "Unknown"}
"""Verdict -> status of the node's condition HardwareProblem; that of others is False."""
MAX_LINE: Final = 600
"""Most characters of the line for programs; Slurm's drain reasons and Kubernetes' conditions are no longer."""


def main(given: SimpleNamespace) -> int:
    """Print the verdict; return its exit code. Raise ConfigError."""
    logging.disable(logging.ERROR)  # the verdict says what is wrong
    caller, words = given.caller, getattr(given, "expect", None)
    expected = expect.parse(words) if words is not None else []
    config, timeout = load(getattr(given, "config", None), flags(given)), getattr(given, "timeout", TIMEOUT)
    check_places(config)
    answer, source = readings(config, timeout)
    unknown: list[Unknown] = []
    if hasattr(given, "expect_from"):
        expected = expected_by_type(config, unknown, timeout)
    verdict = judge(answer, expected, config.sys, unknown, source)
    code = code_of(verdict.word, caller)
    if hasattr(given, "json"):
        text = as_json(verdict, code)
    elif caller == "kubernetes":
        text = as_kubernetes(verdict, answer.get("names", {}))
    else:
        text = as_text(verdict) if caller == "person" else as_line(verdict)
    show(text, may_be_closed=True)
    return code


def as_text(verdict: Verdict) -> str:
    """Return a block for each severity, then a line with what is fine, then unknown things."""
    margin = max([10, *(len(reason.about) for reason in verdict.reasons)]) + 2
    rows = [] if verdict.word in (NOT_FIT, DEGRADED) else [(verdict.word.upper(), "")]
    for severity in (NOT_FIT, DEGRADED):
        group = [reason for reason in verdict.reasons if reason.severity == severity]
        rows += [(severity.upper(), "")] if group else []
        for reason in group:
            rows.append((f"  {reason.about}", f"{_sentence(reason)}. {reason.do}"))
            if reason.shown_by and reason.shown_by.text:
                rows.append(("", one_line(reason.shown_by.text, MAX_EVIDENCE)))
    if verdict.fine:
        rows.append(("FINE", ", ".join(verdict.fine)))
    rows += (("UNKNOWN", one_line(f"{unknown.about} ({unknown.why})")) for unknown in verdict.unknown)
    width = max(line_width(WIDTH), margin + 41)
    return "\n".join(line for word, text in rows for line in wrapped(f"{word:<{margin}} ", text, width) or [word])


def as_line(verdict: Verdict) -> str:
    """Return one line: the verdict, then its reasons, with those first that decide it."""
    worst = sorted(verdict.reasons, key=lambda one: one.severity != NOT_FIT)
    parts = [f"{one.about}: {_sentence(one)}. {one.do}" for one in worst]
    if verdict.word == UNKNOWN:
        parts = [f"{one.about}: {one.why}" for one in verdict.unknown if one.decides] + parts
    text = "; ".join(parts) or ", ".join(verdict.fine)
    return one_line(f"{verdict.word.upper()}{f': {text}' if text else ''}".replace("|", "/"), MAX_LINE)


def as_kubernetes(verdict: Verdict, names: Mapping[str, Mapping[str, str]]) -> str:
    """
    Return a List of Kubernetes in JSON: the node with its condition, a DeviceTaintRule for each GPU that is not fit.

    `names`: dimensions of devices by their names. A GPU without the name that NVIDIA's DRA driver gives it has no rule.
    """
    node = next(filter(None, map(os.environ.get, places("Kubernetes")["k8s_node"])), platform.node())
    why, status = f"HardwareIs{verdict.word.title().replace(' ', '')}", STATUS.get(verdict.word, "False")
    condition = {"type": "HardwareProblem", "status": status, "reason": why, "message": as_line(verdict)}
    objects: list[Any] = [("v1", "Node", node, {"status": {"conditions": [condition]}})]
    unfit = {one.shown_by.dims.get("gpu", "") for one in verdict.reasons if one.severity == NOT_FIT and one.shown_by}
    for device in (name for name, dims in names.items() if DRA.fullmatch(name) and dims.get("gpu") in unfit):
        rule = {"deviceSelector": {"driver": "gpu.nvidia.com", "pool": node, "device": device}, "taint": TAINT}
        objects.append(("resource.k8s.io/v1", "DeviceTaintRule", f"chipwatch-{node}-{device}", {"spec": rule}))
    items = [{"apiVersion": api, "kind": kind, "metadata": {"name": name}, **of} for api, kind, name, of in objects]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)


def as_json(verdict: Verdict, code: int) -> str:
    """Return the verdict as one JSON object."""
    head = {"verdict": verdict.word, "exit_code": code, "source": verdict.source}
    reasons = [{**reason._asdict(), "shown_by": _evidence(reason)} for reason in verdict.reasons]
    rest = {"fine": [*verdict.fine], "unknown": [one._asdict() for one in verdict.unknown]}
    return json.dumps({**head, "reasons": reasons, **rest}, indent=1)


def _evidence(reason: Reason) -> dict[str, object] | None:
    if not (shown := reason.shown_by):
        return None
    last = shown.last and utc(shown.last, "%Y-%m-%dT%H:%M:%S+00:00")
    values = {"metric": shown.metric, "dims": dict(shown.dims), "value": shown.value, "last_hour": shown.rose}
    return values | {"last": last, "message": shown.text or None}


def _sentence(reason: Reason) -> str:
    """Say what is wrong, how often it happened, and when last."""
    shown = reason.shown_by
    if shown is None or (shown.last is None and not shown.rose):
        return reason.says
    within = "in the last hour" if shown.seconds == HOUR else f"in {shown.seconds:.1f} s"
    often = f"{shown.rose:g} times {within}" if shown.rose and shown.rose > 1 else ""
    when = "" if shown.last is None else f"at {time.strftime('%H:%M:%S', time.localtime(shown.last / 1e9))}"
    return f"{reason.says} {', last '.join(filter(None, (often, when)))}"
