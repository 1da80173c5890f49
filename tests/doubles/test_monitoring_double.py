"""The double refuses what the service refuses: else the tests that rest on it prove little."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from google.api_core import exceptions
from google.api_core.retry import Retry, if_exception_type
from google.cloud import monitoring_v3
from google.rpc.error_details_pb2 import ErrorInfo
from tests.doubles import monitoring as service
from tests.doubles.monitoring import Child, MonitoringDouble, Point, client_of, summary_of, words

ROOT = Path(__file__).parents[2]
NOW = 1_800_000_000
HOUR, S, MS = 3_600 * 10**9, 10**9, 10**6
PREFIX = "custom.googleapis.com/chipwatch/"
GCE = {"type": "gce_instance", "labels": {"instance_id": "4242", "zone": "us-central1-a"}}
WRITE = monitoring_v3.CreateTimeSeriesRequest.pb()
GAUGE, DELTA, CUMULATIVE = 1, 2, 3
BOOL, INT64, DOUBLE = 1, 2, 3


@pytest.fixture
def double():
    with MonitoringDouble() as running:
        running.clock = lambda: NOW
        yield running


@pytest.fixture
def client(double):
    """Google's own client."""
    made = client_of(double.target)
    yield made
    made.transport.close()


@pytest.fixture
def write(double):
    """Write series as raw protobuf; return the code, the message, and the counts of the summary."""
    with grpc.insecure_channel(double.target) as channel:
        call = channel.unary_unary("/google.monitoring.v3.MetricService/CreateTimeSeries")

        def send(*all_series, name="projects/p", raw=None):
            try:
                call(raw or WRITE(name=name, time_series=all_series).SerializeToString(), timeout=20)
            except grpc.RpcError as error:
                summary = summary_of(error)
                inner = {each.status.code: each.point_count for each in summary.errors} if summary else {}
                return error.code().name, error.details(), inner
            return "OK", "", {}

        yield send


def series(metric="gpu/utilization", end=0, start=None, *, value=42.0, labels=(), resource=GCE, **more):
    """Return a series with one point; times in ns from now."""
    interval = {"end_time": stamp(end)} | ({} if start is None else {"start_time": stamp(start)})
    field = {bool: "bool_value", int: "int64_value", float: "double_value", str: "string_value"}[type(value)]
    name = metric if ".com/" in metric else PREFIX + metric
    whole = {
        "metric": {"type": name, "labels": dict(labels)},
        "resource": resource,
        "points": [{"interval": interval, "value": {field: value}}],
    }
    return monitoring_v3.TimeSeries.pb()(**whole | more)


def stamp(at):
    return dict(zip(("seconds", "nanos"), divmod(NOW * S + at, S), strict=True))


def counter(end, start, **more):
    return series("net/sent", end, start, metric_kind=CUMULATIVE, **more)


def node(kind="generic_node", **labels):
    return {"type": kind, "labels": labels}


# -- stored points, and answers


def test_it_takes_what_googles_client_sends_stores_it_and_shows_it(double, client):
    for at in (-20, -10):
        end = {"seconds": NOW + at}
        made = monitoring_v3.TimeSeries(
            metric={"type": f"{PREFIX}a", "labels": {"gpu": "0", "blank": ""}},
            resource=GCE,
            points=[monitoring_v3.Point(interval={"end_time": end}, value={"double_value": float(at)})],
            unit="%",
            description="Busy.",
        )
        client.create_time_series(name="projects/p", time_series=[made])

    (key,) = double.keys("/a", gpu="0", zone="us-central1-a")
    assert key == (
        "p",
        f"{PREFIX}a",
        (("gpu", "0"),),
        "gce_instance",
        (("instance_id", "4242"), ("zone", "us-central1-a")),
    )
    assert double.points("/a") == [
        Point(at, at, value) for at, value in [((NOW - 20) * S, -20.0), ((NOW - 10) * S, -10.0)]
    ]
    assert double.count == {"stored": 2}
    (metric,) = client.list_metric_descriptors(name="projects/p")
    assert (metric.type, metric.unit, metric.description) == (f"{PREFIX}a", "%", "Busy.")
    assert (metric.metric_kind, metric.value_type, {label.key for label in metric.labels}) == (
        GAUGE,
        DOUBLE,
        {"gpu", "blank"},
    )
    wanted = {
        "name": "projects/p",
        "filter": f'metric.type = "{PREFIX}a"',
        "interval": {"end_time": {"seconds": NOW - 10}},
    }
    (listed,) = client.list_time_series(request=wanted)
    assert [point.value.double_value for point in listed.points] == [-10.0, -20.0]
    assert listed.resource.labels["project_id"] == "p"
    assert not [*client.list_time_series(request=wanted | {"filter": 'metric.type = "x"'})]
    named = client.get_monitored_resource_descriptor(name="projects/p/monitoredResourceDescriptors/k8s_node")
    assert [label.key for label in named.labels] == ["project_id", "location", "cluster_name", "node_name"]


