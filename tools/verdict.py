"""Makes the table of rules in docs/verdict-rules.md, and the table of situations by caller."""

from __future__ import annotations

from pathlib import Path

from tests.agent.collectors.nvidia.test_health import SICK
from tests.agent.jobs.verdict import situations

from chipwatch.advisor.catalogue import catalogue
from chipwatch.jobs.verdict.callers import CALLERS, code_of
from chipwatch.jobs.verdict.rules import RULES, Rule

PAGE = Path(__file__).parents[1] / "docs/verdict-rules.md"
BEGIN, END = "<!-- rules of chipwatch verdict, by `make golden` -->\n", "<!-- end of rules -->\n"
HEADS = ("signal", "message", "level", " ".join(CALLERS), "incident", "source", "test")
TESTS = {
    "gpu.fault": "nvidia/test_health.py::test_a_sick_gpu_is_named_by_its_fault",
    "gpu.link.errors": "nvidia/test_health.py::test_a_sick_gpu_is_named_by_its_fault",
    "gpu.xid": "jobs/verdict/test_situations.py::test_a_situation_has_the_verdict_that_a_person_would_give",
    "kernel.events": "test_kernel.py::test_a_message_of_a_public_capture_has_its_kind",
}
"""Metric -> the test, beside the one that each rule has."""
EACH = "jobs/verdict/test_rules.py::test_each_rule_holds_for_its_series_and_not_for_a_good_one"


def page() -> str:
    """Return docs/verdict-rules.md with its table of rules."""
    head, mark, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (mark and end):
        raise LookupError(f"{PAGE.name} has no longer: {BEGIN} and {END}")
    lines = (" | ".join(cells) for cells in (HEADS, ["---"] * len(HEADS), *map(row, RULES)))
    return f"{head}{mark}{''.join(f'| {line} |' + chr(10) for line in lines)}{end}{tail}"


def row(rule: Rule) -> list[str]:
    """Return the cells of a rule."""
    only = ", ".join(f"{key}={'/'.join(words)}" for key, words in rule.only.items())
    form = f"is {'below' if rule.below else 'above'} {rule.limit:g}"
    if not rule.gauge:
        form = f"rises in an hour by more than {rule.limit:g}" if rule.limit else "rises"
    says = rule.says.replace("{value:.0f}", "...").format_map(dict.fromkeys(("xid", "port", "kind", "action"), "..."))
    codes = " ".join(str(code_of(rule.severity, caller)) for caller in CALLERS)
    known = [name for name, metrics in catalogue().items() if rule.metric in {metric.name for metric in metrics}]
    signals = {rule.metric, *(word for words in rule.only.values() for word in words)}
    codes_of_dcgm = {f"{code}" for _, code, _, _, _, fault in SICK if code != "-" and fault in signals}
    source = "; DCGM ".join(filter(None, (", ".join(known), ", ".join(sorted(codes_of_dcgm)))))
    signal = f"`{rule.metric}{f'{{{only}}}' if only else ''}` {form}"
    level = f"{rule.severity}; alone {rule.alone}" if rule.alone else rule.severity
    return [signal, says, level, codes, rule.incident or "-", source, f"`{TESTS.get(rule.metric, EACH)}`"]


def table() -> str:
    """Return the table of situations by caller."""
    return "".join(f"{line}\n" for line in situations.rows())
