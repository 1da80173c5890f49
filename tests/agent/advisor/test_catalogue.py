import json

import pytest

from chipwatch.advisor.catalogue import catalogue, columns, listing, rows
from chipwatch.commands.sample import sample_config
from chipwatch.contract.datapoint import Kind, Level, gauge
from chipwatch.contract.errors import ConfigError
from chipwatch.engine.self_metrics import INCIDENT, AgentCollector


def test_the_catalogue_is_there_before_any_hardware_is():
    found = catalogue()
    assert set(found) >= {"container", "cpu", "disk", "memory", "network", "pressure", "process", "agent"}
    assert {name for name, metrics in found.items() if not metrics} == {"openmetrics"}  # it has the names that it finds
    assert found["agent"] == list(AgentCollector.metrics)


def test_a_plugin_whose_library_is_missing_is_left_out_of_the_list_and_of_the_sample(others, caplog):
    others.add("needy", "import no_such_library", collectors=[("needy", "Needy")], sinks=[("alsoneedy", "Needy")])
    assert "needy" not in catalogue()
    line = "collectors.needy is left out: it cannot be loaded: No module named 'no_such_library'"
    assert caplog.messages == [line]
    sample = sample_config()
    assert f"\n# {line}\n" in sample
    assert "[collectors.needy]" not in sample
    assert f"\n# {line.replace('collectors.needy', 'sinks.alsoneedy')}" in sample


def test_a_row_tells_all_of_a_metric():
    metric = gauge("x.load", "{thread}", "The load.", Level.ALL, ("b", "a"))
    assert rows({"mine": [metric]}) == [("x.load", "gauge", "{thread}", "all", "b,a", "mine", "The load.")]


def test_the_list_is_text_json_or_markdown_of_the_same_rows():
    expected = rows(catalogue())
    assert [tuple(row.values()) for row in json.loads(listing("json"))] == expected
    lines = listing("markdown").splitlines()
    assert lines[0] == "| name | kind | unit | level | dimensions | collector | help |"
    assert [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in lines[2:]] == expected
    assert [tuple(line.split()[:2]) for line in listing("text").splitlines()[1:]] == [row[:2] for row in expected]


def test_metrics_of_several_collectors_are_one_row_where_the_collector_is_cut():
    table = [("name", "collector", "help"), *(("gpu.power", name, "Power that the device draws.") for name in "ab")]
    assert columns(table).count("gpu.power") == 2
    assert columns(table, 40).splitlines() == ["name       help", "gpu.power  Power that the device draws."]


def names(text):
    return [line.split()[0] for line in text.splitlines()[1:]]


def test_a_word_is_a_part_of_a_name_a_collector_or_a_family():
    assert {*names(listing(word="memory.used"))} >= {"memory.used", "gpu.memory.used"}
    assert all("memory.used" in name for name in names(listing(word="memory.used")))
    assert {row["collector"] for row in json.loads(listing("json", "disk.device"))} == {"disk"}
    assert {row["collector"] for row in json.loads(listing("json", "gpu"))} >= {"nvidia", "amd"}
    assert {row["collector"] for row in json.loads(listing("json", "host"))} >= {"cpu", "memory"}


def test_a_level_leaves_out_what_is_above_it():
    assert {row["level"] for row in json.loads(listing("json", level="detailed"))} == {"basic", "detailed"}
    assert {row["level"] for row in json.loads(listing("json", level="basic"))} == {"basic"}


def test_here_are_only_metrics_that_this_machine_has():
    here = json.loads(listing("json", here=True))
    assert {"memory.used", "agent.memory.rss"} <= {row["name"] for row in here}
    assert not {row["collector"] for row in here} & {"ipu", "tpu", "apple"}


@pytest.mark.parametrize("width", [200, 120, 100, 80, 60])
def test_no_line_is_wider_than_the_terminal(width):
    lines = listing(width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) == len({*lines}) or width == 200
    assert {*names("\n".join(lines))} == {*names(listing())}
    assert lines[0].split()[:: len(lines[0].split()) - 1] == ["name", "help"]
    assert len(lines[0].split()) == {200: 7, 120: 6, 100: 4, 80: 2, 60: 2}[width]


def test_where_no_metric_fits_it_says_so():
    with pytest.raises(ConfigError, match=r"^list xyzzy: no metric fits; `chipwatch list` prints all$"):
        listing(word="xyzzy")
    with pytest.raises(ConfigError, match=r"^list gpuu: no metric fits; did you mean gpu or "):
        listing(word="gpuu")


def test_where_counters_at_0_are_not_sent_a_collector_has_something_else_that_tells_that_it_reads():
    always = {"network.sent"}
    without = [
        name
        for name, metrics in catalogue().items()
        if (basic := [metric for metric in metrics if metric.level is Level.BASIC])
        and not any((metric.kind is Kind.GAUGE and metric is not INCIDENT) or metric.name in always for metric in basic)
    ]
    assert without == ["kernel", "agent"]  # docs/decisions/0049 says what one does there
