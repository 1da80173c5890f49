"""The links of README, docs and the pages of deployment lead somewhere, docs/README.md names every page, and tests are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "ecs-sidecar/README.md")]
PAGES += [
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("docs/maintain/*.md"),
    *ROOT.glob("docs/runbooks/*.md"),
    *ROOT.glob("helm/*/README.md"),
    *ROOT.glob("terraform/*/README.md"),
]


def anchors(page):
    """Return the headings of a page in the form of links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_link_leads_to_a_file_and_a_heading():
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text())):
            path, _, heading = link.partition("#")
            there = page.parent / path if path else page
            if not re.match(r"\w+:", link) and not (there.exists() and (not heading or heading in anchors(there))):
                broken.append(f"{page}: {link}")
    assert broken == []


def test_each_page_begins_with_a_task():
    pages = [page for page in ROOT.glob("docs/*.md") if page.name != "README.md"]
    assert [page.name for page in pages if not re.match(r"# .+\n\nTo [a-z]", page.read_text())] == []


def test_the_index_names_every_page():
    index = (ROOT / "docs/README.md").read_text()
    missing = [page.name for page in ROOT.glob("docs/*.md") if f"({page.name})" not in index]
    assert missing == ["README.md"]


def test_each_test_that_a_row_names_exists():
    names = ("maintain/faults", "maintain/properties", "maintain/bounds", "security-model")
    rows = "".join((ROOT / f"docs/{name}.md").read_text() for name in names)
    shown = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", rows)
    assert len(shown) > 80
    texts = {file: (ROOT / file).read_text() for file, _ in shown}
    assert [f"{file}::{name}" for file, name in shown if f"def {name}(" not in texts[file]] == []
