import logging
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing

import grpc
import pytest
from google.auth import exceptions as auth
from google.rpc import status_pb2
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.monitoring import answers as service
from tests.doubles.monitoring.store import SUMMARY
from tests.sinks.google.conftest import HEAT, MINUTE, PREFIX, SENT, S, windowed

from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge
from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch_sinks.google import GoogleSink, is_loopback

VM = Dimensions({"@instance_id": "4520031799277581759", "@gcp_zone": "us-central1-a", "@hostname": "vm"})
BOOT = 10 * 3600 * S


def gpu(n):
    return Dimensions(VM, gpu=str(n))


def heat(n=0, at=None, value=61.0):
    return windowed(HEAT, [value], gpu(n), at)


def sent(value, at, start_time):
    return Datapoint(SENT, value, VM, at, start_time, at - MINUTE, None, None)


def reasons(rejected):
    return Counter(one.reason for one in rejected)


# -- what arrives


def test_a_gauge_arrives_as_a_gauge_of_doubles(double, make_sink):
    now = time.time_ns()

    assert make_sink().write([windowed(HEAT, [61.0, 64.0], Dimensions(gpu(3), team="vision"), now)]) == []

    (key,) = double.keys()
    assert key == (
        "some-project",
        PREFIX + "gpu/temperature",
        (("gpu", "3"), ("team", "vision")),
        "gce_instance",
        (("instance_id", "4520031799277581759"), ("zone", "us-central1-a")),
    )
    assert double.points() == [(now, now, 62.5)]
    told = double.descriptors["some-project", key.type]
    assert (told.metric_kind, told.value_type, told.unit, told.description) == (1, 3, "Cel", "Temperature of the core.")
    (request,) = double.writes()
    assert request.metadata["x-goog-request-params"] == "name=projects/some-project"


def test_a_counter_arrives_as_cumulative_since_the_boot(double, make_sink):
    now = time.time_ns()
    sink = make_sink()
    sink.write([sent(1000.0, now - 2 * MINUTE, now - BOOT)])
    sink.write([sent(1500.0, now - MINUTE, now - BOOT)])
    assert double.points() == [(now - BOOT, now - 2 * MINUTE, 1000.0), (now - BOOT, now - MINUTE, 1500.0)]
    assert double.descriptors["some-project", PREFIX + "network/sent"].metric_kind == 3


@pytest.mark.parametrize(
    ("statistic", "value"),
    [({}, 63.0), ({"gpu.*": "max"}, 70.0), ({"gpu.*": "min"}, 58.0), ({"gpu.*": "last"}, 61.0),
     ({"gpu.temp*": "max", "*": "min"}, 70.0), ({"cpu.*": "max"}, 63.0)],
)  # fmt: skip
def test_a_windows_gauge_is_its_mean_or_what_was_asked_for(double, make_sink, statistic, value):
    make_sink(statistic=statistic).write([windowed(HEAT, [58.0, 70.0, 61.0], gpu(0))])
    assert [point.value for point in double.points()] == [value]


def test_the_project_of_the_machine_is_taken_where_none_is_given(double, make_sink):
    make_sink(project=None).write([windowed(HEAT, [1.0], Dimensions(gpu(0), **{"@gcp_project": "of-the-machine"}))])
    assert double.keys()[0].project == "of-the-machine"


def test_without_any_project_it_says_so(make_sink):
    with pytest.raises(Refused, match="no Google Cloud project: set --project or GOOGLE_CLOUD_PROJECT"):
        make_sink(project=None).write([heat()])


# -- odd points


def odd(name="odd.metric", labels=None, kind=gauge, unit="1"):
    metric, start_time = kind(name, unit, "An odd one."), 1 if kind is counter else None
    return metric.point(time.time_ns(), 1.0, Dimensions(VM, **(labels or {})), start_time=start_time)


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (odd(labels={"a": "v" * 1025}), "label value longer than 1024 characters"),
        (odd(unit="caf\udce9"), "unit, description or resource is not UTF-8"),
        (HEAT.point(time.time_ns() - 26 * 3600 * S, 1.0, VM), "too old"),
        (HEAT.point(time.time_ns() + 86_400 * S, 1.0, VM), "too far ahead"),  # a suite may take long to come to this
    ],
)
def test_an_odd_point_is_rejected_with_its_reason_and_nothing_else_is_lost(double, make_sink, point, reason):
    assert reasons(make_sink().write([point])) == {reason: 1}
    assert reasons(make_sink().write([heat(0), point, heat(1)])) == {reason: 1}
    assert len(double.points()) == 2


