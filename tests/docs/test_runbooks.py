"""Each alarm has a page in docs/runbooks, which states the alarm's own condition."""

import re
import shlex
from pathlib import Path

import pytest

from chipwatch.advisor.catalogue import catalogue
from chipwatch.advisor.dashboard.alarms import KEYS, RULES
from chipwatch.commands.parser import parsed_words
from chipwatch.contract.advice import Scope

FOLDER = Path(__file__).parents[2] / "docs/runbooks"


def test_each_alarm_has_a_page_and_each_page_an_alarm():
    assert {path.stem for path in FOLDER.glob("*.md")} == {*KEYS, "README"}
    index = (FOLDER / "README.md").read_text()
    assert [key for key in KEYS if f"({key}.md)" not in index] == []


def test_the_address_of_the_pages_is_the_same_everywhere_and_the_projects():
    root = FOLDER.parents[1]
    texts = [path.read_text() for path in (*root.glob("terraform/**/variables.tf"), root / "helm/chipwatch/Chart.yaml")]
    given = re.findall(r'(?ms)variable "runbooks" \{.*?default += "(.*?)"|^sources: \[(.*?)\]', "\n".join(texts))
    assert {name or f"{source}/docs/runbooks" for name, source in given} == {Scope.runbooks}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.key)
def test_a_page_says_what_it_means_what_to_look_at_and_what_to_do(rule):
    text = (FOLDER / f"{rule.key}.md").read_text()
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    assert [part.partition("\n")[0] for part in parts[1:]] == ["What it means", "What to look at", "What to do"]
    assert all(len(part.split()) > 8 for part in parts[1:])
    assert parts[0].startswith(f"# {rule.key}\n\n{rule.title}: {rule.severity}. Condition: ")
    if rule.statistic == "absent":
        assert f"no point for {rule.minutes:g} minutes" in parts[0]
    else:
        assert f"`{rule.metric}` {'below' if rule.below else 'above'} {rule.threshold:g}" in parts[0]
        assert f"for {rule.minutes:g} min" in parts[0]


def test_each_command_of_ours_on_a_page_parses_and_each_metric_is_in_the_catalogue():
    words = [(path.stem, word) for path in FOLDER.glob("*.md") for word in re.findall(r"`([^`\n]+)`", path.read_text())]
    commands = [word for _, word in words if word.startswith("chipwatch ")]
    assert len({*commands}) > 6
    for command in commands:
        assert parsed_words(shlex.split(command)[1:]).command != "help", command
    metrics = {metric.name for ours in catalogue().values() for metric in ours}
    assert [(page, word) for page, word in words if re.fullmatch(r"\w+(\.\w+)+", word) and word not in metrics] == []
    rules = {rule.key: rule for rule in RULES}
    dims = {metric.name: {*metric.dims} for ours in catalogue().values() for metric in ours}
    added = {"exported_job", "namespace", "partition", "instance", "job"}
    for key in KEYS:
        said = re.findall(r"^- The labels? [^.;(:]*", (FOLDER / f"{key}.md").read_text(), re.MULTILINE)
        labels = {*re.findall(r"`(\w+)`", " ".join(said))}
        assert labels <= dims.get(rules[key].metric, set()) | added, key