def test_it_notes_what_was_asked_with_its_headers(double, client):
    request = monitoring_v3.CreateTimeSeriesRequest.wrap(WRITE(name="projects/p", time_series=[series(), series("b")]))
    client.create_time_series(request)
    double.answer_next("UNAVAILABLE")
    with pytest.raises(exceptions.ServiceUnavailable):
        client.create_time_series(request)

    first, second = double.writes()
    assert (first.project, len(first.series), first.stored, first.code) == ("p", 2, 2, grpc.StatusCode.OK)
    assert first.metadata["x-goog-request-params"] == "name=projects/p"
    assert first.wire_bytes == len(WRITE(name="projects/p", time_series=first.series).SerializeToString())
    assert (second.stored, second.code) == (0, grpc.StatusCode.UNAVAILABLE)


def test_good_points_of_a_request_are_stored_and_the_error_says_which_were_not(double, client):
    client.create_time_series(name="projects/p", time_series=[monitoring_v3.TimeSeries.wrap(series("m0"))])
    double.clock = lambda: NOW + 60
    batch = [series(f"m{n}", 5 * S) for n in range(10)]
    batch += [batch[1], series("bad-name")]
    with pytest.raises(exceptions.InvalidArgument) as caught:
        client.create_time_series(request=WRITE(name="projects/p", time_series=batch))

    summary = summary_of(caught.value)
    assert (summary.total_point_count, summary.success_point_count) == (12, 9)
    assert {each.status.code: each.point_count for each in summary.errors} == {9: 1, 3: 2}
    assert [len(double.points(f"m{n}")) for n in range(10)] == [1] * 10
    assert double.count == {"stored": 10, "INVALID_ARGUMENT": 2, "FAILED_PRECONDITION": 1}
    assert all(f"timeSeries[{n}]" in caught.value.message for n in (0, 10, 11))


def test_a_refusal_is_worded_as_the_service_words_it(write):
    busy = [series("a", labels={"gpu": str(n)}) for n in range(5)]
    write(*busy)
    late = [series("a", 4 * S, labels={"gpu": str(n)}) for n in range(5)]

    code, message, inner = write(series("b"), *late[:3], late[4])
    assert (code, inner) == ("INVALID_ARGUMENT", {9: 4})
    assert message == (
        "One or more TimeSeries could not be written: timeSeries[1-4] "
        f'(example metric.type="{PREFIX}a", metric.labels={{"gpu": "0"}}): write for '
        "resource=gce_instance{instance_id:4242,zone:us-central1-a} failed with: One or more points were written more "
        f"frequently than the maximum sampling period configured for the metric. {{Metric: {PREFIX}a, "
        "Timestamps: {Youngest Existing: '2027/01/15-00:00:00.000', New: '2027/01/15-00:00:04.000'}}"
    )


def test_older_wordings_put_the_indices_last_or_leave_them_out(double, write):
    write(series())
    double.wording = "old"
    assert write(series("b"), series())[1].endswith("than the most recent point.: timeSeries[1]")
    double.wording = "bare"
    told = write(series("c"), series(), series("d-e"))[1]
    assert "more recent" not in told
    assert "[" not in told


@pytest.mark.parametrize(
    ("numbers", "told"),
    [([3], "3"), ([1, 0], "0,1"), ([0, 1, 2], "0-2"), ([3, 8, 9, 10, 43, 44, 48], "3,8-10,43,44,48"), ([], "")],
)
def test_indices_are_listed_in_ranges_of_three_and_more(numbers, told):
    assert words.indices(numbers) == told