@pytest.mark.parametrize(
    ("point", "kind", "labels"),
    [
        (odd(labels={"pod": "", "gpu": "0"}), "odd/metric", {"gpu": "0"}),
        (odd(name="step-time.p99"), "step_time/p99", {}),
        (odd(labels={"k8s.pod/name": "a"}), "odd/metric", {"k8s_pod_name": "a"}),
        (odd(labels={f"k{n}": "v" for n in range(30)}), "odd/metric", {f"k{n}": "v" for n in range(30)}),
        (odd(labels={"a": "v" * 1024}), "odd/metric", {"a": "v" * 1024}),
        (odd(labels={"a": "日本 ☃"}), "odd/metric", {"a": "日本 ☃"}),
    ],
)
def test_an_odd_name_arrives_as_one_that_is_allowed(double, make_sink, point, kind, labels):
    assert make_sink().write([point]) == []
    (key,) = double.keys()
    assert (key.type, dict(key.labels)) == (PREFIX + kind, labels)


def test_a_metric_whose_kind_changed_is_rejected_and_nothing_else(double, make_sink):
    sink = make_sink()
    sink.write([odd(), heat(0)])
    assert reasons(sink.write([odd(kind=counter), heat(1)])) == {"kind of the metric changed": 1}
    assert len(double.points()) == 3


def test_two_metrics_that_become_one_type_get_different_names(double, make_sink):
    assert reasons(make_sink().write([odd(name="a-b"), odd(name="a_b")])) == {"two metrics become the same type": 1}


def test_two_series_that_differ_by_an_empty_dimension_are_not_sent_as_one(double, make_sink):
    rejected = make_sink().write([odd(), odd(labels={"pod": ""})])
    assert reasons(rejected) == {"the same series as another, once empty dimensions are left out": 1}
    assert len(double.points()) == 1


def test_a_metric_that_was_described_otherwise_arrives_without_its_description(double, make_sink):
    sink = make_sink()
    sink.write([heat(0)])
    double.descriptors["some-project", PREFIX + "gpu/temperature"].description = "In other words."
    batch = [heat(1), odd()]
    with pytest.raises(Retryable, match="another unit or description"):
        sink.write(batch)
    assert sink.write(batch) == []
    assert (len(double.points("temperature")), len(double.points("odd/metric"))) == (2, 1)


# -- time


def test_two_units_and_descriptions_of_one_metric_are_sent_as_the_first_of_them(double, make_sink):
    other = gauge("gpu.temperature", "[degF]", "In other words.", dims=("gpu",)).point(
        time.time_ns(), 1.0, heat().dims | {"gpu": "9"}
    )
    assert make_sink().write([heat(), other]) == []
    assert len(double.points("temperature")) == 2
    assert (double.count["stored"], len(double.count)) == (2, 1)


def test_a_restart_in_mid_series_keeps_the_start_and_the_order(double, make_sink):
    now, first = time.time_ns(), make_sink()
    first.write([sent(1000.0, now - 3 * MINUTE, now - BOOT), heat(at=now - 3 * MINUTE)])
    second = make_sink(opened=False)
    second.restore(first.saved())
    second.open()
    jitter = 2 * S
    rejected = second.write([sent(1800.0, now - 2 * MINUTE, now - BOOT + jitter), heat(at=now - 3 * MINUTE - 1)])
    assert reasons(rejected) == {"not newer than the last point of its series": 1}
    assert double.points("sent") == [(now - BOOT, now - 3 * MINUTE, 1000.0), (now - BOOT, now - 2 * MINUTE, 1800.0)]
    assert set(double.count) == {"stored"}


