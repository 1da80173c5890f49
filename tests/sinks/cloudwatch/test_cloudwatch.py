import json
import subprocess
import sys
import time

import pytest
from tests.doubles import cloudwatch as service
from tests.doubles.cloudwatch import refusing
from tests.load import seconds_since
from tests.sinks.cloudwatch.conftest import GAUGE, windowed

from chipwatch.base.version import __version__
from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge
from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.contract.testing import check_sink
from chipwatch_sinks.cloudwatch import CloudwatchSink

MINUTE = 60 * 10**9
READ = counter("disk.read", "By", "Bytes read.")
POWER = gauge("gpu.power", "W", "Drawn.", dims=("gpu",))


# -- what arrives


def test_a_window_arrives_as_it_was_seen(double, make_sink):
    now = time.time_ns()
    busy = windowed(GAUGE, [12.5, 99.0, 99.0], Dimensions(instance_id="i-0abc"), at=now)
    power = POWER.point(now, 210.0, Dimensions(gpu="0"))
    read = Datapoint(READ, 10.0**12, Dimensions(), now, 0, now - MINUTE, None, 4096.0)

    assert make_sink(namespace="Team/One").write([busy, power, read]) == []

    second = now // 10**9
    assert double.datums == [
        (
            "Team/One",
            "cpu.utilization",
            (("instance_id", "i-0abc"),),
            second,
            None,
            (12.5, 99.0),
            (1, 2),
            "Percent",
            60,
        ),
        ("Team/One", "gpu.power", (("gpu", "0"),), second, 210.0, (), (), "None", 60),
        ("Team/One", "disk.read", (), second, 4096.0, (), (), "Bytes", 60),
    ]


def test_high_resolution_is_asked_for(double, make_sink, points):
    make_sink(high_resolution=True).write(points())

    assert {datum.resolution for datum in double.datums} == {1}


def test_it_keeps_the_contract_of_a_sink(double, make_sink, points):
    assert check_sink(make_sink(opened=False), points()) == []
    assert len(double.datums) == 3


def test_a_full_batch_is_one_compressed_request(double, make_sink):
    now = time.time_ns()
    batch = [windowed(POWER, [n + 0.1 * k for k in range(12)], Dimensions(gpu=str(n)), at=now) for n in range(1000)]
    sink = make_sink()

    sink.write(batch)

    assert len(double.datums) == 1000
    (request,) = double.requests
    assert request.headers["user-agent"] == f"chipwatch/{__version__}"
    assert request.headers["content-encoding"] == "gzip"
    assert request.wire_bytes < len(request.body) / 2
    assert len(request.body) <= sum(map(sink.size, batch)) + 100 <= CloudwatchSink.limits.max_bytes


def test_a_small_body_is_not_compressed_nor_any_where_that_was_asked(double, make_sink, monkeypatch):
    now = time.time_ns()
    batch = [POWER.point(now, 1.0, Dimensions(gpu=str(n))) for n in range(500)]

    make_sink().write(batch[:20])
    monkeypatch.setenv("AWS_DISABLE_REQUEST_COMPRESSION", "true")
    make_sink().write(batch)

    assert ["content-encoding" in request.headers for request in double.requests] == [False, False]


def test_what_is_rejected_here_is_never_sent_and_its_neighbours_are(double, make_sink, points):
    good = points(2)
    bad = [
        GAUGE.point(good[0].at, float("nan")),
        GAUGE.point(1, 1.0),
        GAUGE.point(good[0].at, 1.0, Dimensions(k="größe")),
    ]

    rejected = make_sink().write([bad[0], good[0], bad[1], good[1], bad[2]])

    assert [(one.point, one.reason) for one in rejected] == [
        (bad[0], "not finite"),
        (bad[1], "too old"),
        (bad[2], "dimension value not allowed"),
    ]
    assert len(double.datums) == 2


def test_an_empty_batch_sends_no_request(double, make_sink):
    assert len(make_sink().write([GAUGE.point(1, 1.0)])) == 1
    assert double.requests == []


def test_one_connection_serves_many_writes_and_a_new_one_follows_a_break(double, make_sink, points):
    sink = make_sink()
    double.will(service.RESET)

    with pytest.raises(Retryable):
        sink.write(points())
    for _ in range(3):
        sink.write(points())

    assert len(double.datums) == 9


# -- who is to blame


@pytest.mark.parametrize(
    ("fault", "error", "stored"),
    [
        (service.THROTTLED, Retryable, 0),
        (service.BROKEN, Retryable, 0),
        (service.AWAY, Retryable, 0),
        (service.RESET, Retryable, 0),
        (service.HANG, Retryable, 0),
        (service.LOST, Retryable, 3),
        (service.TOO_LARGE, BadBatch, 0),
        (service.Answer(400, "InvalidParameterValue", "The value x is invalid."), BadBatch, 0),
        (service.DENIED, Refused, 0),
        (service.Answer(400, "", "<html>"), Refused, 0),
    ],
    ids=["throttled", "500", "503", "reset", "hang", "lost", "413", "400", "denied", "strange"],
)
def test_each_fault_is_raised_and_retried_only_by_the_agent(double, make_sink, points, *, fault, error, stored):
    sink = make_sink(timeout=0.3)
    double.will(fault)
    begun = time.monotonic()

    with pytest.raises(error) as caught:
        sink.write(points())

    assert type(caught.value) is error
    assert getattr(caught.value, "after", None) == (7.0 if fault is service.AWAY else None)
    assert ("role/web/i-0abc lacks the permission cloudwatch:Put" in str(caught.value)) is (fault is service.DENIED)
    assert seconds_since(begun) < 30  # the server hangs for a minute
    assert len(double.requests) == 1
    assert len(double.datums) == stored
    assert sink.write(points()) == []


