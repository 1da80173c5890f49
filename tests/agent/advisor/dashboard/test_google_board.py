import re

import pytest
from tests.agent.advisor.dashboard.strict import check_google

from chipwatch.advisor.catalogue import catalogue
from chipwatch.advisor.dashboard.alarms import KEYS
from chipwatch.config.convert import ConfigError
from chipwatch.contract.datapoint import Kind

ALL = {"level": "all", "common_dims": ["instance_id"]}
FILTER = re.compile(r'metric\.type = "([\w./]+)" AND resource\.type = "(\w+)"((?: AND metric\.labels\.\w+ != "\w+")*)')
NAMES = ["native", "wandb", "mlflow", "cwagent", "neuron-prometheus"]
HOST = ("host", "health", "fabric", "jobs", "nccl")
DEVICES = ("gpu", "process")
OTHERS = ("neuron", "tpu", "ipu", "textfile")
"""All that we have; on one dashboard it would be more than Google allows."""
METRICS = {metric.name: metric for metrics in catalogue().values() for metric in metrics}


@pytest.fixture
def policies(document):
    def make(flags=None, families=("all",), **wishes):
        found = document("google", flags or ALL, families=families, alarms=True, **wishes)
        return {policy["displayName"].removeprefix("chipwatch-"): policy for policy in found}

    return make


def condition(policy):
    (found,) = policy["conditions"]
    return found.get("conditionThreshold") or found["conditionAbsent"]


def test_the_dashboards_of_hosts_and_devices_name_all_that_is_sent_and_nothing_else(document):
    boards = [document("google", ALL, families=families) for families in (HOST, DEVICES, OTHERS)]
    names = {f"custom.googleapis.com/chipwatch/{name.replace('.', '/')}": metric for name, metric in METRICS.items()}
    found = [line for board in boards for line in check_google(board)]
    assert {kind for kind, _ in found} == {
        kind for kind, metric in names.items() if not metric.name.startswith(("agent.", "incident.", "job.cost"))
    }
    for kind, aligner in found:
        counts = names[kind].kind is Kind.COUNTER
        assert aligner in ({"ALIGN_RATE", "ALIGN_DELTA"} if counts else {"ALIGN_MEAN"}), kind
    assert {board["displayName"] for board in boards} == {"chipwatch"}


@pytest.mark.parametrize("names", NAMES)
def test_what_is_sent_in_two_ways_is_drawn_and_watched_once(document, names):
    flags = {**ALL, "names": names}
    for tile in document("google", flags, families=("host", "gpu"))["mosaicLayout"]["tiles"]:
        lines = [str(line["timeSeriesQuery"]) for line in tile["widget"].get("xyChart", {}).get("dataSets", ())]
        assert len(set(lines)) == len(lines), tile["widget"]["title"]
    found = [
        str({key: value for key, value in policy["conditions"][0].items() if key != "displayName"})
        for policy in document("google", flags, families=("all",), alarms=True)
    ]
    assert len(set(found)) == len(found)


def test_the_service_takes_every_policy(policies):
    json_format = pytest.importorskip("google.protobuf.json_format")
    monitoring = pytest.importorskip("google.cloud.monitoring_v3")
    found = policies(notify=("projects/p/notificationChannels/1",))
    for policy in found.values():
        message = json_format.ParseDict(policy, monitoring.AlertPolicy.pb(monitoring.AlertPolicy()))
        assert json_format.MessageToDict(message)["displayName"] == policy["displayName"]
        assert list(message.notification_channels) == ["projects/p/notificationChannels/1"]
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict({**policy, "kind": "x"}, monitoring.AlertPolicy.pb(monitoring.AlertPolicy()))


def test_a_policy_is_as_google_documents_it(policies):
    found = policies()
    assert set(found) == set(KEYS)
    assert [*found] == sorted(found)
    for policy in found.values():
        assert len(policy["displayName"]) <= 512
        assert 80 < len(policy["documentation"]["content"]) <= 8192
        assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", policy["userLabels"]["chipwatch-alarm"])
        (what,) = policy["conditions"]
        assert set(what) - {"displayName"} in ({"conditionThreshold"}, {"conditionAbsent"})
        what = condition(policy)
        assert FILTER.fullmatch(what["filter"]), what["filter"]
        assert len(what["filter"]) <= 2048
        assert int(what["duration"].removesuffix("s")) % 60 == 0
        assert what.get("comparison", "COMPARISON_LT") in {"COMPARISON_LT", "COMPARISON_GT"}
        assert int(what["aggregations"][0]["alignmentPeriod"].removesuffix("s")) >= 60


def test_silence_is_the_absence_of_a_metric(policies):
    found = policies({"common_dims": ["hostname"]}, ("host",), minutes={"agent-silent": 5.0})
    assert condition(found["agent-silent"]) == {
        "filter": 'metric.type = "custom.googleapis.com/chipwatch/cpu/utilization" AND resource.type = "gce_instance"',
        "trigger": {"count": 1},
        "aggregations": [{"alignmentPeriod": "60s", "perSeriesAligner": "ALIGN_MEAN"}],
        "duration": "300s",
    }
    assert condition(found["fleet-silent"])["aggregations"][0]["crossSeriesReducer"] == "REDUCE_COUNT"


def test_silence_stays_open_until_it_is_over(policies):
    found = policies()
    week, hour = {"autoClose": "604800s"}, {"autoClose": "3600s"}
    assert {key: policy["alertStrategy"] for key, policy in found.items()} == {
        key: week if key in {"agent-silent", "fleet-silent"} else hour for key in found
    }


def test_machines_that_should_send_are_counted_and_no_data_are_none(policies):
    found = policies({"common_dims": ["hostname"]}, ("host",), hosts=12)
    assert condition(found["agent-silent"]) == {
        "filter": 'metric.type = "custom.googleapis.com/chipwatch/cpu/utilization" AND resource.type = "gce_instance"',
        "trigger": {"count": 1},
        "aggregations": [
            {"alignmentPeriod": "60s", "perSeriesAligner": "ALIGN_MEAN", "crossSeriesReducer": "REDUCE_COUNT"}
        ],
        "comparison": "COMPARISON_LT",
        "thresholdValue": 12.0,
        "duration": "600s",
        "evaluationMissingData": "EVALUATION_MISSING_DATA_ACTIVE",
    }
    with pytest.raises(ConfigError, match="--hosts: Google counts machines of one --resource-type only"):
        policies(hosts=12, resources=("gce_instance", "k8s_node"))
    with pytest.raises(ConfigError, match="--autoscaling-group: only CloudWatch has these groups"):
        policies(groups=("train",))


def test_every_resource_that_sends_has_a_condition(policies, tmp_path, document):
    found = policies(families=("tpu",), resources=("gce_instance", "k8s_node"))["tpu-idle"]
    assert found["combiner"] == "OR"
    kinds = [FILTER.fullmatch(c["conditionThreshold"]["filter"])[2] for c in found["conditions"]]
    assert kinds == ["gce_instance", "k8s_node"]
    file = tmp_path / "a.toml"
    file.write_text('[sinks.google]\nresource = "k8s_container"\n')
    policy = document("google", file=file, families=("tpu",), alarms=True)[0]
    assert 'resource.type = "k8s_container"' in condition(policy)["filter"]