@pytest.mark.parametrize("value", ["x" * 1024, "é" * 1024, "%" * 1024])
def test_a_refusal_of_everything_still_fits_the_headers_of_an_answer(client, value):
    batch = [series(f"bad-{n}", labels={"k": value}) for n in range(100)]
    batch += [series(f"late{n}", -26 * HOUR, labels={"k": value}) for n in range(100)]
    with pytest.raises(exceptions.InvalidArgument) as caught:
        client.create_time_series(request=WRITE(name="projects/p", time_series=batch))

    assert summary_of(caught.value).errors[0].point_count == 200
    assert caught.value.message.endswith("...")


# -- the rules of a request


def test_200_series_are_taken_and_201_refused_whole(double, write):
    batch = [series(labels={"n": str(n)}) for n in range(201)]

    code, message, inner = write(*batch)
    assert (code, inner, double.series) == ("INVALID_ARGUMENT", {}, {})
    assert (
        message
        == "Field timeSeries had an invalid value: A maximum of 200 TimeSeries can be written in a single request."
    )
    assert write(*batch[:200])[0] == "OK"
    assert double.count == {"stored": 200, "INVALID_ARGUMENT": 201}


def test_no_series_and_no_project_are_refused(write):
    assert write()[:2] == ("INVALID_ARGUMENT", "Request was missing field timeSeries.")
    for name in ("", "p", "projects/", "projects/p/timeSeries"):
        assert write(series(), name=name)[1].startswith("Name must begin with")
    assert write(series(resource=node("global", project_id="p")))[0] == "OK"
    told = write(series("b"), series("c", resource=node("global", project_id="q")))[1]
    assert told.startswith('Field timeSeries[1].resource.labels.project_id had an invalid value of "q"')


def test_a_request_that_is_not_a_message_or_not_utf8_is_refused_whole(double, write):
    good = WRITE(name="projects/p", time_series=[series(labels={"k": "?????"})]).SerializeToString()

    for raw in (b"\xff", good.replace(b"?????", b"\xff\xfe\xfa\xc3\x28"), good[:-1]):
        assert write(raw=raw)[0] == "INVALID_ARGUMENT"
    assert double.series == {}
    assert write(raw=good.replace(b"?????", "ééa".encode()))[0] == "OK"


@pytest.mark.parametrize("count", [0, 2])
def test_a_series_has_exactly_one_point(double, write, count):
    bad = series("b")
    bad.points.extend([*bad.points, *bad.points][:count])
    del bad.points[: 1 if count == 0 else 0]

    code, message, inner = write(series(), bad)
    assert (code, inner) == ("INVALID_ARGUMENT", {3: 1})
    assert "Field timeSeries[1].points had an invalid value" in message
    assert len(double.series) == 1


def test_of_a_series_that_comes_twice_only_the_later_is_refused(double, write):
    same = [
        series(value=1.0),
        series(value=2.0, labels={"k": ""}),
        series(labels={"k": "v"}),
        series(resource=node("global")),
    ]

    code, message, inner = write(*same)
    assert (code, inner) == ("INVALID_ARGUMENT", {3: 1})
    assert message == (
        "One or more TimeSeries could not be written: Field timeSeries[1] had an invalid value: Duplicate TimeSeries "
        "encountered. Only one point can be written per TimeSeries per request."
    )
    assert [point.value for point in double.points()] == [1.0, 42.0, 42.0]


# -- the rules of time


@pytest.mark.parametrize(
    ("after", "code", "told"),
    [
        *((after, 3, "Points must be written in order.") for after in (-20 * S, 0, MS - 1)),
        *((after, 9, "more frequently than the maximum sampling period") for after in (MS, 10 * S - 1)),
        (10 * S, 0, ""),
    ],
)
def test_ends_rise_by_ten_seconds(double, write, after, code, told):
    write(series())

    _, message, inner = write(series(end=after))
    assert inner == ({code: 1} if code else {})
    assert told in message
    assert len(double.points()) == (1 if code else 2)