def test_a_dead_endpoint_is_tried_again_later(make_sink, points):
    with service.CloudwatchDouble(listen=False) as dead:
        sink = make_sink(endpoint_url=dead.url)
        with pytest.raises(Retryable, match=r"127.0.0.1:[0-9]+: nothing listens there .Connection refused.$"):
            sink.write(points())
        dead.listen()
        assert sink.write(points()) == []


# -- datums that the service refuses


def test_the_datums_that_the_service_names_are_rejected_and_the_rest_goes_at_once(double, make_sink, points):
    batch = points(5)
    double.will(refusing(2, 5))

    rejected = make_sink().write(batch)

    assert [(one.point, one.reason) for one in rejected] == [
        (batch[1], "refused by the service: Timestamp"),
        (batch[4], "refused by the service: Timestamp"),
    ]
    assert [datum.value for datum in double.datums] == [batch[n].value for n in (0, 2, 3)]
    assert len(double.requests) == 2


def test_numbers_of_a_second_answer_count_what_was_sent_then(double, make_sink, points):
    batch = points(4)
    double.will(refusing(1), refusing(1, field="Dimensions"))

    rejected = make_sink().write(batch)

    assert [one.point for one in rejected] == batch[:2]
    assert [one.reason for one in rejected][1] == "refused by the service: Dimensions"
    assert len(double.datums) == 2


def test_a_batch_whose_every_datum_is_refused_ends_there(double, make_sink, points):
    double.will(refusing(1, 2, 3))

    assert len(make_sink().write(points())) == 3
    assert len(double.requests) == 1


def test_a_fault_of_the_wire_on_the_way_leaves_all_of_the_batch_to_be_sent_again(double, make_sink, points):
    double.will(refusing(1), service.THROTTLED, refusing(1))
    sink, batch = make_sink(), points()

    with pytest.raises(Retryable):
        sink.write(batch)
    rejected = sink.write(batch)

    assert [one.point for one in rejected] == batch[:1]
    assert len(double.datums) == 2


def test_a_service_that_finds_new_faults_for_ever_is_asked_five_times_in_one_write(double, make_sink, points):
    double.will(*[refusing(1)] * 5)

    with pytest.raises(BadBatch):
        make_sink().write(points(8))

    assert len(double.requests) == 5


def test_a_service_stricter_than_its_documents_costs_only_what_it_names(double, make_sink, points, monkeypatch):
    monkeypatch.setattr(service, "FORTNIGHT", 5 * 86_400)
    batch = points(40)
    batch[7] = batch[7]._replace(at=batch[7].at - 10 * 86_400 * 10**9)

    rejected = make_sink().write(batch)

    assert [one.point for one in rejected] == [batch[7]]
    assert len(double.datums) == 39


# -- what is loaded, and when


def test_building_touches_nothing_and_closing_is_always_safe(make_sink):
    sink = make_sink(opened=False)
    sink.close()
    sink.open()
    sink.close()
    sink.close()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), 601.0])
def test_a_timeout_that_no_request_can_have_is_refused(seconds):
    with pytest.raises(ValueError, match=r"^timeout: expected seconds above 0, at most 600, got "):
        CloudwatchSink.Config(timeout=seconds)


@pytest.mark.parametrize("namespace", ["", "AWS/EC2", "größe"])
def test_a_namespace_that_cloudwatch_does_not_take_is_refused_at_the_start(make_sink, namespace):
    with pytest.raises(ValueError, match=r"^namespace: .*, got "):
        make_sink(namespace=namespace)


def test_it_says_where_the_points_go(double, make_sink):
    sink = make_sink(opened=False)
    assert sink.describe() == "namespace Chipwatch"
    sink.open()
    assert sink.describe() == f"namespace Chipwatch at {double.url}"


def test_the_module_loads_without_botocore_and_says_at_once_where_it_is_missing():
    program = """
import sys
from chipwatch.config import plugins
from chipwatch.config.options import Config
from chipwatch.config.instances import NotLoaded, load_plugin

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "botocore":
            raise ModuleNotFoundError("No module named 'botocore'")

sys.meta_path.insert(0, Hidden())
try:
    load_plugin(plugins.SINKS, "cloudwatch", Config())
except NotLoaded as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "botocore" in done.stdout
    assert "extra 'cloudwatch'" in done.stdout


def test_no_module_of_amazon_is_loaded(double):
    program = f"""
import json, sys, time
from chipwatch_sinks.cloudwatch import CloudwatchSink
from chipwatch.contract.datapoint import gauge
sink = CloudwatchSink(CloudwatchSink.Config(region="eu-west-1", endpoint_url={double.url!r}))
sink.open()
sink.write([gauge("a.b", "%", "A.").point(time.time_ns(), 1.0)])
sink.close()
print(json.dumps([name for name in sys.modules if name.split(".")[0] in ("boto3", "botocore", "chipwatch")]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    loaded = {
        "base": ("redaction", "system", "text", "version"),
        "contract": ("datapoint", "errors", "plugin", "sink", "trusted_clock"),
        "net": ("address", "aws_answers", "aws_regions", "aws_signer", "exchange", "faults", "http_client"),
    }
    modules = {f"chipwatch.{room}.{name}" for room, names in loaded.items() for name in names}
    assert {*json.loads(done.stdout)} == {"chipwatch", *(f"chipwatch.{room}" for room in loaded), *modules}
    assert len(double.datums) == 1
