"""The frame names no cloud, sink or collector: what belongs to one of them stands with it, or in a table of data."""

import ast
import re
from pathlib import Path

import pytest

from chipwatch.config import plugins

ROOT = Path(__file__).parents[2]
ROOMS = ("config/*.py", "engine/**/*.py", "service/[ahlps]*.py", "advisor/plan/*.py", "advisor/dashboard/*.py")
FILES = [path for room in ROOMS for path in sorted((ROOT / "agent/chipwatch").glob(room))]
WORDS = {"apple", "aws", "azure", "ec2", "ecs", "gce", "gcp", "gcloud", "amazon", "datadog"}
PLAIN = {
    "container", "cpu", "disk", "memory", "network", "pressure", "process",  # what every host has
    "ipu", "rdma", "tpu",  # capitals in a title
}  # fmt: skip
ALLOWED = {"config/load.py": {"stdout"}}
"""The sink of a run that names none."""


def words_of(path):
    """Return the words of names and texts of a source, but for comments and docstrings."""
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docs:
                found = text
            case ast.Name(id=found) | ast.Attribute(attr=found) | ast.arg(arg=found) | ast.keyword(arg=str(found)):
                pass
            case ast.FunctionDef(name=found) | ast.ClassDef(name=found) | ast.alias(name=found):
                pass
            case _:
                continue
        yield from re.findall("[a-z0-9]+", re.sub("(?<=[a-z])(?=[A-Z])", " ", found).lower())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "agent/chipwatch")))
def test_no_cloud_sink_or_collector_is_named(path):
    named = WORDS | {*plugins.installed(plugins.SINKS), *plugins.installed(plugins.COLLECTORS)} - PLAIN
    found = {*words_of(path)} & named
    assert found == ALLOWED.get(str(path.relative_to(ROOT / "agent/chipwatch")), set())


def test_the_rule_sees_names_and_texts_and_no_comments(tmp_path):
    file = tmp_path / "a.py"
    file.write_text(
        '"""Of google."""\nimport chipwatch_sinks.stdout\nx = {"the neuron": GoogleSink}  # nvidia\ny = f"{x} aws/"\n'
    )
    assert {"stdout", "neuron", "google", "aws"} <= {*words_of(file)}
    assert "nvidia" not in words_of(file)