def test_the_gap_can_be_set(double, write):
    double.min_gap = 0.5
    write(series())

    assert write(series(end=S // 2 - 1))[2] == {9: 1}
    assert write(series(end=S // 2))[0] == "OK"


@pytest.mark.parametrize(
    ("end", "code"),
    [(-25 * HOUR - 1, "INVALID_ARGUMENT"), (-25 * HOUR, "OK"), (300 * S, "OK"), (300 * S + 1, "INVALID_ARGUMENT")],
)
def test_ends_are_within_25_hours_and_5_minutes_of_the_servers_clock(double, write, end, code):
    assert write(series(end=end))[0] == code
    double.clock = lambda: NOW + 26 * 3600
    assert write(series("b", end))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("start", "code"), [(None, "OK"), (0, "OK"), (-1, "INVALID_ARGUMENT"), (1, "INVALID_ARGUMENT")]
)
def test_a_gauge_starts_where_it_ends(write, start, code):
    told = write(series(start=start))
    assert told[0] == code
    assert (
        code == "OK"
        or "The start time must be equal to the end time (2027-01-15T00:00:00-08:00) for the gauge" in told[1]
    )


@pytest.mark.parametrize(
    ("start", "code"), [(-1, "OK"), (-999 * HOUR, "OK"), *((at, "INVALID_ARGUMENT") for at in (None, 0, 1))]
)
def test_a_counter_starts_before_it_ends(write, start, code):
    told = write(counter(0, start))
    assert told[0] == code
    assert code == "OK" or "The start time must be before the end time" in told[1]


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (-HOUR, ""),
        (-HOUR - MS, "New reset timestamp '2027/01/14-22:59:59.999 (1799996399999000)' must not be older than"),
        (-HOUR + MS, "Points must be written in order."),
        (0, "Points must be written in order."),
        (MS - 1, "Points must be written in order."),
        (MS, ""),
    ],
)
def test_a_counters_start_stays_or_moves_past_the_last_end(double, write, start, told):
    write(counter(0, -HOUR))

    _, message, inner = write(counter(20 * S, start))
    assert told in message
    assert inner == ({3: 1} if told else {})
    assert len(double.points()) == (1 if told else 2)


def test_after_a_reset_the_new_start_holds(write):
    write(counter(0, -HOUR))
    write(counter(20 * S, 5 * S))

    assert write(counter(40 * S, -HOUR))[2] == {3: 1}
    assert write(counter(40 * S, 5 * S))[0] == "OK"


def test_an_end_a_value_and_whole_nanoseconds_are_needed(write):
    no_end, no_value, odd = series("a"), series("b"), series("c")
    no_end.points[0].interval.ClearField("end_time")
    no_value.points[0].ClearField("value")
    odd.points[0].interval.end_time.nanos = 10**9

    told = write(no_end, no_value, odd)
    assert told[2] == {3: 3}
    assert "missing field timeSeries[0].points[0].interval.endTime" in told[1]
    assert "missing field timeSeries[1].points[0].value" in told[1]


# -- the rules of metrics


def test_the_first_write_decides_the_kind(write):
    write(series(), counter(0, -1))

    told = write(series(end=20 * S, start=S, metric_kind=CUMULATIVE), series("net/sent", 20 * S, metric_kind=GAUGE))
    assert told[2] == {3: 2}
    assert f"timeSeries[0]: Metric kind for metric {PREFIX}gpu/utilization must be GAUGE, but is CUMULATIVE." in told[1]
    assert write(series("net/sent", 20 * S, -1))[0] == "OK"  # a kind that is not told is the metric's


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, "conflicts with the existing value type (INT64)."),
        ({"value_type": DOUBLE}, "must be INT64, but is DOUBLE."),
    ],
)
def test_the_first_write_decides_the_type_of_values_for_ever(write, told, words):
    write(series(value=1))

    assert f"Value type for metric {PREFIX}gpu/utilization {words}" in write(series(end=20 * S, **told))[1]
    assert write(series(end=20 * S, labels={"other": "series"}))[2] == {3: 1}
    assert write(series(end=20 * S, value=2, value_type=INT64))[0] == "OK"


