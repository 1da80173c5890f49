"""The double refuses what the service refuses: else the tests that rest on it prove little."""

import pytest
from google.cloud import monitoring_v3
from tests.doubles.monitoring import MonitoringDouble

NOW = 1_800_000_000
HOUR, S, MS = 3_600 * 10**9, 10**9, 10**6
PREFIX = "custom.googleapis.com/chipwatch/"
WRITE = monitoring_v3.CreateTimeSeriesRequest.pb()
GAUGE, DELTA, CUMULATIVE = 1, 2, 3
DOUBLE = 3


@pytest.fixture
def double():
    with MonitoringDouble(listen=False) as made:
        made.clock = lambda: NOW
        yield made


@pytest.fixture
def write(double):
    """Write series; return the code, the message, and the number of points that were refused."""

    def send(*all_series, name="projects/p"):
        answer, stored = double.write(WRITE(name=name, time_series=all_series))
        return answer.code.name, answer.message, len(all_series) - stored

    return send


def node(kind="generic_node", **labels):
    return {"type": kind, "labels": labels}


GCE = node("gce_instance", instance_id="4242", zone="us-central1-a")


def series(metric="gpu/utilization", end=0, start=None, *, value=42.0, labels=(), resource=GCE, **more):
    """Return a series with one point; times in ns from now."""
    interval = {"end_time": stamp(end)} | ({} if start is None else {"start_time": stamp(start)})
    field = {int: "int64_value", float: "double_value", str: "string_value"}[type(value)]
    whole = {
        "metric": {"type": metric if ".com" in metric else PREFIX + metric, "labels": dict(labels)},
        "resource": resource,
        "points": [{"interval": interval, "value": {field: value}}],
    }
    return monitoring_v3.TimeSeries.pb()(**whole | more)


def stamp(at):
    return dict(zip(("seconds", "nanos"), divmod(NOW * S + at, S), strict=True))


def counter(end, start):
    return series("net/sent", end, start, metric_kind=CUMULATIVE)


# -- answers


def test_good_points_of_a_request_are_stored_and_a_refusal_is_worded_as_the_service_words_it(double, write):
    write(*[series("a", labels={"gpu": str(n)}) for n in range(5)])
    late = [series("a", 4 * S, labels={"gpu": str(n)}) for n in range(5)]

    code, message, refused = write(series("b"), *late[:3], late[4])
    assert (code, refused) == ("INVALID_ARGUMENT", 4)
    assert message == (
        "One or more TimeSeries could not be written: timeSeries[1-4] "
        f'(example metric.type="{PREFIX}a", metric.labels={{"gpu": "0"}}): write for '
        "resource=gce_instance{instance_id:4242,zone:us-central1-a} failed with: One or more points were written more "
        f"frequently than the maximum sampling period configured for the metric. {{Metric: {PREFIX}a, "
        "Timestamps: {Youngest Existing: '2027/01/15-00:00:00.000', New: '2027/01/15-00:00:04.000'}}"
    )
    assert double.count == {"stored": 6, "FAILED_PRECONDITION": 4}
    double.wording = "old"
    assert write(series("c"), series("a", labels={"gpu": "0"}))[1].endswith(
        "than the most recent point.: timeSeries[1]"
    )


def test_a_whole_request_is_refused(write):
    assert write()[1] == "Request was missing field timeSeries."
    assert "A maximum of 200 TimeSeries" in write(*[series(labels={"n": str(n)}) for n in range(201)])[1]
    assert all(write(series(), name=name)[1].startswith("Name must") for name in ("", "p", "projects/", "projects/p/x"))
    told = write(series("b"), series("c", resource=node("global", project_id="q")))[1]
    assert told.startswith('Field timeSeries[1].resource.labels.project_id had an invalid value of "q"')
    assert write(*[series(labels={"n": str(n)}) for n in range(200)])[0] == "OK"


# -- the rules of a series

REFUSED = [
    (series(metric_kind=DELTA), "It must be GAUGE or CUMULATIVE."),
    (series(value="a"), "of a type that is not written here"),
    (series(value=1, value_type=DOUBLE), "The point is of type INT64."),
    *(
        (series(labels={key: "v"}), "Label key")
        for key in ("", "7bar", "_k", "project-id", "my.org/keys", "é", "k" * 101)
    ),
    (series(labels={"k": "v" * 1025}), "Label value is longer"),
    (series("custom.googleapis.com/" + "a" * 179), "too long"),
    *(
        (series(f"custom.googleapis.com{bad}"), "metric type must")
        for bad in ("", "/", "/a-b", "/a//b", "/1a", "/a/_b")
    ),
    (series("compute.googleapis.com/instance/a"), "Unknown metric: compute.googleapis.com/instance/a"),
    (series(resource=node("gpu_node")), "Unrecognized resource type: gpu_node."),
    (series(resource=node(node_id="n")), "Missing labels: (location namespace)."),
    (series(resource=node("global", host="h")), '"host": Unrecognized resource label'),
    (series(resource=node(location="Rack 7", namespace="", node_id="n")), "Unrecognized region or location."),
    (series(resource=node("gce_instance", instance_id="1", zone="")), "Unrecognized region or location."),
    (series(resource=node(location="global", namespace="", node_id="n" * 1025)), "Label value is longer"),
    (series(end=-25 * HOUR - 1), "more than 25h10s in the past"),
    (series(end=300 * S + 1), "more than 5m in the future"),
    (series(start=-1), "must be equal to the end time (2027-01-15T00:00:00-08:00) for the gauge"),
    (series(start=1), "must be equal to the end time"),
    *((counter(0, start), "The start time must be before the end time") for start in (None, 0, 1)),
]


@pytest.mark.parametrize(("bad", "said"), REFUSED)
def test_a_series_that_the_service_refuses_is_refused_alone(write, bad, said):
    code, message, refused = write(bad, series("good"))
    assert (code, refused) == ("INVALID_ARGUMENT", 1)
    assert said in message


# -- the rules of what came before


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (-HOUR, ""),
        (-HOUR - MS, "New reset timestamp '2027/01/14-22:59:59.999 (1799996399999000)' must not be older than"),
        *((start, "Points must be written in order.") for start in (-HOUR + MS, 0, MS - 1)),
        (MS, ""),
    ],
)
def test_a_counters_start_stays_or_moves_past_the_last_end(write, start, said):
    write(counter(0, -HOUR))
    _, message, refused = write(counter(20 * S, start))
    assert (refused, said in message) == (int(bool(said)), True)
