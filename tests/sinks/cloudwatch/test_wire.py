import json
import math

import botocore.config
import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doubles import cloudwatch as service
from tests.doubles.cloudwatch import CloudwatchDouble
from tests.doubles.datums import datum
from tests.examples import examples

from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Summary, counter, gauge
from chipwatch_sinks.cloudwatch.wire import DatumEncoder, body

NOW = 1_800_000_000 * 10**9
CPU = gauge("cpu.utilization", "%", "Busy share of all cores.")
READ = counter("disk.read", "By", "Bytes read.")


def encoded(*points, high_resolution=False, now=NOW):
    """Return the datums as JSON says them, and the reasons of those that are rejected."""
    _, texts, rejected = DatumEncoder(high_resolution=high_resolution).encode(points, now)
    return [json.loads(text) for text in texts], [one.reason for one in rejected]


# -- what a point becomes


def test_a_single_sample_is_a_plain_value():
    alone = Datapoint(CPU, 7.5, NO_DIMENSIONS, NOW, None, NOW, Summary(1, 7.5, 7.5, 7.5, (7.5,), (1,)))

    for point in (alone, CPU.point(NOW, 7.5)):
        assert encoded(point)[0] == [
            {"MetricName": "cpu.utilization", "Unit": "Percent", "Timestamp": 1_800_000_000, "Value": 7.5}
        ]


@pytest.mark.parametrize("nanoseconds", [0, 1, 499_999_999, 59_999_999_999])
def test_a_time_stays_within_the_minute_that_it_describes(nanoseconds):
    minute = NOW // (60 * 10**9) * 60

    stamp = encoded(CPU.point(minute * 10**9 + nanoseconds, 1.0))[0][0]["Timestamp"]

    assert type(stamp) is int
    assert minute <= stamp < minute + 60


# -- the same as botocore's own, whatever the points


class Botocore:
    """Botocore's own way to the bytes of a request, caught before it leaves."""

    def __init__(self):
        options = botocore.config.Config(disable_request_compression=True)
        session = botocore.session.Session()
        self.client = session.create_client(
            "cloudwatch", "eu-west-1", aws_access_key_id="a", aws_secret_access_key="b", config=options
        )
        self.client.meta.events.register("before-call.cloudwatch.PutMetricData", self.catch)

    def catch(self, params, **_):
        self.params = params
        return AWSResponse(None, 200, {}, None), {}

    def body(self, namespace, datums):
        self.client.put_metric_data(Namespace=namespace, MetricData=datums)
        assert self.params["headers"]["Content-Type"] == "application/x-amz-json-1.0"
        return self.params["body"]


@pytest.fixture(scope="module")
def own():
    made = Botocore()
    yield made
    made.client.close()


ascii_text = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)
any_text = st.one_of(ascii_text, ascii_text, ascii_text, st.text(max_size=8))
number = st.one_of(
    st.floats(-(2.0**360), 2.0**360),
    st.integers(-(2**80), 2**80),
    st.floats(),
    st.sampled_from([0, -0.0, 5e-324, 2**63, 2**64]),
)
unit = st.sampled_from(["%", "By", "s", "W", "Cel", "{thread}", "furlong"])
moment = st.one_of(
    st.integers(NOW - 13 * 86_400 * 10**9, NOW), st.integers(NOW - 20 * 86_400 * 10**9, NOW + 9 * 3_600 * 10**9)
)


@st.composite
def points(draw):
    """Draw a point; most are good, some are not."""
    dims = Dimensions(draw(st.dictionaries(any_text, any_text, max_size=4)))
    at = draw(moment)
    if draw(st.booleans()):
        metric = counter(draw(any_text), draw(unit), "C.")
        return Datapoint(metric, draw(number), dims, at, 0, at, None, draw(st.one_of(st.none(), number, number)))
    metric = gauge(draw(any_text), draw(unit), "G.")
    values = tuple(sorted({*draw(st.lists(number.filter(lambda of: not math.isnan(of)), min_size=1, max_size=8))}))
    counts = tuple(draw(st.lists(st.integers(1, 10**6), min_size=len(values), max_size=len(values))))
    total = Summary(sum(counts), 0.0, values[0], values[-1], values, counts)
    single = total.count == 1
    return Datapoint(
        metric, values[0] if single else draw(number), dims, at, None, at, draw(st.sampled_from([None, total]))
    )


@settings(deadline=None, max_examples=examples(150))
@given(batch=st.lists(points(), max_size=6), namespace=ascii_text, high_resolution=st.booleans())
def test_the_body_says_what_botocores_own_would_say(own, batch, namespace, high_resolution):
    encoder = DatumEncoder(high_resolution=high_resolution)

    good, texts, rejected = encoder.encode(batch, NOW)

    assert len(good) + len(rejected) == len(batch)
    ours = json.loads(body(namespace, texts))
    theirs = json.loads(own.body(namespace, [datum(encoder, point) for point in good]))
    assert ours == theirs


@settings(deadline=None, max_examples=examples(300))
@given(point=points())
def test_what_is_let_through_is_what_a_strict_service_takes(strict, point):
    """The limits were written down twice, once for the sink and once for the double; they agree on every point."""
    encoder = DatumEncoder(high_resolution=False)

    (_, texts, rejected) = encoder.encode([point], NOW)

    if texts:
        verdict = strict._judge_body(json.loads(body("Chipwatch", texts)))
        assert not isinstance(verdict, service.Answer), verdict
        return
    reason = rejected[0].reason
    if reason in {"first reading of a counter", "not finite"}:
        return  # no datum that JSON could say
    wrong = datum(encoder, point)
    wrong["Timestamp"] = point.at // 10**9 if point.at >= NOW else -(-point.at // 10**9) - 1
    verdict = strict._judge_body(json.loads(json.dumps({"Namespace": "Chipwatch", "MetricData": [wrong]})))
    assert isinstance(verdict, service.Answer), f"{reason}, but the service takes it"


@pytest.fixture(scope="module")
def strict():
    with CloudwatchDouble(listen=False) as double:
        double.now = lambda: NOW / 1e9
        yield double


@settings(deadline=None, max_examples=examples(150))
@given(point=points())
def test_a_size_is_never_less_than_the_bytes_and_rarely_far_more(point):
    encoder = DatumEncoder(high_resolution=True)

    _, texts, _ = encoder.encode([point], NOW)

    for text in texts:
        assert len(text) + 1 <= encoder.size(point) <= 3 * len(text)


LONGEST = [-1.2345678901234567e-300 * (1 + n / 1000) for n in range(150)]
"""Values of as many characters as a float can have."""


@pytest.mark.parametrize("high_resolution", [False, True])
@pytest.mark.parametrize("count", [1, 150, 10**4, 86_400 * 150, 10**15])
@pytest.mark.parametrize("distinct", [2, 149, 150])
def test_the_size_of_a_datum_of_the_longest_numbers_is_never_below_its_bytes(distinct, count, high_resolution):
    values = tuple(sorted(LONGEST[:distinct]))
    counts = (count,) * distinct
    total = Summary(sum(counts), sum(values), values[0], values[-1], values, counts)
    point = Datapoint(CPU, values[0], Dimensions(a='"' * 9), NOW, None, NOW, total)
    encoder = DatumEncoder(high_resolution=high_resolution)
    _, (text,), _ = encoder.encode([point], NOW)
    assert len(max(map(repr, values), key=len)) == 24
    assert len(text) + 1 <= encoder.size(point)