def test_a_declared_type_is_that_of_the_point(write):
    assert "Field timeSeries[0].valueType" in write(series(value=1, value_type=DOUBLE))[1]


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        (True, GAUGE, ""),
        (True, CUMULATIVE, "A BOOL metric must be GAUGE."),
        ("word", GAUGE, "A STRING metric is not created by a write."),
        ("word", CUMULATIVE, "A STRING metric must be GAUGE."),
        (1, CUMULATIVE, ""),
        (1, DELTA, 'an invalid value of "DELTA": It must be GAUGE or CUMULATIVE.'),
        (1, 77, 'an invalid value of "77": It must be GAUGE or CUMULATIVE.'),
    ],
)
def test_kinds_and_types_that_cannot_be_written(write, value, kind, told):
    code, message, _ = write(series(value=value, start=0 if kind == GAUGE else -1, metric_kind=kind))
    assert (code == "OK") is (not told)
    assert told in message


def test_a_distribution_has_at_most_200_buckets(write):
    def spread(buckets):
        made = series("d")
        made.points[0].value.distribution_value.bucket_counts.extend([1] * buckets)
        return made

    assert write(spread(201))[2] == {3: 1}
    assert write(spread(200))[0] == "OK"


def test_a_metric_has_at_most_30_labels_over_all_its_series(double, write):
    def labelled(first, last):
        return {f"k{n}": "v" for n in range(first, last)}

    words = f"timeSeries[0]: The new labels would cause the metric {PREFIX}gpu/utilization to have over 30 labels."
    assert words in write(series(labels=labelled(0, 31)))[1]
    assert write(series(labels=labelled(0, 20)))[0] == "OK"
    assert words in write(series(labels=labelled(10, 31)))[1]
    assert write(series(labels=labelled(10, 30)))[0] == "OK"
    assert len(double.descriptors["p", f"{PREFIX}gpu/utilization"].labels) == 30


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ("k", True),
        ("Key_7", True),
        ("k" * 100, True),
        *((bad, False) for bad in ("", "7bar", "_k", "project-id", "http.scheme", "my.org/keys", "é", "k" * 101)),
    ],
)
def test_the_names_of_labels(write, key, good):
    code, message, _ = write(series(labels={key: "v"}))
    assert (code == "OK") is good
    assert good or f'Field timeSeries[0].metric.labels had an invalid value of "{key}": Label key' in message


@pytest.mark.parametrize(("value", "good"), [("", True), ("v" * 1024, True), ("é" * 1024, True), ("v" * 1025, False)])
def test_the_values_of_labels(write, value, good):
    assert (write(series(labels={"k": value}))[0] == "OK") is good
    assert (
        write(series("b", resource=node("global") | {"labels": {"project_id": "p"}}, labels={"k": value}))[0] == "OK"
    ) is good
    assert (write(series(resource=node(location="global", namespace="n", node_id=value)))[0] == "OK") is good


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("custom.googleapis.com/a", ""),
        ("workload.googleapis.com/a_B/c1.d", ""),
        ("external.googleapis.com/a/b", ""),
        ("custom.googleapis.com/" + "a" * 178, ""),
        ("custom.googleapis.com/" + "a" * 179, "too long"),
        *(
            (bad, "The metric type must be a URL-formatted string with a domain and non-empty path.")
            for bad in ("", "a", "custom.googleapis.com", "custom.googleapis.com/", "custom.googleapis.com/a-b")
        ),
        *(
            (f"custom.googleapis.com/{bad}", "The metric type must be")
            for bad in ("a//b", "a/", "1a", "a/_b", "a b", "é", "a:b", "a\n")
        ),
        ("compute.googleapis.com/instance/a", "Unknown metric: compute.googleapis.com/instance/a"),
        ("agent.googleapis.com/a", "Unknown metric"),
        ("example.com/a", "Unknown metric"),
    ],
)
def test_the_names_of_metrics(write, name, told):
    made = series()
    made.metric.type = name
    code, message, inner = write(made)
    assert (code, inner) == (("INVALID_ARGUMENT", {3: 1}) if told else ("OK", {}))
    assert told in message


