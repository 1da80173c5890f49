"""Dashboards and rules for two naming profiles side by side: graphs of the later one, and series that join both."""

import re

import pytest
from tests.agent.advisor.dashboard.strict import panels_of

FLAGS = {"level": "all", "names": "dcgm,dcgm4.7"}
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL_RATIO"


def queries(board):
    return [target["expr"] for panel in panels_of(board) for target in panel.get("targets", ())]


def rules(document, names, **wishes):
    (group,) = document("grafana", {**FLAGS, "names": names}, families=("gpu",), records=True, **wishes)["groups"]
    return {rule["record"]: rule["expr"] for rule in group["rules"]}


def test_a_variable_chooses_between_the_new_names_and_the_joined_series(document):
    board = document("grafana", FLAGS, families=("gpu",))
    (variable,) = (one for one in board["templating"]["list"] if one["name"] == "names")
    assert [each.partition(" : ")[2] for each in variable["query"].split(",")] == ["()", "joined:"]
    assert f'{{__name__=~"${{names}}{UTILIZATION}",instance=~"$instance"}}' in queries(board)


def test_what_only_one_profile_renames_or_both_name_alike_is_asked_by_its_name(document):
    texts = queries(document("grafana", FLAGS, families=("gpu", "host")))
    assert 'memory_utilization_ratio{instance=~"$instance"}' in texts
    assert any("(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{instance" in text for text in texts)


def test_one_profile_has_no_such_variable(document):
    board = document("grafana", {**FLAGS, "names": "dcgm4.7"}, families=("gpu",))
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "instance"]


@pytest.mark.parametrize(
    ("names", "record", "first", "second"),
    [
        ("dcgm,dcgm4.7", UTILIZATION, UTILIZATION, "(DCGM_FI_DEV_GPU_UTIL) / 100"),
        ("dcgm4.7,dcgm", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL", f"({UTILIZATION}) * 100"),
        ("dcgm,dcgm4.7", "DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_FB_USED_BYTES", "(DCGM_FI_DEV_FB_USED) * 1048576"),
        ("dcgm,dcgm4.7", "DCGM_FI_DEV_XID_ERROR", "DCGM_FI_DEV_XID_ERROR", "(DCGM_FI_DEV_XID_ERRORS)"),
        ("native,dcgm", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL", "(gpu_utilization_ratio) * 100"),
        ("native,dcgm", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
         "(gpu_energy_joules_total) * 1000"),
    ],
)  # fmt: skip
def test_a_joined_series_has_both_names_in_the_unit_of_the_later_profile(document, names, record, first, second):
    text = rules(document, names)[f"joined:{record}"]
    assert re.fullmatch(rf"max without \([\w, ]+\) \({first}\) or max without \([\w, ]+\) {re.escape(second)}", text)


def test_the_labels_that_moved_are_dropped_and_no_others(document):
    text = rules(document, "dcgm,dcgm4.7")[f"joined:{UTILIZATION}"]
    moved = "DCGM_FI_DRIVER_VERSION, DCGM_FI_SYSTEM_DRIVER_VERSION, Hostname, hostname"
    assert {*re.findall(r"without \(([^)]+)\)", text)} == {moved}


def test_a_board_s_records_are_of_the_joined_series(document):
    found = rules(document, "dcgm,dcgm4.7", board="fleet")
    assert found[f"fleet:{UTILIZATION}:avg"] == f"avg (joined:{UTILIZATION})"
    assert [*found].index(f"joined:{UTILIZATION}") < [*found].index(f"fleet:{UTILIZATION}:avg")
