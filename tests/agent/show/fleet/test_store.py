"""The fleet from a store with Prometheus' API; tests/proof/test_fleet.py asks a real one."""

from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
from tests.doubles.promql import PromqlDouble

from chipwatch.contract.errors import ConfigError
from chipwatch.show.fleet import store
from chipwatch.show.fleet.node import FleetNode
from chipwatch.show.fleet.poll import Access, complete
from chipwatch.show.fleet.program import FleetTop
from chipwatch.show.fleet.screen import compose
from chipwatch.show.fleet.store import PromClient, PromStore, StoreFault

LONG = 60.0
USED = "gpu_utilization_ratio or "
HOUR = "count by (Hostname"


def ask(double, query):
    with closing(PromClient(double.url, Access())) as client:
        return client.ask(query)


def sample(name, value, **labels):
    return {"__name__": name, "instance": "n1:9465", "job": "chipwatch", **labels}, value


@contextmanager
def started(double, by="", interval=5.0):
    """Yield a store that was asked once."""
    with double:
        source = PromStore(f"{double.url}/prometheus/", Access(), interval, lambda: None, by)
        assert source.trouble == "127.0.0.1: no answer yet"
        source.start()
        complete(source, LONG)
        yield source
        source.close()


def fleet(answers):
    with started(PromqlDouble(answers)) as source:
        assert not source.trouble
        return {node.node: node for node in source.lines()}


def test_native_names_make_the_line_of_a_node():
    nodes = fleet({
        USED: [sample("gpu_utilization_ratio", 0.9, gpu="0"), sample("gpu_utilization_ratio", 0, gpu="1")],
        "gpu_power_watts or": [sample("gpu_power_watts", 600, gpu="0")],
        "job_gpus": [sample("job_gpus", 2, exported_job="41337", user="ada")],
        "gpu_count": [sample("gpu_count", 1, state="busy"), sample("gpu_count", 1, state="stalled", cause="data")],
        "node_cpu_seconds_total": [({"instance": "n1:9465"}, 0.25)],
        "agent_spool_oldest": [sample("agent_spool_oldest_seconds", 900)],
    })  # fmt: skip
    node = nodes["n1"]
    assert (node.gpus, node.busy, node.utilization, node.power, node.cpu) == (2, 1, 45, 600, 25)
    assert (node.jobs, node.users, node.idle, node.delivery) == (["41337"], ["ada"], {"data": 1}, "points 15 min old")
    assert node.verdict is None


def test_series_of_several_exporters_of_one_machine_make_one_line():
    nodes = fleet({
        USED: [sample("DCGM_FI_DEV_GPU_UTIL", 37, gpu="0", instance="10.0.0.1:9400", Hostname="n1", pod="train-0")],
        "node_cpu_seconds_total": [({"instance": "10.0.0.1:9100"}, 0.5)],
    })  # fmt: skip
    assert [*nodes] == ["n1"]
    assert (nodes["n1"].utilization, nodes["n1"].cpu, nodes["n1"].jobs) == (37, 50, ["train-0"])


