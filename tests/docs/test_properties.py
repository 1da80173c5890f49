"""The evidence of docs/maintain/properties.md exists: each source, and each law of the search."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/maintain/properties.md").read_text()
LAW = r"(?:delivery|counters|jobs|recorder|status|secrets|bounds|life): [^\"`]+"


def test_there_are_forty_statements_of_each_kind_with_evidence():
    rows = re.findall(r"^\| (always|sometimes|never) \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 40
    assert {kind for kind, _ in rows} == {"always", "sometimes", "never"}
    assert all(evidence.startswith(("search", "`tests/")) for _, evidence in rows)


def test_each_source_that_it_names_exists():
    for file in re.findall(r"`([a-z_]+/[\w/]+\.py)`", PAGE):
        assert any((ROOT / folder / file).exists() for folder in ("agent/chipwatch", "sinks", ".")), file


def test_it_has_each_law_that_the_search_judges_and_no_other():
    source = "".join(path.read_text() for path in (ROOT / "tests/search").glob("*.py"))
    assert {*re.findall(f"search: `({LAW})`", PAGE)} == {*re.findall(f'"({LAW})"', source)}