# -- answers


def test_of_a_partial_write_the_good_points_count_and_the_bad_ones_have_reasons(double, make_sink):
    for n in (3, 4, 5, 50):
        make_sink().write([windowed(HEAT, [1.0], gpu(n), time.time_ns() + MINUTE)])
    rejected = make_sink().write([heat(n) for n in range(100)])
    assert reasons(rejected) == {"out of order: another writer of the same series": 4}
    assert sorted(int(one.point.dims["gpu"]) for one in rejected) == [3, 4, 5, 50]
    assert len(double.points()) == 100


@pytest.mark.parametrize("wording", ["old", "new"])
def test_the_words_of_any_year_are_understood(double, make_sink, wording):
    double.wording = wording
    make_sink().write([windowed(HEAT, [1.0], gpu(3), time.time_ns() - 3 * S)])
    rejected = make_sink().write([heat(n) for n in range(10)])
    assert [(one.point.dims["gpu"], one.reason) for one in rejected] == [
        ("3", "too frequent: another writer of the same series")
    ]


def test_a_counter_whose_history_was_lost_restarts_with_its_next_point_and_loses_none(double, make_sink):
    now = time.time_ns()
    make_sink().write([sent(1000.0, now - 4 * MINUTE, now - BOOT)])
    sink = make_sink(clock=lambda: now - 5 * MINUTE)  # with no state, and with a boot that seems to have been earlier

    readings = ((1600, 3), (1700, 2), (1900, 1))
    batches = [
        [sent(value, now - ago * MINUTE, now - BOOT - S), heat(0, now - ago * MINUTE)] for value, ago in readings
    ]
    with pytest.raises(Retryable, match="a later start time for a counter"):
        sink.write(batches[0])

    assert [sink.write(batch) for batch in batches] == [[], [], []]
    begun = now - 3 * MINUTE - 10**6
    assert double.points("sent")[1:] == [
        (begun, now - 3 * MINUTE, 0.0), (begun, now - 2 * MINUTE, 100.0), (begun, now - MINUTE, 300.0),
    ]  # fmt: skip


def test_a_backlog_whose_history_was_lost_does_not_count_as_sent_where_it_was_refused(double, make_sink):
    now = time.time_ns()
    make_sink().write([sent(1000.0, now - 9 * MINUTE, now - BOOT)])
    sink = make_sink()  # born after all of the backlog
    for ago in (8, 7, 6):
        point = sent(2000.0 - ago, now - ago * MINUTE, now - BOOT - S)
        try:
            assert sink.write([point]) == []
        except Retryable:
            assert sink.write([point]) == []
    assert len(double.points()) == 4


def test_a_start_that_is_older_for_good_is_another_writers(double, make_sink):
    now = time.time_ns()
    sink = make_sink(clock=lambda: now - 5 * MINUTE)
    point = sent(1000.0, now - MINUTE, now - BOOT)
    double.answer_next(summed("New reset timestamp must not be older than existing reset timestamp.", (3, 1)), n=2)
    with pytest.raises(Retryable):
        sink.write([point])
    assert reasons(sink.write([point])) == {"start older than the stored one: another writer of the same series": 1}


def test_another_writer_is_named_with_the_series_and_what_to_do(double, make_sink, caplog):
    make_sink().write([heat(7)])
    with caplog.at_level(logging.ERROR):
        sink = make_sink()
        sink.write([heat(7, time.time_ns() + S)])
        sink.write([heat(7, time.time_ns() + 2 * S)])
    (said,) = [record.getMessage() for record in caplog.records if "another writer sends" in record.getMessage()]
    assert f"{PREFIX}gpu/temperature {{'gpu': '7'}} of the resource gce_instance" in said
    assert "--dim" in said


def summed(message, *failed, stored=0):
    """Return a partial refusal of so many points with each code, in these words."""
    summary = SUMMARY(total_point_count=stored + sum(n for _, n in failed), success_point_count=stored)
    for code, n in failed:
        summary.errors.add(status=status_pb2.Status(code=code), point_count=n)
    return service.Answer(grpc.StatusCode.INVALID_ARGUMENT, message, (summary,))


