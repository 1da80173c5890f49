"""The page gets what was measured and keeps what people wrote; the chart shows each program."""

from xml.etree import ElementTree as ET

import pytest
from tests.peers import chart, page
from tests.peers.measure import Usage


def used(cpu, rss=20.0):
    return Usage(cpu=cpu, rss=rss, pss=rss / 2, threads=5, switches=12, calls=30.5, written=0, sent=12345)


RESULTS = {"stdout": [used(3.0), used(1.0), used(2.0)], "psutil": [used(2.0, 14), used(1.0, 14), used(1.5, 14)]}


def test_only_the_part_between_its_comments_is_replaced():
    text = "# Page\n<!-- table, by `make peers` -->\nold\n<!-- end of table -->\n## Where the time goes\nby hand\n"
    once = page.replaced(text, "table", "new\n")
    assert once == text.replace("old", "new")
    assert page.replaced(once, "table", "new") == once
    with pytest.raises(LookupError, match="scale"):
        page.replaced(text, "scale", "new")


def test_a_row_has_medians_the_spread_and_the_median_of_the_ratios_of_rounds():
    lines = page.table(RESULTS, {"telegraf": "`telegraf` is not installed"}).splitlines()
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert (
        "| **chipwatch: JSON lines, basic** | 2.0 (1.0 to 3.0) | 1.33 | 20 | 10 | 5.0 | 12 | 30 | 0 | 12,345 |" in lines
    )
    assert lines[-1] == "- Telegraf, seven inputs: `telegraf` is not installed"


def test_the_chart_is_an_image_for_light_and_dark_pages_with_the_least_cpu_first():
    text = chart.svg(page.bars(RESULTS))
    root = ET.fromstring(text)
    words = [each.text for each in root.iter() if each.tag.endswith("text")]
    assert words.index("loop with psutil, 64 values") < words.index("chipwatch: JSON lines, basic")
    assert root.get("width") == "800"
    assert "prefers-color-scheme: dark" in text