def test_prometheus_metrics_and_their_resource_go_together(write):
    target = node("prometheus_target", location="us-east1", cluster="", namespace="", job="j", instance="i:1")

    assert write(series("prometheus.googleapis.com/a_b/gauge", resource=target))[0] == "OK"
    assert write(series("prometheus.googleapis.com/a_b/unknown:counter", resource=target))[0] == "OK"
    assert "cannot be written to prometheus_target" in write(series(resource=target))[1]
    assert "cannot be written to gce_instance" in write(series("prometheus.googleapis.com/a_b/gauge"))[1]


RESOURCES = [
    node("global"),
    node("gce_instance", instance_id="1", zone="us-central1-a"),
    node("k8s_cluster", location="us-central1", cluster_name="c"),
    node("k8s_node", location="us-central1", cluster_name="c", node_name="n"),
    node("k8s_pod", location="us-central1-b", cluster_name="c", namespace_name="n", pod_name="p"),
    node("k8s_container", location="us-east1", cluster_name="c", namespace_name="n", pod_name="p", container_name="x"),
    node("generic_node", location="global", namespace="", node_id="n"),
    node("generic_task", location="europe-west4", namespace="n", job="j", task_id="t"),
    node("aws_ec2_instance", instance_id="i-0", region="aws:us-east-1", aws_account="123456789012"),
    node("aws_ec2_instance", instance_id="i-0", region="us-gov-west-1", aws_account="123456789012"),
]


@pytest.mark.parametrize("good", RESOURCES, ids=lambda resource: resource["type"])
def test_a_monitored_resource_has_its_labels_and_no_others(write, good):
    assert write(series(resource=good))[0] == "OK"
    assert write(series("b", resource=good | {"labels": good["labels"] | {"project_id": "p"}}))[0] == "OK"
    assert (
        '"host": Unrecognized resource label'
        in write(series("c", resource=good | {"labels": good["labels"] | {"host": "h"}}))[1]
    )
    for missing in good["labels"]:
        rest = {name: value for name, value in good["labels"].items() if name != missing}
        told = write(series("d", resource=good | {"labels": rest}))[1]
        assert f"timeSeries[0]: The set of resource labels is incomplete. Missing labels: ({missing})." in told


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (node("cloud_run_revision"), "Metrics cannot be written to cloud_run_revision. See https://cloud.google.com/"),
        (node("gpu_node"), "Unrecognized resource type: gpu_node."),
        (node(""), "Unrecognized resource type: ."),
        (node("generic_node", node_id="n"), "Missing labels: (location namespace)."),
        (node("generic_node", location="Rack 7", namespace="", node_id="n"), "Unrecognized region or location."),
        (node("gce_instance", instance_id="1", zone=""), "Unrecognized region or location."),
    ],
)
def test_other_resources_and_places_are_refused(write, bad, told):
    assert told in write(series(resource=bad))[1]


def test_unit_and_description_are_set_once(double, write):
    def told(end, **words):
        return write(series(end=end, **words))

    told(0)
    told(10 * S, unit="%", description="Busy.")
    assert told(20 * S)[0] == "OK"
    assert "Field timeSeries[0].unit" in told(30 * S, unit="1", description="Busy.")[1]
    assert "Field timeSeries[0].description" in told(30 * S, unit="%", description="Other.")[1]
    double.edits = True
    assert told(30 * S, unit="1", description="Other.")[0] == "OK"
    metric = double.descriptors["p", f"{PREFIX}gpu/utilization"]
    assert (metric.unit, metric.description) == ("%", "Busy.")


def test_series_of_a_resource_and_metrics_have_their_quotas(double, write):
    double.most_series, double.most_metrics = 2, 2

    code, message, inner = write(series("a"), series("b"), series("a", labels={"k": "v"}))
    assert (code, inner) == ("RESOURCE_EXHAUSTED", {8: 1})
    assert message.endswith("failed with: Monitored resource has too many time series (custom metrics).")
    assert write(series("a", resource=node("global")))[0] == "OK"
    assert "Your metric descriptor quota has been exhausted." in write(series("c", resource=node("global")))[1]
    assert write(series("a", 10 * S))[0] == "OK"


# -- faults