IN_ORDER = "Points must be written in order. One or more had an older start time than the most recent point."
WHERE = '(example metric.type="t", metric.labels={"a": "b"}): write for resource=generic_node{}'


@pytest.mark.parametrize(
    "message",
    [
        f"not written: timeSeries[0] {WHERE} failed with: {IN_ORDER}; timeSeries[1] (example metric.ty...",
        f"not written: timeSeries[0] {WHERE} failed with: {IN_ORDER}; timeSeries[1] {WHERE} failed wi...",
        f"not written: timeSeries[0] {WHERE} failed with: {IN_ORDER}; timeSeries[1] {WHERE} failed with: The n...",
        f"not written: timeSeries[0] {WHERE} failed with: {IN_ORDER}; timeSeries[...",
        f"not written: {IN_ORDER}; The new labels would cause the metric t to have over 30 labels.",
    ],
)
def test_what_an_answer_does_not_say_of_a_point_is_not_guessed_from_its_neighbour(double, make_sink, message):
    double.answer_next(summed(message, (3, 2)))
    with pytest.raises(BadBatch):
        make_sink().write([heat(0), heat(1)])


def test_a_point_that_is_sent_without_description_is_not_tried_for_ever(double, make_sink):
    sink = make_sink()
    double.answer_next(summed("Its unit must be another.", (3, 1)), n=2)
    with pytest.raises(Retryable):
        sink.write([heat()])
    assert reasons(sink.write([heat()])) == {"unit or description differs from the stored one": 1}


def test_a_quota_that_fills_again_costs_no_point(double, make_sink):
    sink = make_sink()
    double.answer_next(summed(service.EXHAUSTED.message, (8, 1)))
    with pytest.raises(Retryable):
        sink.write([heat()])
    assert sink.write([heat()]) == []


def test_a_resource_that_is_set_up_wrong_costs_no_point(double, make_sink):
    with pytest.raises(
        Refused, match=r"rejects every point of the monitored resource generic_node .*sinks.google.location"
    ):
        make_sink(resource="generic_node", location="nowhere").write([heat(0), heat(1)])


@pytest.mark.parametrize("answer", [service.AWAY, service.LATE, service.BROKEN, service.EXHAUSTED])
def test_what_passes_is_tried_again_with_the_same_points(double, make_sink, answer):
    sink, batch = make_sink(), [heat(0), heat(1)]
    double.answer_next(answer)
    with pytest.raises(Retryable, match=answer.code.name):
        sink.write(batch)
    assert sink.write(batch) == []
    first, second = (request.series for request in double.writes())
    assert [one.points for one in first] == [one.points for one in second]


def test_an_answer_that_was_lost_costs_no_point_and_invents_no_error(double, make_sink, caplog):
    now, sink = time.time_ns(), make_sink()
    batch = [heat(n) for n in range(5)] + [sent(1.0, now, now - BOOT)]
    double.answer_next(service.LOST)
    with pytest.raises(Retryable):
        sink.write(batch)
    assert sink.write(batch) == []
    assert len(double.points()) == 6
    assert "another writer sends" not in caplog.text
    assert sink.write([heat(0, now + MINUTE), sent(2.0, now + MINUTE, now - BOOT)]) == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (service.DENIED, "gcloud projects add-iam-policy-binding some-project --role=roles/monitoring.metricWriter"),
        (service.DISABLED, "gcloud services enable monitoring.googleapis.com --project=some-project"),
        (service.SCOPES, "access scopes of this machine lack monitoring.write"),
        (service.NO_PROJECT, "some-project is the right project"),
        (service.UNKNOWN_CALLER, "gcloud auth application-default login"),
    ],
)
def test_a_wrong_configuration_is_reported_with_its_remedy(double, make_sink, answer, says):
    sink = make_sink()
    double.answer_next(answer)
    with pytest.raises(Refused) as told:
        sink.write([heat()])
    assert says in str(told.value)
    assert sink.write([heat()]) == []


