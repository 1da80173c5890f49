import json
import re
from collections import Counter
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ParamValidationError
from moto import mock_aws
from tests.agent.advisor.dashboard.strict import check_cloudwatch, query
from tests.doubles.alarms import Stored, state_of
from tests.doubles.cloudwatch import isolate

from chipwatch.advisor.catalogue import catalogue
from chipwatch.advisor.dashboard.alarms import KEYS, RULES
from chipwatch.collectors.network import SENT
from chipwatch.config.convert import ConfigError
from chipwatch.engine.window import Window

ALL = {"level": "all", "common_dims": ["instance_id"]}
ROOT = Path(__file__).parents[4]


@pytest.fixture
def cloudwatch(monkeypatch):
    isolate(monkeypatch)
    with mock_aws():
        yield boto3.client("cloudwatch", "us-east-1")


@pytest.fixture
def alarms(document):
    def make(flags=None, families=("all",), hosts=1, **wishes):
        wishes["hosts"] = hosts
        found = document("cloudwatch", flags or ALL, families=families, alarms=True, **wishes)
        return {alarm["AlarmName"].removeprefix("chipwatch-"): alarm for alarm in found}

    return make


def expression(alarm):
    return alarm["Metrics"][0]["Expression"]


def test_the_service_and_the_grammar_take_the_dashboard_of_all_and_each_shipped_board(cloudwatch, document):
    shipped = [json.loads(path.read_text()) for path in (ROOT / "dashboards/cloudwatch").glob("*.json")]
    for body in (document("cloudwatch", ALL, families=("all",)), *shipped):
        check_cloudwatch(body)
        cloudwatch.put_dashboard(DashboardName="fleet", DashboardBody=json.dumps(body))
        assert json.loads(cloudwatch.get_dashboard(DashboardName="fleet")["DashboardBody"]) == body


# -- alarms -----------------------------------------------------------------------------------------------------------


def test_the_service_takes_every_alarm(cloudwatch, alarms):
    found = alarms(notify=("arn:aws:sns:us-east-1:123456789012:pager",))
    for alarm in found.values():
        cloudwatch.put_metric_alarm(**alarm)
    taken = cloudwatch.describe_alarms(MaxRecords=100)["MetricAlarms"]
    assert {alarm["AlarmName"] for alarm in taken} == {alarm["AlarmName"] for alarm in found.values()}
    assert all(alarm["AlarmActions"] == ["arn:aws:sns:us-east-1:123456789012:pager"] for alarm in taken)
    with pytest.raises(ParamValidationError):
        cloudwatch.put_metric_alarm(**{**alarm, "Statement": "x"})


def test_every_alarm_there_is_stands_in_the_set_of_a_fleet_that_has_everything(alarms):
    found = alarms()
    assert set(found) >= set(KEYS)
    assert {re.sub("-(mig|partition|namespace)$", "", key) for key in found} == set(KEYS)
    assert [*found] == sorted(found)


def test_an_alarm_is_as_cloudwatch_documents_it(alarms):
    for name, alarm in alarms().items():
        (data,) = alarm["Metrics"]
        assert data["Period"] % 60 == 0
        assert 1 <= alarm["DatapointsToAlarm"] <= alarm["EvaluationPeriods"]
        assert alarm["EvaluationPeriods"] * data["Period"] <= 3 * 3600
        assert data["ReturnData"]
        assert alarm["ComparisonOperator"] in {"LessThanThreshold", "GreaterThanThreshold"}
        assert 80 < len(alarm["AlarmDescription"]) <= 1024
        *_, groups, _ = query(data["Expression"])
        assert bool(groups) == ("silent" not in name)