def test_scripted_answers_are_met_in_order_and_then_no_more(double, write):
    double.answer_next(grpc.StatusCode.UNAVAILABLE, "away", n=2)
    double.answer_next(8)
    double.answer_next(None)
    double.answer_next("INTERNAL")

    told = [write(series(end=at * 10 * S)) for at in range(6)]
    assert [code for code, *_ in told] == ["UNAVAILABLE", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "OK", "INTERNAL", "OK"]
    assert told[0][1] == "away"
    assert len(double.points()) == 2
    assert double.answered == {"OK": 2, "UNAVAILABLE": 2, "RESOURCE_EXHAUSTED": 1, "INTERNAL": 1}


def test_weather_answers_what_no_script_does(double, write):
    double.weather = lambda: service.AWAY
    double.answer_next(None)

    assert [write(series(end=at * 10 * S))[0] for at in range(2)] == ["OK", "UNAVAILABLE"]


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (service.DENIED, exceptions.PermissionDenied, ""),
        (service.SCOPES, exceptions.PermissionDenied, "ACCESS_TOKEN_SCOPE_INSUFFICIENT"),
        (service.DISABLED, exceptions.PermissionDenied, "SERVICE_DISABLED"),
        (service.NO_PROJECT, exceptions.NotFound, ""),
        (service.UNKNOWN_CALLER, exceptions.Unauthenticated, "ACCESS_TOKEN_EXPIRED"),
        (service.EXHAUSTED, exceptions.ResourceExhausted, "RATE_LIMIT_EXCEEDED"),
        (service.AWAY, exceptions.ServiceUnavailable, ""),
        (service.BROKEN, exceptions.InternalServerError, ""),
        (service.LATE, exceptions.DeadlineExceeded, ""),
    ],
)
def test_known_answers_reach_the_client_with_their_details(double, client, answer, error, reason):
    double.answer_next(answer)
    with pytest.raises(error) as caught:
        client.create_time_series(request=WRITE(name="projects/p", time_series=[series()]))

    assert caught.value.message == answer.message
    assert [detail.reason for detail in caught.value.details if isinstance(detail, ErrorInfo)] == [reason] * bool(
        reason
    )
    assert double.series == {}


def test_a_lost_answer_was_heard_so_that_a_retry_is_out_of_order(double, write):
    double.answer_next(service.LOST)

    assert write(series())[0] == "DEADLINE_EXCEEDED"
    assert double.writes()[0].stored == 1
    assert write(series())[2] == {3: 1}


@pytest.mark.parametrize(("stored", "points"), [(True, 1), (False, 0)])
def test_a_client_that_does_not_wait_was_heard_only_if_the_script_says_so(double, client, until, stored, points):
    assert not [*client.list_metric_descriptors(name="projects/p")]  # it is connected
    double.answer_next(None, stored=stored, delay=30)
    with pytest.raises(exceptions.DeadlineExceeded):
        client.create_time_series(request=WRITE(name="projects/p", time_series=[series()]), timeout=1)

    until(double.writes)
    assert double.writes()[0].code is (grpc.StatusCode.OK if stored else grpc.StatusCode.CANCELLED)
    assert len(double.points()) == points


def test_a_late_answer_is_the_deserved_one(double, write):
    double.answer_next(None, delay=0.1)
    double.answer_next("UNAVAILABLE", delay=0.1)

    assert [write(series())[0] for _ in range(2)] == ["OK", "UNAVAILABLE"]


def test_single_points_can_be_made_to_fail(double, write):
    double.fail_points("/b", "INTERNAL", n=2)

    code, message, inner = write(series("a"), series("b"))
    assert (code, inner) == ("INTERNAL", {13: 1})
    assert "timeSeries[1] (example" in message
    assert message.endswith(f"failed with: {service.BROKEN.message}")
    assert write(series("bad-name"), series("b"))[::2] == ("INVALID_ARGUMENT", {3: 1, 13: 1})
    assert write(series("b"))[0] == "OK"


# -- its life


def test_it_can_be_away_for_a_while_and_keeps_its_port_and_its_points(double, client, until):
    def sent(at):
        try:
            client.create_time_series(request=WRITE(name="projects/p", time_series=[series(end=at * S)]))
        except exceptions.ServiceUnavailable:
            return False
        return True

    assert sent(0)
    double.stop()
    assert not sent(10)
    double.start()
    until(lambda: sent(20))
    double.forget()
    assert sent(-10)
    assert len(double.points()) == 1