def test_a_utilization_of_dcgm_4_7_is_0_to_1_and_a_last_xid_is_a_note():
    labels = {"gpu": "0", "instance": "n1:9400", "hostname": "n1"}
    nodes = fleet({
        "label_replace(DCGM_FI_DEV_GPU_UTIL_RATIO and on": [
            sample("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.87, **labels, chipwatch_rule="DCGM_FI_DEV_GPU_UTIL_RATIO_OF_ONE"),
            sample("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.87, **labels),
        ],
        "DCGM_FI_DEV_XID_ERROR": [sample("DCGM_FI_DEV_XID_ERROR", 79, **labels)],
    })  # fmt: skip
    assert (nodes["n1"].utilization, nodes["n1"].reason) == (87, "gpu 0 had Xid 79; its page does not say when")


def test_nodes_behind_one_address_are_lines_of_their_names():
    nodes = fleet({USED: [sample("gpu_utilization_ratio", value, gpu="0", host_name=name, instance="gateway:8889")
                          for name, value in (("n1", 0.9), ("n2", 0.1))]})  # fmt: skip
    assert {name: node.utilization for name, node in nodes.items()} == {"n1": 90, "n2": 10}


def test_faults_of_gauges_and_of_counters_in_an_hour_make_the_verdict():
    def wrong(name, metric, value, **labels):
        return sample(name, value, chipwatch_rule=metric, gpu="3", **labels)

    nodes = fleet({"label_replace": [
        wrong("gpu_state", "gpu.state", 0, instance="bad:9465"),
        wrong("", "gpu.xid", 1.02, instance="low:9465", xid="48", action="see_workflow"),
    ]})  # fmt: skip
    assert (nodes["bad"].verdict, nodes["low"].verdict) == ("not fit", "degraded")
    assert nodes["low"].reason == "gpu 3 had Xid 48"


def test_a_node_of_the_last_hour_without_samples_is_silent():
    nodes = fleet({USED: [sample("gpu_utilization_ratio", 0.9, gpu="0")],
                   HOUR: [({"instance": "n1:9465"}, 1), ({"instance": "gone:9465"}, 1)]})  # fmt: skip
    assert (nodes["n1"].word, nodes["gone"].word, nodes["gone"].error) == ("", "silent", "no samples any more")


def test_a_node_of_two_agents_says_that_its_figures_are_of_both():
    nodes = fleet({USED: [sample("gpu_utilization_ratio", 0.9, gpu="0")],
                   "agent_spool_oldest": [sample("agent_spool_oldest_seconds", 0, instance=f"{host}:{port}", sink=sink)
                                          for host, port in (("n1", 9465), ("n1", 9466), ("n2", 9465))
                                          for sink in ("otlp", "prometheus")]})  # fmt: skip
    assert [nodes[name].reason for name in ("n1", "n2")] == ["figures of 2 agents: n1:9465, n1:9466", ""]


@pytest.mark.parametrize(
    "body",
    [b'{"status":"success","data":{"result":[{"metric":{},"value":[1,1' + b"0" * 400 + b"]}]}}",
     b'{"status":"success","data":' + b"[" * 200_000, b'{"status":"error","error":"x","data":{"result":[]}}', b"[]", b"",
     b'{"status": "success", "data": {"result": [{"value": ["x"]}]}}', b"<html>Grafana</html>"],
    ids=["a number", "depth", "an error", "a list", "nothing", "no metric", "a page"],
)  # fmt: skip
def test_another_answer_than_one_of_the_api_is_named_and_ends_nothing(body):
    with PromqlDouble(body=body) as double, pytest.raises(StoreFault, match="is the URL right"):
        ask(double, "up")


@pytest.mark.parametrize(
    "rows",
    [['{"metric":{},"value":[1,"1"]}'] * 20_000, ['{"metric":{"0":""' + ',"1":""' * 99_999 + '},"value":[1,"1"]}']],
    ids=["rows", "labels"],
)  # fmt: skip
def test_an_answer_of_more_series_than_a_fleet_has_is_refused_before_one_is_made(rows, monkeypatch):
    monkeypatch.setattr(store, "StoreAnswer", None)  # nothing is decoded
    body = f'{{"status":"success","data":{{"result":[{",".join(rows)}]}}}}'.encode()
    with (
        PromqlDouble(body=body) as double,
        closing(PromClient(double.url, Access())) as client,
        pytest.raises(StoreFault, match="series, too many labels or values"),
    ):
        client.ask("up", 5000)


def test_the_answers_of_a_round_have_one_bound_together(monkeypatch):
    monkeypatch.setattr(store, "MAX_ROWS", 100)
    used = [sample("gpu_utilization_ratio", 0.9, gpu="0", instance=f"n{number}") for number in range(70)]
    with started(PromqlDouble({USED: used, "gpu_power_watts or": used})) as source:
        assert source.lines() == []
    assert source.trouble == "127.0.0.1: its answers have more than 100 series, too many labels or values"


def test_series_that_no_query_asked_for_make_no_verdict():
    labels = {"instance": "n1:9465", "gpu": "0"}
    nodes = fleet({"label_replace": [(labels, 5), ({**labels, "chipwatch_rule": "gpu.bogus"}, 5)]})
    assert nodes["n1"].verdict is None


def test_a_store_that_answers_in_part_or_not_at_all_says_so():
    text = '{"status":"success","warnings":["PromQL info: x","2 of 3 stores"],"data":{"result":[]}}'
    with started(PromqlDouble(body=text.encode())) as source:
        pass
    assert source.trouble == "127.0.0.1 warns: 2 of 3 stores"


def test_a_label_of_any_series_groups_the_nodes():
    used = sample("gpu_utilization_ratio", 0.9, gpu="0", rack="7")
    with started(
        PromqlDouble({USED: [used], "target_info": [({"instance": "n2:9465", "rack": "8"}, 1)]}), "rack"
    ) as source:
        assert [node.node for node in source.lines()] == ["n1"], "target_info alone makes no node"
    assert source.labels == {"n1": ["7"], "n2": ["8"]}


def test_a_graph_begins_with_the_last_hour_of_the_store_and_has_gaps_without_samples():
    past = {22: "50", 3: "0", 1: "NaN", 0: "100", 30: "100", -5: "100"}
    other = {"instance": "10.0.0.2:9465", "host_name": "n2"}
    used = [sample("gpu_utilization_ratio", 0.9, gpu="0"), sample("gpu_utilization_ratio", 0, gpu="0", **other)]
    hour = [({"instance": "n1:9465"}, past), ({"instance": "10.0.0.2:9400"}, {4: "0"})]
    top = FleetTop(SimpleNamespace(by="verdict"), None, {})
    with started(double := PromqlDouble({USED: used, "avg_over_time": hour}), interval=LONG) as source:
        source.recall()
        top.take(SimpleNamespace(asked=source))
    assert (double.paths[-1], double.spans[-1]["step"]) == ("/prometheus/api/v1/query_range", "150")
    lines = compose(top._nodes, top.view, (120, 24), "", clock=float(double.spans[-1]["end"]))
    group, second, first = ("".join(text for text, _ in line) for line in lines[4:7])
    assert "⡄        ⢀ ⣿ " in first, "50 % an hour ago, then no sample, 0 %, a gap, 100 %, and now 90 %"
    assert "         ⡀ ⢀ " in second, "0 % is a dot"
    assert "⡄        ⣀ ⣧ " in group, "it has the mean of its nodes"


@pytest.mark.parametrize(("status", "body"), [
    (404, b"x"), (200, b"<html>"), (200, b"x" * (10 << 20)), (200, b'{"status":"success","data":{"result":[{"metric":{},"values":[1]}]}}'),
    (200, b'{"status":"success","data":{"result":[{"metric":{},"values":[[1,"0"]%b]}]}}' % (b',[1,"0"]' * 200)),
], ids=["404", "a page", "10 MB", "no pairs", "more points than nodes have"])  # fmt: skip
def test_without_the_last_hour_of_the_store_there_is_a_note(status, body):
    with PromqlDouble(status=status, body=body) as double:
        source = PromStore(double.url, Access(), LONG, lambda: None)
        source._lines["n1"] = FleetNode("n1")
        source.recall()
    assert [*source.hour] == []
    assert source.trouble.startswith("graphs begin now: 127.0.0.1: ")


def test_no_query_selects_by_a_pattern_of_names_or_has_a_rate_of_the_cpus():
    with started(double := PromqlDouble()):
        pass
    assert set(double.paths) == {"/prometheus/api/v1/query"}
    assert len(double.queries) == 9
    assert not [query for query in double.queries if "__name__" in query or "{}" in query]
    rates = [query for query in double.queries if "node_cpu" in query]  # a rate is too low for minutes after a start
    assert [("(irate(" in query, "(rate(" in query) for query in rates] == [(True, False)]


def test_a_store_that_refuses_is_named():
    with PromqlDouble(status=401, body=b"no token") as double, pytest.raises(StoreFault, match="status 401: no token"):
        ask(double, "up")


def test_values_that_are_not_finite_are_left_out():
    with PromqlDouble({"up": [({"a": "1"}, "NaN"), ({"a": "2"}, "+Inf"), ({"a": "3"}, "2")]}) as double:
        assert [value for _, value, _ in ask(double, "up")] == [2]


def test_a_token_is_read_for_each_question_and_goes_by_https_or_to_this_machine_only(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    with pytest.raises(ConfigError, match="by https only"):
        PromClient("http://prometheus:9090", Access(token_file=file))
    with PromqlDouble() as double, closing(PromClient(double.url, Access(token_file=file))) as client:
        client.ask("up")
        file.write_text("second\n")
        client.ask("up")
    assert [head["Authorization"] for head in double.heads] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://x", "http://", "http://user:word@x", "http://x y"])
def test_a_bad_url_is_refused(url):
    with pytest.raises(ConfigError, match="--prometheus"):
        PromClient(url, Access())


def test_amazons_store_gets_a_signature_of_its_service_and_region(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x" * 40)
    url = "https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1"
    signed = PromClient(url, Access())._signer.sign(f"{url}/api/v1/query", b"query=up", {})
    assert "/eu-west-1/aps/aws4_request, SignedHeaders=" in signed["Authorization"]
    assert PromClient("https://aps-workspaces.evil.example/w", Access())._signer is None
    monkeypatch.setattr("chipwatch.net.aws_signer.find_spec", lambda _: None)
    with pytest.raises(StoreFault, match="needs botocore"):
        PromClient(url, Access()).ask("up")
