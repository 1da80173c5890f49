import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chipwatch.collectors.openmetrics.endpoint import Endpoint
from chipwatch.commands import sample as report
from chipwatch.commands.sample import field_docs, sample_config


@dataclass(frozen=True)
class Documented:
    """Options of all kinds."""

    plain: int = 1
    """A number."""
    long: tuple[str, ...] = ("a", 'b"')
    """A list
    over two lines."""
    bare: bool = True
    table: Mapping[str, int] = field(default_factory=lambda: {"a": 1})
    unset: float | None = None
    """Not set."""
    path: Path = Path("/x")
    """A path."""


def test_a_class_without_a_source_has_no_texts():
    made = dataclasses.make_dataclass("Made", [("a", int, 1)])
    assert field_docs(made) == {}
    assert field_docs(int) == {}


def test_every_kind_of_default_is_toml():
    lines = list(report._options(Documented))
    assert lines == [
        "#   A number.",
        "# plain = 1",
        "#   A list over two lines.",
        '# long = ["a", "b\\""]',
        "# bare = true",
        "# table = {a = 1}",
        "#   Not set.",
        '# unset = ""  # not set',
        "#   A path.",
        '# path = "/x"',
    ]


def test_every_option_of_the_sample_is_explained():
    sample = sample_config().splitlines()
    bare = [
        line
        for above, line in zip(["", *sample], sample, strict=False)
        if re.match(r"# \w+ = ", line) and not above.startswith("#   ")
    ]
    assert bare == []


def test_the_sample_shows_the_options_of_tables_within_a_table():
    text = sample_config()
    block = text.partition("#   [collectors.openmetrics.endpoints.NAME]\n")[2].partition("\n\n")[0]
    table = tomllib.loads("\n".join(line.removeprefix("#   ") for line in block.splitlines()))
    assert {*table} == {field.name for field in dataclasses.fields(Endpoint)}


def test_the_sample_of_one_plugin_has_its_options_only():
    tables = tomllib.loads(re.sub(r"^# (?=\[|\w+ = )", "", sample_config("disk"), flags=re.MULTILINE))
    assert {name: {*of} for name, of in tables.items()} == {"collectors": {"disk"}}
    assert "paths" in tables["collectors"]["disk"]
    assert tomllib.loads(sample_config("stdout")) == {}
