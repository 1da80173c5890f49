"""docs/operations.md leads from questions to pages by their titles; the limits of docs/limits.md are the program's."""

import re
from pathlib import Path
from random import Random

from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.engine.clock import DEADLINE
from chipwatch.engine.spool.queue import CHUNK_POINTS
from chipwatch.engine.spool.sqlite import encode_points
from chipwatch.engine.validation import MOST_POINTS
from chipwatch.engine.window import MOST_VALUES, Window
from chipwatch_sinks.cloudwatch import CloudwatchSink
from chipwatch_sinks.google import GoogleSink

DOCS = Path(__file__).parents[2] / "docs"
HEADING = re.compile(r"(?m)^# (.+)$")


def limit(subject):
    """Return the second cell of a row of the table of limits."""
    return re.search(rf"(?m)^\| {re.escape(subject)}[^|]* \| ([^|]*) \|", (DOCS / "limits.md").read_text())[1]


def test_each_question_leads_to_a_page_by_its_title():
    rows = re.findall(r"(?m)^\| [^|]*\? \| (.*) \|$", (DOCS / "operations.md").read_text())
    assert len(rows) >= 9
    for row in rows:
        title, page = re.match(r"\[(.+?)\]\((\S+?)\)", row).groups()
        assert HEADING.search((DOCS / page).read_text())[1] == title


def test_the_limits_are_what_the_program_has():
    assert limit("series of a sink") == f"{CloudwatchSink.limits.max_series}: `max_series`"
    assert GoogleSink.limits.max_series == CloudwatchSink.limits.max_series
    assert limit("unsent points") == f"{Config().spool_bytes >> 20} MiB: `spool_bytes`"
    hours = [sink.limits.max_age / 3600 for sink in (CloudwatchSink, GoogleSink)]
    assert (
        limit("age of unsent points")
        == f"{round(hours[0] / 24)} days for CloudWatch and MLflow, {hours[1]:g} h for Google"
    )
    assert limit("points of one reading") == f"{MOST_POINTS:,}"
    assert limit("distinct values") == f"{MOST_VALUES}"
    assert limit("the stop") == f"{DEADLINE:g} s for the sinks, {DEADLINE + 1:g} s in all"


def bytes_of_a_point(window, interval, at=1_800_000_000 * 10**9):
    """Return the bytes of a point in the spool, of windows in which half of the series are gauges that always change."""
    dice, machine = Random(1), Dimensions(instance_id="i-0123456789abcdef0")
    kinds = [
        (counter, gauge)[n % 2](f"gpu.metric.{n // 8}", "W", "A metric of a device.", dims=("gpu",))
        for n in range(CHUNK_POINTS)
    ]
    dims, made, points = [Dimensions(gpu=str(n)) for n in range(8)], Window(window, born=at), []
    for tick in range(0, 2 * window + 1, interval):
        now = at + tick * 10**9
        read = [
            kind.point(now, dice.uniform(0, 700), dims[n % 8])
            if n % 2
            else kind.point(now, (tick + n) * 10**9, dims[n % 8], start_time=at)
            for n, kind in enumerate(kinds)
        ]
        points = made.add(read, now) or points
    return len(encode_points(points, machine)) / len(points)


def test_the_table_of_hours_is_what_the_bytes_of_a_point_make_of_128_mib():
    rows = re.findall(
        r"(?m)^\| ([\d,]+|bytes of a point) \| (.+) \| (.+) \| (.+) \|$", (DOCS / "limits.md").read_text()
    )
    windows = ((60, 5), (60, 1), (10, 1))
    sizes = [bytes_of_a_point(*each) for each in windows]
    assert rows[0] == ("bytes of a point", *(f"{size:.0f}" for size in sizes))
    for series, *cells in rows[1:]:
        for size, (window, _), cell in zip(sizes, windows, cells, strict=True):
            hours = Config().spool_bytes / size / int(series.replace(",", "")) * window / 3600
            assert abs(hours - float(cell.removesuffix(" h"))) < 0.05 * hours, (series, hours)
    assert f"({rows[2][1]} of 500 series; " in (DOCS.parent / "README.md").read_text()