def test_a_quota_of_series_rejects_what_is_over_it_and_lets_the_rest_pass(double, make_sink):
    double.most_series = 2
    sink = make_sink()
    assert reasons(sink.write([heat(n) for n in range(5)])) == {"over a quota of the project": 3}
    assert sink.write([heat(0, time.time_ns() + MINUTE)]) == []


# -- the configuration


@pytest.mark.parametrize(
    ("endpoint", "local"), [("[::1]:5", True), ("localhost", True), ("127.0.0.1.evil.org:80", False)]
)
def test_only_a_loopback_address_may_be_insecure_with_or_without_a_port(endpoint, local):
    assert is_loopback(endpoint) is local


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"insecure": True}, "insecure: expected an endpoint on a loopback address"),
        ({"insecure": True, "endpoint": "10.0.0.7:80"}, "loopback"),
        ({"project": "No Project"}, "project: expected a project id or number, got 'No Project'"),
        ({"prefix": "compute.googleapis.com/x/"}, "prefix: expected custom.googleapis.com/"),
        ({"prefix": "custom.googleapis.com/chip-watch/"}, "prefix: expected"),
        ({"timeout": 0.0}, "timeout"),
    ],
)
def test_what_can_never_work_is_refused_at_once(config, says):
    with pytest.raises(ValueError, match=says):
        GoogleSink.Config(**config)


def test_it_says_where_the_points_go(make_sink):
    assert make_sink().describe().startswith("project some-project, custom.googleapis.com/chipwatch/* at 127.0.0.1:")


def test_without_credentials_it_says_what_to_do(make_sink, monkeypatch, tmp_path):
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    with pytest.raises(Refused, match=r"application-default|default credentials"):
        make_sink(endpoint=None, insecure=False)


PLUGIN = "Getting metadata from plugin failed with error: "


@pytest.mark.parametrize(("problem", "error"), [(auth.TransportError, Retryable), (ValueError, Refused)])
def test_credentials_that_cannot_be_had_now_are_asked_for_again(make_sink, monkeypatch, problem, error):
    def default(**_):
        raise problem("no route")

    monkeypatch.setattr("google.auth.default", default)
    with pytest.raises(error, match=r"redentials.*no route"):
        make_sink(endpoint=None, insecure=False)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b'"x"', b"{}", b"\xff\xfeSECRET", b'{"type": "impersonated_service_account"}', None,
             b'{"type": "service_account", "private_key": ["SECRET"], "client_email": "a", "token_uri": "b"}',
             b'{"type": "service_account", "private_key": "SECRET", "client_email": "a", "token_uri": "b"}'],
)  # fmt: skip
def test_a_file_that_holds_no_credentials_is_a_set_up_at_fault_and_is_not_quoted(
    make_sink, monkeypatch, tmp_path, body
):
    path = tmp_path / "key.json"
    path.mkdir() if body is None else path.write_bytes(body)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    with pytest.raises(Refused) as told:
        make_sink(endpoint=None, insecure=False)
    assert "SECRET" not in str(told.value)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (f"{PLUGIN}('invalid_grant: Bad.', {{}})", "credentials are not valid"),
        (f"{PLUGIN}('deleted_client: None', {{}})", "credentials are not valid"),
        (f"{PLUGIN}the Google Compute Engine metadata service. Status: 404\n<html>", "no service account"),
        ("last error: Ssl handshake failed: OPENSSL_internal:CERTIFICATE_VERIFY_FAILED", "certificate is not trusted"),
    ],
)
def test_what_grpc_calls_away_and_does_not_come_back_is_a_set_up_at_fault(double, make_sink, message, says):
    double.answer_next("UNAVAILABLE", message)
    with pytest.raises(Refused, match=says):
        make_sink().write([heat()])