def test_one_that_does_not_listen_refuses_until_it_does(until):
    with MonitoringDouble(listen=False) as later, grpc.insecure_channel(later.target) as channel:
        ready = grpc.channel_ready_future(channel)
        with pytest.raises(grpc.FutureTimeoutError):
            ready.result(timeout=0.2)
        later.start()
        ready.result(timeout=20)


def test_stopping_ends_those_who_wait(double, client, until):
    double.answer_next("UNAVAILABLE", delay=60)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.create_time_series, WRITE(name="projects/p", time_series=[series()]), timeout=30)
        until(lambda: not double._script)
        double.stop()
        with pytest.raises((exceptions.ServiceUnavailable, exceptions.Cancelled)):
            waiting.result(timeout=20)


def test_it_serves_many_at_once_and_leaves_no_thread(write):
    before = threading.active_count()
    # On a machine that is busy a connection may take longer than gRPC waits for it; nothing was written then.
    connecting = Retry(predicate=if_exception_type(exceptions.ServiceUnavailable), timeout=60)
    with MonitoringDouble() as double:
        double.clock = lambda: NOW
        clients = [client_of(double.target) for _ in range(8)]

        def send(number):
            for at in range(20):
                batch = [series(end=at * 10 * S, labels={"writer": str(number), "n": str(n)}) for n in range(50)]
                request = WRITE(name="projects/p", time_series=batch)
                clients[number].create_time_series(request=request, retry=connecting)

        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(send, range(8))] == [None] * 8
        for each in clients:
            each.transport.close()
        assert double.count == {"stored": 8 * 20 * 50}
        assert {len(points) for points in double.series.values()} == {20}

    assert threading.active_count() <= before


def test_of_two_writers_on_one_series_one_is_always_wrong(double, client):
    def send(_):
        try:
            client.create_time_series(request=WRITE(name="projects/p", time_series=[series()]))
        except exceptions.InvalidArgument as error:
            return "in order" in error.message
        return None

    with ThreadPoolExecutor(8) as pool:
        assert sorted(map(str, pool.map(send, range(8)))) == ["None"] + ["True"] * 7


@pytest.mark.parametrize("kept", [True, False])
def test_a_child_can_be_killed_and_comes_back_with_what_its_journal_holds(tmp_path, until, kept):
    journal = tmp_path / "journal" if kept else None
    with Child(journal) as child:
        client = client_of(child.target)
        now = WRITE(name="projects/p", time_series=[series()])
        now.time_series[0].points[0].interval.end_time.GetCurrentTime()

        def outcome():
            try:
                client.create_time_series(request=now)
            except exceptions.GoogleAPICallError as error:
                return type(error).__name__
            return "OK"

        assert outcome() == "OK"
        where = child.target
        child.kill()
        assert outcome() == "ServiceUnavailable"
        child.start()
        assert child.target == where
        after = until(lambda: ended if (ended := outcome()) != "ServiceUnavailable" else "")
        client.transport.close()

    assert after == ("InvalidArgument" if kept else "OK")
    if kept:
        with MonitoringDouble(journal=journal, listen=False) as heir:
            assert len(heir.points("utilization")) == 1


def test_a_journal_that_ends_in_mid_write_is_read_up_to_there(tmp_path):
    journal = tmp_path / "journal"
    request = WRITE(name="projects/p", time_series=[series(), series("b")])
    with MonitoringDouble(journal=journal, listen=False) as first:
        first.clock = lambda: NOW
        assert first.write(request)[1] == 2
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[:50])

    with MonitoringDouble(journal=journal, listen=False) as second:
        second.clock = lambda: NOW
        assert (len(second.series), second.write(request)[1]) == (2, 0)
    assert journal.read_bytes() == whole


def test_it_runs_by_hand_and_ends_by_itself():
    done = subprocess.run(
        [sys.executable, "-m", "tests.doubles.monitoring", "--seconds", "0.1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert done.stdout.startswith("127.0.0.1:")
    assert done.stderr == ""
