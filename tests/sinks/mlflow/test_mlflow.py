"""The sink `mlflow` before a tracking server on loopback."""

import json
import socket

import pytest
from tests.certificates import Authority
from tests.doubles.mlflow import MlflowDouble, say
from tests.sinks.mlflow.conftest import GPU

from chipwatch.contract.datapoint import Dimensions, Summary, counter, gauge
from chipwatch.contract.errors import BadBatch, ConfigError, Refused, Retryable, SinkClosed
from chipwatch.engine.delivery import Worker
from chipwatch.engine.spool.queue import Spool
from chipwatch_sinks.mlflow import MlflowSink
from chipwatch_sinks.mlflow.keys import key_of


def rows(double, run="r1"):
    """Return (key, step, time in ms) -> values."""
    found = {}
    for key, timestamp, step, value in double.runs[run].rows:
        found.setdefault((key, step, timestamp), []).append(value)
    return found


def send(sink, points):
    """Send as the frame does; return what it would keep."""
    kept = sink.saved() if sink.prepare(points) else None
    assert sink.write(points) == []
    return kept


# -- keys, values, steps ------------------------------------------------------------------------------------------


def test_a_point_is_stored_with_its_key_value_time_and_step(double, make_sink, points):
    batch = points(2)
    send(make_sink(), batch)
    assert rows(double) == {("system/cpu_load", n, of.at // 10**6): [of.value] for n, of in enumerate(batch)}


def test_a_node_stands_between_prefix_and_metric_as_in_mlflow(double, make_sink, points):
    send(make_sink(node="n-1.rack_2"), points(1))
    send(make_sink(env={"MLFLOW_SYSTEM_METRICS_NODE_ID": "7"}), points(1))
    send(make_sink(node="gpu-{hostname}"), points(1))
    keys = [key for key, _, _ in rows(double)]
    assert keys == ["system/n-1.rack_2/cpu_load", "system/7/cpu_load", f"system/gpu-{socket.gethostname()}/cpu_load"]


@pytest.mark.parametrize(
    ("name", "own", "dims", "key"),
    [
        ("system/gpu_0_power_usage_watts", (), {"instance_id": "i-1"}, "system/gpu_0_power_usage_watts"),
        ("gpu.temperature", ("gpu",), {"gpu": "3"}, "system/gpu_3_temperature"),
        ("gpu.nvlink.sent", ("gpu", "link"), {"gpu": "3", "link": "11"}, "system/gpu_3_nvlink_sent_link_11"),
        ("system/gpu_0_utilization_percentage", ("mig",), {"mig": "1"}, "system/gpu_0_utilization_percentage_mig_1"),
        ("disk.used", ("path",), {"path": "/"}, "system/disk_used"),
        ("disk.used", ("path",), {"path": "/data"}, "system/disk_used_data"),
        ("network.sent", ("interface",), {"interface": "eth0.4"}, "system/network_sent_eth0.4"),
        ("disk.used", ("path",), {"path": "/mnt/a"}, "system/disk_used_mnt_a_86328ca3"),
        ("disk.used", ("path",), {"path": "/mnt_a"}, "system/disk_used_mnt_a"),
        ("x.é:{}", (), {}, "system/x_é"),
    ],
)
def test_a_key_has_the_metrics_own_dimensions_and_only_what_mlflow_takes(name, own, dims, key):
    made = key_of("system/", gauge(name, "1", "A metric.", dims=own), Dimensions(dims))
    assert made.startswith("system/x_") if "é" in key else made == key
    assert made.isascii()


def test_a_counter_is_its_total_and_a_window_its_mean(double, make_sink, points):
    (sample,) = points(1)
    total = counter("x.sent", "By", "Sent.").point(sample.at, 7.0, start_time=1)._replace(increase=2.0)
    mean = sample._replace(summary=Summary(2, 5.0, 1.0, 4.0, (1.0, 4.0), (1, 1)), value=2.5)
    send(make_sink(), [total, mean])
    assert [*rows(double).values()] == [[7.0], [2.5]]


def test_two_series_of_one_key_are_not_merged(double, make_sink, points):
    (one,) = points(1)
    other = gauge("cpu_load", "1", "Another.").point(one.at, 1.0)
    rejected = make_sink().write([one, other])
    assert [(of.point, of.reason) for of in rejected] == [(other, "its key is that of another series")]
    assert [*rows(double).values()] == [[one.value]]


def test_a_key_that_is_too_long_is_reported_before_the_start(make_sink):
    sink = make_sink(opened=False)
    metric = gauge("disk.used", "By", "Used.", dims=("path",))
    assert sink.refuses(metric, Dimensions(path="/data")) is None
    assert sink.refuses(metric, Dimensions(path="x" * 240)) == "its key has more than 250 characters"


def test_steps_go_on_where_the_system_metrics_of_the_run_ended(double, make_sink, points):
    run = double.runs["r1"]
    run.rows = {("loss", 1, 900, 0.1): None, ("system/a", 1, 4, 0.1): None, ("system/n/b", 1, 41, 0.1): None}
    send(make_sink(), points(2))
    assert [step for key, step, _ in rows(double) if key == "system/cpu_load"] == [42, 43]


def test_what_is_sent_again_after_a_kill_has_the_same_steps(double, make_sink, points):
    first, batch = points(2), points(3)
    sink = make_sink()
    send(sink, first)
    kept = send(sink, batch)  # the process is killed before its points are acknowledged
    again = make_sink()
    again.restore(kept)
    send(again, [*batch[1:], *points(1)])
    found = rows(double)
    assert [step for _, step, _ in found] == [0, 1, 2, 3, 4, 5]
    assert all(len(values) == 1 for values in found.values())


def test_what_the_server_has_is_not_sent_again_even_with_another_value(double, make_sink, points):
    """A counter that begins at 0 with each agent has another value after a restart."""
    batch = points(3)
    kept = send(make_sink(), batch)
    again = make_sink()
    again.restore(kept)
    send(again, [of._replace(value=of.value + 1) for of in batch] + points(1))
    assert list(rows(double).values())[:3] == [[of.value] for of in batch]
    assert len(double.batches()[-1]["metrics"]) == 1


def test_after_a_lost_answer_it_asks_the_server_what_it_has(double, make_sink, points):
    def lose(http, path):
        if path == "/runs/log-batch" and not lost:
            lost.append(double._own(path, double.requests[-1][2]))
            http.connection.shutdown(socket.SHUT_RDWR)
            return True
        return False

    lost, double.answer = [], lose
    batch, sink = points(3), make_sink()
    with pytest.raises(Retryable):
        send(sink, batch)
    send(sink, batch)
    assert len(double.batches()) == 1
    assert list(rows(double).values()) == [[of.value] for of in batch]


def test_what_is_kept_for_another_run_or_another_node_does_not_count(double, make_sink, points):
    double.add("r2")
    kept = send(make_sink(), points(3))
    for n, other in enumerate(({"run": "r2"}, {"node": "b"})):
        sink = make_sink(**other)
        sink.restore(kept)
        send(sink, points(1))
        assert [*rows(double, other.get("run", "r1"))][-1][1] == (0, 3)[n]


def test_it_moves_on_where_somebody_else_writes_the_same_keys(double, make_sink, points, clock, caplog):
    sink = make_sink()
    send(sink, points(1))
    double.runs["r1"].rows["system/cpu_load", 5, 30, 0.5] = None
    clock.ns += 11 * 10**9
    send(sink, points(1))
    assert [step for _, step, _ in rows(double)] == [0, 30, 31]
    double.runs["r1"].rows["system/cpu_load", 6, 40, 0.5] = None
    clock.ns += 11 * 10**9
    send(sink, points(1))
    assert [step for _, step, _ in rows(double)][-1] == 41
    assert caplog.text.count("somebody else writes system/* of the run r1") == 1


def test_another_node_is_not_somebody_else(double, make_sink, points, clock, caplog):
    sink = make_sink()
    send(sink, points(1))
    double.runs["r1"].rows["system/node-2/cpu_load", 5, 30, 0.5] = None
    clock.ns += 11 * 10**9
    send(sink, points(1))
    assert [step for key, step, _ in rows(double) if key == "system/cpu_load"] == [0, 1]
    assert not caplog.text


# -- the end of a run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_a_run_that_ended_gets_what_was_measured_before_and_then_ends_the_sink(
    double, make_sink, points, clock, status
):
    sink = make_sink()
    send(sink, points(1))
    before, after = points(1), points(1)
    double.runs["r1"].info |= {"status": status, "end_time": before[0].at // 10**6}
    clock.ns += 11 * 10**9
    send(sink, [before[0]._replace(window_start=before[0].at - 10**9)])
    with pytest.raises(SinkClosed, match="the run r1 has ended"):
        sink.prepare(after)
    assert len(rows(double)) == 2


def test_a_run_that_is_resumed_goes_on(double, make_sink, points, clock):
    sink = make_sink()
    double.runs["r1"].info |= {"status": "FINISHED", "end_time": clock.ns // 10**6}
    with pytest.raises(SinkClosed):
        sink.prepare(points(1))
    double.runs["r1"].info |= {"status": "RUNNING"}
    send(make_sink(), points(1))
    assert len(rows(double)) == 1


def test_a_deleted_run_ends_the_sink_with_its_first_refusal(double, make_sink, points, clock):
    sink = make_sink()
    send(sink, points(1))
    double.runs["r1"].info["lifecycle_stage"] = "deleted"
    spool, asked = Spool("mlflow"), len(double.requests)
    worker = Worker("mlflow", sink, spool)
    spool.append([GPU.point(clock.ns, 1.0, Dimensions(gpu=str(n))) for n in range(500)])
    worker.start()
    worker.stop()
    assert worker.join(60)
    assert worker.health.is_closed
    assert spool.ledger.dropped == {"reader gone": 500}
    assert len(double.requests) - asked <= 4


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        (401, b"You are not authenticated.", Refused, "missing, wrong or expired; set MLFLOW_TRACKING_USERNAME and _PASSWORD, or a new MLFLOW_TRACKING_TOKEN"),
        (403, b"Permission denied", Refused, "ask for the permission to edit the run's experiment"),
        (404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Run with id=r1 not found"}, Refused, "no such run; set MLFLOW_RUN_ID"),
        (404, b"<!doctype html>", Refused, "no MLflow API at /api/2.0/mlflow; check MLFLOW_TRACKING_URI"),
        (302, b"", Refused, "redirects, perhaps to a login page"),
        (405, b"", Refused, "refuses the request"),
        (429, {"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "slow down"}, Retryable, "slow down"),
        (500, {"error_code": "INTERNAL_ERROR", "message": "database is locked"}, Retryable, "database is locked"),
        (503, b"\xff\xfe not JSON", Retryable, "503"),
        (200, {"error_code": "INTERNAL_ERROR", "message": "no database"}, Refused, r"no database \(200 INTERNAL_ERROR\)"),
        (200, {"error_code": 5}, Refused, "does not answer as an MLflow server"),
        (200, b"<html>Please log in</html>", Refused, "does not answer as an MLflow server"),
        (200, b"", Refused, "does not answer as an MLflow server"),
        (200, b"[]", Refused, "does not answer as an MLflow server"),
        (200, b"[" * 90_000 + b"]" * 90_000, Refused, "does not answer as an MLflow server"),
        (503, b'{"a":' * 90_000 + b"1" + b"}" * 90_000, Retryable, "503"),
        (400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "bad"}, (BadBatch, Refused), "bad"),
        (413, b"too large", (BadBatch, Refused), "413"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/runs/get", "/runs/log-batch"])
def test_who_is_to_blame_for_an_answer(double, make_sink, points, path, said):
    status, content, kind, text = said
    double.answer = lambda http, asked: asked == path and say(http, status, content, Retry_After="7")
    with pytest.raises(kind, match=text) as caught:
        send(make_sink(), points(1))
    if caught.type is Retryable:
        assert caught.value.after == 7
    if status in (400, 413):
        assert caught.type is (Refused if path == "/runs/get" else BadBatch)


# -- the server and its settings ------------------------------------------------------------------------------------


def headers(double):
    return double.requests[-1][1]


def test_user_and_password_or_a_token_come_from_mlflows_variables(double, make_sink, points):
    send(make_sink(env={"MLFLOW_TRACKING_TOKEN": "tok", "MLFLOW_WORKSPACE": "team"}), points(1))
    assert (headers(double)["authorization"], headers(double)["x-mlflow-workspace"]) == ("Bearer tok", "team")
    env = {"MLFLOW_TRACKING_TOKEN": "tok", "MLFLOW_TRACKING_USERNAME": "ada", "MLFLOW_TRACKING_PASSWORD": "pw:é"}
    send(make_sink(env=env), points(1))
    assert headers(double)["authorization"] == "Basic YWRhOnB3OsOp"
    sink = make_sink(tracking_uri=double.url.replace("//", "//bob:s%40x@"))
    send(sink, points(1))
    assert headers(double)["authorization"] == "Basic Ym9iOnNAeA=="
    assert "bob" not in json.dumps([sink.destination(), sink.describe(), sink.find(())])


def test_databricks_needs_its_host_and_token(double, make_sink, points):
    env = {"DATABRICKS_HOST": double.url + "/", "DATABRICKS_TOKEN": "dapi", "MLFLOW_TRACKING_USERNAME": "ada"}
    sink = make_sink(tracking_uri="databricks", env=env)
    send(sink, points(1))
    assert headers(double)["authorization"] == "Bearer dapi"
    assert sink.destination()["server"] == double.url
    for lacks in env:
        if lacks.startswith("DATABRICKS"):
            with pytest.raises(Refused, match=f"databricks needs {lacks}"):
                make_sink(tracking_uri="databricks", env={name: value for name, value in env.items() if name != lacks})


def test_tls_with_an_authority_and_a_client_certificate(make_sink, points, tmp_path):
    import ssl

    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("server"))
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    certificate, key = authority.sign("client")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    ca, ours = (
        {"MLFLOW_TRACKING_SERVER_CERT_PATH": str(authority.file)},
        {"MLFLOW_TRACKING_CLIENT_CERT_PATH": str(both)},
    )
    with MlflowDouble(context) as double:
        double.add("r1")
        send(make_sink(tracking_uri=double.url, env=ca | ours), points(1))
        send(make_sink(tracking_uri=double.url, env=ours | {"MLFLOW_TRACKING_INSECURE_TLS": "true"}), points(1))
        assert len(rows(double)) == 2
        with pytest.raises(Refused, match=r"is not trusted: .*; set MLFLOW_TRACKING_SERVER_CERT_PATH"):
            send(make_sink(tracking_uri=double.url, env=ours), points(1))
        with pytest.raises(Refused, match=r"no\.pem: No such file"):
            send(make_sink(tracking_uri=double.url, env={"MLFLOW_TRACKING_SERVER_CERT_PATH": "no.pem"}), points(1))
        with pytest.raises(Retryable):
            send(make_sink(tracking_uri=double.url, env=ca), points(1))


@pytest.mark.parametrize("uri", ["file:/tmp/x/mlruns", "sqlite:////tmp/x/mlflow.db", "./mlruns", "mlruns"])
def test_a_store_without_a_server_is_refused_with_the_command_that_starts_one(make_sink, uri):
    store = uri if ":" in uri else f"file:{uri}"
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI: ") as caught:
        make_sink(tracking_uri=None, env={"MLFLOW_TRACKING_URI": uri})
    assert f"`mlflow server --backend-store-uri {store} --port 5000`" in str(caught.value)
    with pytest.raises(ValueError, match=r"tracking_uri: .* no tracking server"):
        MlflowSink.Config(tracking_uri=uri)


def test_the_password_of_a_database_is_not_repeated():
    with pytest.raises(ValueError, match="the address of a database") as caught:
        MlflowSink.Config(tracking_uri="postgresql://ada:secret@db/mlflow")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("node", ["a/b", "..", "a b", "é"])
def test_a_node_that_no_key_can_have_is_refused(node):
    with pytest.raises(ValueError, match="node: expected letters"):
        MlflowSink.Config(node=node)
    with pytest.raises(ConfigError, match="MLFLOW_SYSTEM_METRICS_NODE_ID: expected letters"):
        MlflowSink(MlflowSink.Config(), {"MLFLOW_SYSTEM_METRICS_NODE_ID": node})


def test_without_a_server_or_a_run_it_says_what_to_set(make_sink):
    with pytest.raises(Refused, match=r"no tracking server: set MLFLOW_TRACKING_URI or sinks\.mlflow\.tracking_uri"):
        make_sink(tracking_uri=None)
    with pytest.raises(Refused, match=r"no run: set MLFLOW_RUN_ID or sinks\.mlflow\.run"):
        make_sink(run=None)
    with pytest.raises(Refused, match="expected http://HOST:PORT"):
        make_sink(tracking_uri="http://host:port")