def test_rules_name_only_metrics_that_exist():
    metrics = {metric.name: metric for metrics in catalogue().values() for metric in metrics}
    for rule in (rule for rule in RULES if rule.per == "series"):
        metric = metrics[rule.metric]
        assert metric.kind.value == ("counter" if rule.statistic in {"sum", "rate"} else "gauge"), rule.key
        assert {key for key, _ in rule.but} <= set(metric.dims)
    assert [(rule.key, rule.per) for rule in RULES if not rule.metric] == [
        ("agent-silent", "host"), ("fleet-silent", "fleet"),
    ]  # fmt: skip
    assert tuple(sorted(rule.key for rule in RULES)) == KEYS


@pytest.mark.parametrize("found_after", [0, 2, 14])
def test_one_event_is_an_alarm_though_its_series_is_new_and_found_late(alarms, found_after):
    rules = {rule.key: rule for rule in RULES if rule.statistic == "sum"}
    made = alarms({"common_dims": ["instance_id"]})
    assert set(rules) <= set(made)
    for key, rule in rules.items():
        alarm, events = made[key], [0] * 20 + [rule.threshold + 1] + [0] * 40  # of each minute; before it: no data
        width = alarm["Metrics"][0]["Period"] // 60
        assert alarm["TreatMissingData"] == "notBreaching"
        in_alarm = []
        for now in range(21 + found_after, 60):
            ends = [now - n * width for n in range(alarm["EvaluationPeriods"])]
            wrong = sum(sum(events[max(0, end - width) : end]) > alarm["Threshold"] for end in ends)
            in_alarm.append(wrong >= alarm["DatapointsToAlarm"])
        assert in_alarm[0], key
        assert not in_alarm[-1], key


