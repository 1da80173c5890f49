"""docs/operations.md leads from questions to pages by their titles; the limits of docs/limits.md are the program's."""

import re
from pathlib import Path

from chipwatch.config.options import Config
from chipwatch.engine.clock import DEADLINE
from chipwatch.engine.validation import MOST_POINTS
from chipwatch.engine.window import MOST_VALUES
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
