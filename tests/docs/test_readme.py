"""The figures of README come from docs/benchmarks.md."""

from pathlib import Path

import pytest
from tools.readme import BENCHMARKS, with_figures

from chipwatch.advisor.catalogue import catalogue

README = (Path(__file__).parents[2] / "README.md").read_text()
TABLE = """
| **chipwatch: JSON lines, basic** | 1.8 (1.7 to 2.0) | 1.2 | 24 | 17 |
| **chipwatch: CloudWatch, a point a minute** | 3.1 (2.9 to 3.2) | 1.9 | 41 | 29 |
"""


def test_readme_has_the_costs_of_the_page_of_benchmarks():
    assert with_figures(README, BENCHMARKS.read_text()) == README, "renew it with `make picture`"


def test_readme_is_short():
    assert len(README.split()) <= 1200, "at most 1,200 words, with outputs: what is longer goes to a page of docs/"


def test_readme_has_the_number_of_metrics():
    assert f"[{len({metric.name for metrics in catalogue().values() for metric in metrics})} metrics](" in README


def test_the_costs_follow_the_table():
    row = "To read a host every second beside the training takes {}.\n"
    new = "0.18 % of a core, 24 MB; 41 MB with CloudWatch ([benchmarks](docs/benchmarks.md))"
    assert with_figures(row.format("old"), TABLE) == row.format(new)


def test_a_page_without_the_row_is_refused():
    with pytest.raises(AssertionError):
        with_figures("# chipwatch\n", TABLE)