@pytest.mark.parametrize(
    ("variables", "host", "options"),
    [
        ({}, "monitoring.googleapis.com", (("grpc.enable_http_proxy", 0),)),
        ({"HTTPS_PROXY": "http://p:3128"}, "monitoring.googleapis.com", (("grpc.http_proxy", "http://p:3128"),)),
        ({"https_proxy": "p:3128"}, "monitoring.googleapis.com:443", (("grpc.http_proxy", "http://p:3128"),)),
        (
            {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".googleapis.com"},
            "monitoring.googleapis.com:443",
            (("grpc.enable_http_proxy", 0),),
        ),
    ],
)
def test_the_proxies_of_the_environment_hold_in_either_case(monkeypatch, variables, host, options):
    from chipwatch_sinks.google.client import proxy_options

    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_options(host) == options


def test_a_proxy_that_is_not_an_address_is_refused_without_its_password(monkeypatch):
    from chipwatch_sinks.google.client import proxy_options

    monkeypatch.setenv("https_proxy", "http://user:sec#ret@127.0.0.1:3128")
    with pytest.raises(Refused, match=r"^HTTPS_PROXY: expected http://HOST:PORT") as caught:
        proxy_options("monitoring.googleapis.com")
    assert "sec" not in str(caught.value)


@given(
    st.sampled_from([1, 60, 127, 128, 300, 20_000]),
    st.floats(allow_nan=False),
    st.integers(0, 2**61),
    st.integers(1, 10**18),
)
def test_what_is_put_together_is_what_the_messages_say(size, value, start, length):
    """The bytes that are kept and joined say the same as messages that are built field by field."""
    from google.api.metric_pb2 import MetricDescriptor
    from google.cloud import monitoring_v3

    from chipwatch_sinks.google.history import Last
    from chipwatch_sinks.google.wire import GoogleSeries, SentPoint, encode_point, request

    series = monitoring_v3.TimeSeries(
        metric={"type": "t" * size}, value_type=MetricDescriptor.DOUBLE, metric_kind=MetricDescriptor.GAUGE
    )
    head = monitoring_v3.TimeSeries.pb(series).SerializeToString()
    last = Last(start + length, start, 0, value, 0.0)
    point = Datapoint(HEAT, value, Dimensions(), start + length)
    kept = GoogleSeries(None, b"", head)
    made = request("p", [SentPoint(point, kept, last, encode_point(kept, point, last))] * 2)

    interval = {"end_time": {"seconds": last.end // S, "nanos": last.end % S}}
    if start:
        interval["start_time"] = {"seconds": start // S, "nanos": start % S}
    series.points = [monitoring_v3.Point(interval=interval, value={"double_value": value})]
    plain = monitoring_v3.CreateTimeSeriesRequest(name="projects/p", time_series=[series] * 2)
    assert made == monitoring_v3.CreateTimeSeriesRequest.pb(plain)


def test_what_is_left_out_of_the_client_is_there_for_others():
    words = (
        "from chipwatch_sinks.google import client, metric_service; from google.cloud import monitoring_v3 as whole;"
        "assert whole.MetricServiceClient is metric_service.service.MetricServiceClient;"
        "assert whole.types.TimeSeries is metric_service.series.TimeSeries; whole.AlertPolicyServiceClient"
    )
    subprocess.run([sys.executable, "-c", words], check=True)


def test_the_time_of_points_is_left_to_the_service_while_the_clock_is_not_trusted(double):
    at = time.time_ns()
    wrong = at + 20 * 86_400 * S
    config = GoogleSink.Config(project="some-project", endpoint=double.target, insecure=True)
    with closing(GoogleSink(config, lambda: wrong, lambda: None)) as sink:
        sink.open()
        assert sink.write([HEAT.point(at, 1.0, VM)]) == []
    assert double.count["stored"] == 1


def test_the_destination_is_the_project_as_far_as_it_is_known(double, monkeypatch):
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    given = {"prefix": PREFIX, "endpoint": double.target}
    config = {"endpoint": double.target, "insecure": True}
    assert GoogleSink(GoogleSink.Config(**config, project="project-one")).destination() == given | {
        "project": "project-one"
    }
    with closing(GoogleSink(GoogleSink.Config(**config))) as sink:
        assert sink.destination() == given
        sink.open()
        assert sink.destination() == given | {"project": "the machine's"}
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project-two")
    assert GoogleSink(GoogleSink.Config()).destination()["project"] == "project-two"
