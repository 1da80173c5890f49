"""The navigation of the site follows docs/README.md; tests/proof/test_site.py builds the site and looks at it."""

import re
from pathlib import Path

import pytest
from tools import site

ORDER = ["Start", "Look", "Send", "Fleets", "Hardware", "Jobs", "Extend", "Reference", "Maintain"]


@pytest.fixture
def pages(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "PAGES", tmp_path)
    return site.copy_pages()


def paths(entries):
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from paths([below] if isinstance(below, str) else below)


def test_each_page_is_in_exactly_one_place_of_the_navigation(pages):
    navigation = site.navigation(pages)
    assert [next(iter(section)) for section in navigation] == ["Chipwatch", *ORDER]
    assert sorted(paths(navigation)) == sorted(pages)


def test_each_runbook_stands_below_runbooks(pages):
    (send,) = [section["Send"] for section in site.navigation(pages) if "Send" in section]
    (runbooks,) = [entry["Runbooks"] for entry in send if "Runbooks" in entry]
    assert len(runbooks) == len([*(site.ROOT / "docs/runbooks").iterdir()])


def test_the_index_names_each_page_once():
    links = [Path(link).name for link in re.findall(r"\]\(([^)]+\.md)\)", (site.ROOT / site.INDEX).read_text())]
    links = [link for link in links if link != "README.md"]
    assert sorted(set(links)) == sorted(links)