def sends(machines, minutes, *, window=60.0):
    """Return the minutes in which `machines` agents send points of a counter; each ticks every 5 s at its offset."""
    found = []
    for machine in range(machines):
        one, began = Window(window, born=0), machine * 0.7
        for number in range(minutes * 12):
            at = int((began + number * 5 + (number * machine % 7) * 0.05) * 1e9)
            found += [point.at // (60 * 10**9) for point in one.add([SENT.point(at, float(number), start_time=0)], at)]
    return Counter(found)


def stored(came, name="network.sent", host="i", value=0.0):
    """Return the counted points of each minute, as CloudWatch stores them."""
    return [
        Stored(60 * minute, "Chipwatch", name, {"instance_id": host}, count, count * value, value, value)
        for minute, count in sorted(came.items())
    ]


def states(alarm, points, ends):
    """Return the alarm's state at the end of each of these minutes."""
    found, state = [], "OK"
    for end in ends:
        state = state_of(alarm, points, 60 * end, state)
        found.append(state)
    return found


@pytest.mark.parametrize("window", [60, 15])
def test_the_alarm_for_a_silent_agent_lasts_until_it_is_back(alarms, window):
    alarm = alarms({"common_dims": ["instance_id"], "window": window}, ("host",), hosts=20)["agent-silent"]
    assert query(expression(alarm)) == ("Chipwatch", "network.sent", ("instance_id",), "COUNT", (), set())
    others, all_of_them = sends(19, 200, window=window), sends(20, 200, window=window)
    came = Counter({minute: (others if 20 <= minute < 160 else all_of_them)[minute] for minute in range(199)})
    found = states(alarm, stored(came), range(1, 191))
    assert set(found[:29]) == {"OK"}
    assert set(found[30:160]) == {"ALARM"}
    assert set(found[162:]) == {"OK"}


HOUR, DAY = 60, 24 * 60
LATER = (*range(30, 5 * HOUR, 10), *range(5 * HOUR, 20 * DAY + 1, 6 * HOUR))
"""Minutes at which a state is looked at, up to 20 days."""


@pytest.mark.parametrize("key", ["agent-silent", "fleet-silent"])
def test_a_fleet_that_is_dead_stays_in_alarm_for_20_days_and_until_it_is_back(alarms, key):
    alarm = alarms({"common_dims": ["instance_id"]}, ("host",), hosts=3)[key]
    name = query(expression(alarm))[1]
    came = stored(Counter(dict.fromkeys([*range(18), *range(20 * DAY, 20 * DAY + 20)], 3)), name)
    assert set(states(alarm, came, range(1, 28))) == {"OK"}
    assert set(states(alarm, came, LATER)) == {"ALARM"}
    assert states(alarm, came, [20 * DAY + 15]) == ["OK"]


def test_a_group_whose_instances_are_all_dead_stays_in_alarm_and_so_does_one_without_instances(alarms):
    alarm = alarms({"common_dims": ["instance_id"]}, ("host",), hosts=0, groups=("train",))["agent-silent"]
    for instances, state in ((3.0, "OK"), (4.0, "ALARM")):
        group = [
            Stored(60 * minute, "AWS/AutoScaling", "GroupInServiceInstances", {"AutoScalingGroupName": "train"}, 1, instances, instances, instances)
            for minute in range(20 * DAY)
        ]  # fmt: skip
        points = sorted([*stored(Counter(dict.fromkeys(range(18), 3))), *group], key=lambda one: one.at)
        assert states(alarm, points, [18]) == [state]
        assert set(states(alarm, points, LATER)) == {"ALARM"}
    nobody = [one._replace(sum=0.0, minimum=0.0, maximum=0.0) for one in group]
    assert states(alarm, nobody, [20]) == ["ALARM"], "docs/alarms.md says so: no points, no value of the expression"


def test_what_else_was_wrong_with_a_machine_is_over_when_it_dies(alarms):
    """CloudWatch has no other way: a series that a query finds no more is OK, whatever missing data mean."""
    alarm = alarms({"common_dims": ["instance_id"]}, ("host",), hosts=3)["memory-full"]
    full = stored(Counter(dict.fromkeys(range(30), 1)), "memory.utilization", "dead", 99.0)
    fine = stored(Counter(dict.fromkeys(range(10 * HOUR), 1)), "memory.utilization", "alive", 20.0)
    both = sorted([*full, *fine], key=lambda one: one.at)
    assert states(alarm, both, [30, 33, 45, 4 * HOUR]) == ["ALARM", "OK", "OK", "OK"]
    assert states(alarm, full, [30, 45, 4 * HOUR]) == ["ALARM", "OK", "INSUFFICIENT_DATA"]


def test_instances_in_service_of_auto_scaling_groups_are_what_is_expected(cloudwatch, alarms):
    alarm = alarms({"common_dims": ["instance_id"]}, ("host",), hosts=0, groups=("train", "serve"))["agent-silent"]
    counted, train, serve, watched = alarm["Metrics"]
    assert watched == {"Id": "e1", "Expression": "q1 - 1 * (m1 + m2)", "ReturnData": True}
    assert query(counted["Expression"])[1:3] == ("network.sent", ("instance_id",))
    assert [one["MetricStat"]["Metric"]["Dimensions"][0]["Value"] for one in (train, serve)] == ["train", "serve"]
    assert {one["ReturnData"] for one in (counted, train, serve)} == {False}
    assert (alarm["Threshold"], alarm["TreatMissingData"]) == (-0.5, "breaching")
    cloudwatch.put_metric_alarm(**alarm)
    with pytest.raises(ConfigError, match="--autoscaling-group: an alarm can have 9 groups, not 10"):
        alarms(groups=tuple("abcdefghij"))


@pytest.mark.parametrize(
    ("window", "period", "points"), [(60, 60, 1), (15, 60, 4), (0.5, 60, 120), (7.5, 120, 16), (90, 180, 2)]
)
def test_machines_are_counted_over_whole_windows(alarms, window, period, points):
    flags = {"common_dims": ["instance_id"], "window": window, "interval": 0.5}
    alarm = alarms(flags, ("host",), hosts=0, groups=("train",))["agent-silent"]
    assert [one.get("Period") for one in alarm["Metrics"] if "Expression" in one] == [period, None]
    assert alarm["Metrics"][-1]["Expression"] == f"q1 - {points} * (m1)"
    assert alarm["Threshold"] == -points / 2


def test_who_is_silent_is_not_guessed(made):
    linked = {"alarms": True, "runbooks": "https://wiki.example"}
    board = made("cloudwatch", families=("host",), **linked)
    assert "agent-silent" not in board.text
    assert board.notes == ("no alarm agent-silent: set how many machines should send: --hosts or --autoscaling-group",)
    board = made("cloudwatch", families=("neuron",), hosts=3, **linked)
    assert board.notes == (
        "no alarm job-gpu-imbalance: job.gpu.imbalance is not sent",
        "no alarm agent-silent: network.sent, which counts machines, is not sent; add host to --for",
    )


def test_a_neuron_machine_without_a_job_is_not_silent(alarms):
    for words in ([], ["neuron_runtime_tag"]):
        found = alarms({"common_dims": words}, families=("neuron",))
        assert query(found["fleet-silent"]["Metrics"][0]["Expression"])[1] == "neuron.runtimes"


def test_what_is_harmless_does_not_alarm(alarms):
    found = alarms()
    assert query(expression(found["gpu-throttled"]))[5] == {
        ("reason", "low_utilization"), ("reason", "power"), ("reason", "sync_boost"),
    }  # fmt: skip
    assert query(expression(found["neuron-ecc-uncorrected"]))[5] == {("corrected", "yes")}


def test_held_back_is_measured_in_seconds_of_a_window_by_the_device_that_was_held_back_most(alarms):
    alarm = alarms()["gpu-throttled"]
    assert (query(expression(alarm))[3], alarm["Metrics"][0]["Period"], alarm["Threshold"]) == ("MAX", 300, 12.0)


@pytest.mark.parametrize("hosts", [10, 100, 500])
def test_an_alarm_returns_one_series_a_host_so_that_500_hosts_fit(alarms, hosts):
    found = alarms({"common_dims": ["instance_id"], "level": "basic"}, ("host", "gpu"), hosts=hosts)
    assert {query(expression(alarm))[4] for alarm in found.values()} == {("instance_id",), ()}


@pytest.mark.parametrize(
    ("hosts", "devices", "said"),
    [
        (501, 8, "--hosts 501: an alarm watches 500 hosts at most"),
        (10_000, 8, "--hosts 10000: an alarm watches 500 hosts at most"),
        (500, 32, "would look at 16,000 metrics of the 10,000 that an alarm may"),
    ],
)
def test_a_fleet_that_an_alarm_would_see_in_part_is_refused_with_the_count(alarms, hosts, devices, said):
    flags = {"common_dims": ["instance_id"]}
    with pytest.raises(ConfigError, match=said):
        alarms(flags, ("host", "gpu"), hosts=hosts, devices=devices)


def test_thresholds_and_times_are_parameters(alarms):
    found = alarms(thresholds={"gpu-idle": 10.0}, minutes={"gpu-idle": 30.0, "agent-silent": 3.0}, prefix="prod")
    assert found["prod-gpu-idle"]["Threshold"] == 10
    assert found["prod-gpu-idle"]["EvaluationPeriods"] * found["prod-gpu-idle"]["Metrics"][0]["Period"] == 1800
    assert found["prod-agent-silent"]["DatapointsToAlarm"] == 3


def test_a_threshold_follows_the_scale_of_the_profile(alarms):
    found = alarms({"names": "neuron-prometheus"}, ("neuron",))
    assert query(expression(found["neuron-core-busy"]))[1] == "neuroncore_utilization_ratio"
    assert found["neuron-core-busy"]["Threshold"] == 0.95


def test_where_names_hold_the_device_there_is_an_alarm_for_each(alarms):
    found = alarms({"names": "mlflow"}, ("gpu",), devices=2)
    idle = {key: query(expression(alarm))[1] for key, alarm in found.items() if key.startswith("gpu-idle")}
    assert idle == {
        "gpu-idle-gpu-0": "system/gpu_0_utilization_percentage",
        "gpu-idle-gpu-0-mig": "system/gpu_0_utilization_percentage",
        "gpu-idle-gpu-1": "system/gpu_1_utilization_percentage",
        "gpu-idle-gpu-1-mig": "system/gpu_1_utilization_percentage",
    }
    found = alarms({"names": "cwagent"}, ("neuron",))
    ecc = {query(expression(alarm))[1] for key, alarm in found.items() if "ecc" in key}
    assert ecc == {
        "node_neurondevice_hw_ecc_events_mem_ecc_uncorrected", "node_neurondevice_hw_ecc_events_sram_ecc_uncorrected",
    }  # fmt: skip


def test_an_alarm_that_cannot_be_is_left_out_and_said(made):
    linked = {"alarms": True, "hosts": 1, "runbooks": "https://wiki.example"}
    board = made("cloudwatch", families=("nvidia", "network"), **linked)
    assert board.notes == (
        "no alarm gpu-throttled: gpu.throttled is not sent",
        "no alarm job-gpu-imbalance: job.gpu.imbalance is not sent",
    )
    board = made("cloudwatch", {"names": "neuron-prometheus"}, families=("neuron", "network"), **linked)
    assert board.notes == (
        "no alarm job-gpu-imbalance: job.gpu.imbalance is not sent",
        "no alarm neuron-ecc-uncorrected: neuron.ecc.events is not sent with the dimension corrected",
    )


def test_a_window_longer_than_a_period_makes_the_period(alarms):
    found = alarms({"window": 900}, ("gpu",))
    assert {alarm["Metrics"][0]["Period"] for alarm in found.values()} == {900}


def graph(document, cloud, title, **options):
    board = document(
        cloud, {"common_dims": ["instance_id"], "region": "us-east-1"}, families=("host", "gpu"), **options
    )
    tiles = board["widgets"] if cloud == "cloudwatch" else [tile["widget"] for tile in board["mosaicLayout"]["tiles"]]
    (found,) = [tile for tile in tiles if title in (tile.get("title"), tile.get("properties", {}).get("title"))]
    return found.get("properties") or found["xyChart"]


def test_graphs_of_several_metrics_and_counters_have_no_mean(document):
    for title in ("Memory", "Disk throughput"):
        assert "SELECT" not in str(graph(document, "cloudwatch", title))
        assert "REDUCE_MEAN" not in str(graph(document, "google", title))


def test_the_threshold_of_an_alarm_is_a_line_of_its_graph(document):
    drawn = graph(document, "cloudwatch", "Disk utilization")
    assert drawn["annotations"] == {"horizontal": [{"label": "Disk nearly full", "value": 90.0}]}
    drawn = graph(document, "cloudwatch", "Disk utilization", thresholds={"disk-full": 80.0})
    assert drawn["annotations"]["horizontal"][0]["value"] == 80.0
    (limit,) = graph(document, "google", "Disk utilization")["thresholds"]
    assert limit["value"] == 90.0
    assert "annotations" not in graph(document, "cloudwatch", "Memory")


def test_the_note_says_up_to_how_many_hosts_everything_is_shown(document):
    flags = {"common_dims": ["instance_id"], "region": "us-east-1"}
    first, *_ = document("cloudwatch", flags, families=("gpu",))["widgets"]
    each, hosts = re.search(
        r"has ([\d,]+) here, so all are shown of up to (\d+) hosts", first["properties"]["markdown"]
    ).groups()
    assert int(hosts) == 2500 // int(each)
    first, *_ = document("cloudwatch", {**flags, "level": "all"}, families=("gpu",), devices=100)["widgets"]
    assert "so some of a single host are left out" in first["properties"]["markdown"]
