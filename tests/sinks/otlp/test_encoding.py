"""Every request is parsed by opentelemetry-proto, and says what the points say."""

import math
import random
from dataclasses import replace

import pytest
from tests.doubles.otlp import parse, read
from tests.examples import examples

from chipwatch.contract.datapoint import Dimensions, Kind, Metric, counter, gauge
from chipwatch.engine.window import summarise
from chipwatch_sinks.otlp.encoding import CACHED_SERIES, OtlpEncoder
from chipwatch_sinks.otlp.resource import ATTRIBUTES

SECOND = 10**9
AT = 1_790_000_000 * SECOND
LEVEL = gauge("test.level", "%", "A level.", dims=("gpu",))
TOTAL = counter("test.total", "By", "A total.", dims=("gpu",))
WORDS = (*ATTRIBUTES, "site", "team")
TEXTS = ("a", "0", "i-0abc", "us-east-1", "us-central1-a", "ü", "\U0001f525", 'q"\\\n', "x" * 300, "", "a=b,c")
BATCHES = 600


def number(dice):
    return dice.choice((
        0, 0.0, -0.0, 1, -1, dice.uniform(-1e3, 1e3), dice.random() * 10.0 ** dice.randint(-300, 300), 2**53 + 1, 1e-320,
        -dice.random() * 10.0 ** dice.randint(-300, 300),
    ))  # fmt: skip


def batch_of(dice):
    """Return points as a spool may hand them over."""
    machine = {dice.choice(("", "@")) + word: dice.choice(TEXTS) for word in dice.sample(WORDS, dice.randint(0, 6))}
    metrics = [
        Metric(f"m{n}.{dice.choice('abc')}", dice.choice((*Kind,)), dice.choice(("%", "By", "1", "{thread}")), "Helps.",
               dims=dice.choice(((), ("gpu",), ("gpu", "x"))))
        for n in range(dice.randint(1, 4))
    ]  # fmt: skip
    points = []
    for _ in range(dice.randint(1, 12)):
        metric = dice.choice(metrics)
        own = {key: dice.choice(TEXTS) for key in metric.dims}
        at = AT + dice.randint(0, 10**12)
        point = metric.point(at, number(dice), Dimensions({**machine, **own}))
        if metric.kind is Kind.COUNTER:
            point = point._replace(
                value=abs(point.value), start_time=dice.choice((None, 0, AT - 10**12)), window_start=at - 60 * SECOND
            )
            point = point._replace(increase=dice.choice((0.0, 5.5)))
        elif dice.random() < 0.7:
            total = summarise([number(dice) for _ in range(dice.randint(1, 200))])
            point = point._replace(summary=total, window_start=at - 60 * SECOND)
        points.append(point)
    return points


@pytest.mark.parametrize("gauges", ["mean", "mean-min-max", "histogram"])
@pytest.mark.parametrize("delta", [False, True])
def test_random_batches_are_read_back_as_they_were(gauges, delta):
    dice = random.Random(f"{gauges}{delta}")
    encoder = OtlpEncoder({"deployment.environment": "test"}, gauges=gauges, delta=delta, on_points=delta)
    for _ in range(examples(BATCHES) // 6 + 1):
        batch = batch_of(dice)
        body = encoder.encode(batch)
        assert len(body) <= sum(encoder.size(point) for point in batch) + 4000  # and the resource
        found = sorted((point.name, point.at, point.value) for point in read(body))
        assert found == sorted(expected(point, gauges, delta=delta) for point in expand(batch, gauges))


def expand(batch, gauges):
    """Return the points that each point becomes, with the name under which it is sent."""
    for point in batch:
        yield point.metric.name, point
        if gauges == "mean-min-max" and point.metric.kind is Kind.GAUGE:
            yield f"{point.metric.name}.min", point
            yield f"{point.metric.name}.max", point


def expected(sent, gauges, *, delta):
    name, point = sent
    total = point.summary
    if point.metric.kind is Kind.COUNTER:
        return name, point.at, as_sent(point, point.increase if delta else point.value)
    if gauges == "histogram":
        count, total_sum, *ends = (total.count, *total[1:4]) if total else (1, *[point.value] * 3)
        return name, point.at, (count, 0.0 if ends[0] < 0 else float(total_sum), *map(float, ends))
    if name.endswith((".min", ".max")):
        low, high = (total.minimum, total.maximum) if total else (point.value, point.value)
        return name, point.at, float(low if name.endswith(".min") else high)
    return name, point.at, as_sent(point, point.value) if gauges == "mean" and not total else float(point.value)


def as_sent(point, value):
    """Return the integer that is sent of a unit that counts, else a float."""
    counts = point.metric.unit in ("By", "{thread}") and value == int(value) and abs(value) < 2**63
    return int(value) if counts else float(value)


def one(body):
    (point,) = read(body)
    return point


@pytest.mark.parametrize(
    ("unit", "value", "kind"),
    [
        ("By", 5.0, "as_int"),
        ("{packet}", 2**53 + 1, "as_int"),
        ("By", 2.0**63 - 1024, "as_int"),
        ("By", -(2.0**63), "as_int"),
        ("By", 2.0**63, "as_double"),
        ("By", 1e300, "as_double"),
        ("By", 5.5, "as_double"),
        ("s", 5.0, "as_double"),
        ("1", 5.0, "as_double"),
        ("%", 5, "as_double"),
    ],
)
@pytest.mark.parametrize("make", [counter, gauge])
def test_a_reading_of_a_unit_that_counts_is_an_integer(make, unit, value, kind):
    metric = make("test.total", unit, "A total.")
    request = parse(OtlpEncoder({}).encode([metric.point(AT, value)]))
    sent = request.resource_metrics[0].scope_metrics[0].metrics[0]
    (point,) = getattr(sent, sent.WhichOneof("data")).data_points
    assert (point.WhichOneof("value"), getattr(point, kind)) == (kind, value)


def test_the_mean_of_a_window_is_a_float_so_that_a_series_never_changes_its_type():
    used = gauge("test.used", "By", "A size.")
    for samples in ([4, 4], [4, 5]):
        total = summarise(samples)
        point = used.point(AT, total.sum / total.count)._replace(summary=total, window_start=AT - SECOND)
        assert type(one(OtlpEncoder({}).encode([point])).value) is float


def test_a_counter_has_its_start_and_a_gauge_none():
    encoder = OtlpEncoder({})
    total = one(encoder.encode([TOTAL.point(AT, 5, Dimensions(gpu="0"), start_time=AT - 9)]))
    assert (total.kind, total.start, total.at, total.value) == ("sum cumulative", AT - 9, AT, 5)
    level = one(encoder.encode([LEVEL.point(AT, 5, Dimensions(gpu="0"))]))
    assert (level.kind, level.unit, level.start, level.attributes) == ("gauge", "%", 0, (("gpu", "0"),))


def test_delta_sends_the_increase_since_the_window_began():
    point = TOTAL.point(AT, 500, Dimensions(gpu="0"), start_time=1)._replace(window_start=AT - SECOND, increase=7)
    found = one(OtlpEncoder({}, delta=True).encode([point]))
    assert (found.kind, found.start, found.value) == ("sum delta", AT - SECOND, 7)


def test_the_machine_is_the_resource_and_on_points_by_choice():
    dims = Dimensions({"gpu": "0", "hostname": "n1", "@instance_id": "i-0abc", "site": "x"})
    found = one(OtlpEncoder({"a": "b"}).encode([LEVEL.point(AT, 1, dims)]))
    assert found.attributes == (("gpu", "0"),)
    assert {("host.name", "n1"), ("host.id", "i-0abc"), ("site", "x"), ("a", "b")} <= {*found.resource}
    assert dict(found.resource)["service.instance.id"] == "i-0abc"
    found = one(OtlpEncoder({}, on_points=True).encode([LEVEL.point(AT, 1, dims)]))
    assert found.attributes == (("gpu", "0"), ("host.name", "n1"), ("site", "x"))


def test_a_series_that_ended_says_so_once():
    encoder, dims = OtlpEncoder({}), [Dimensions(gpu=str(n)) for n in range(2)]
    for n in range(3):
        encoder.encode([LEVEL.point(AT + 60 * n * SECOND, 1, of) for of in dims])
    gone = []
    for n in range(3, 9):
        ended = encoder.ended(10)
        body = encoder.encode([LEVEL.point(AT + 60 * n * SECOND, 1, dims[0])], ended)
        encoder.forget(ended)
        gone += [(n, point) for point in read(body) if point.value is None]
    ((when, point),) = gone
    assert when == 6  # 2.5 windows after its last point the next request says so
    assert (point.attributes, point.kind) == ((("gpu", "1"),), "gauge")


def test_a_series_that_comes_rarely_does_not_end():
    encoder = OtlpEncoder({})
    for n in range(30):
        batch = [LEVEL.point(AT + 60 * n * SECOND, 1, Dimensions(gpu="0"))]
        if n % 5 == 0:
            batch.append(LEVEL.point(AT + 60 * n * SECOND, 1, Dimensions(gpu="1")))
        assert encoder.ended(10) == [] or n <= 5
        encoder.encode(batch)


def test_a_counter_without_a_start_time_counts_from_where_it_was_seen():
    encoder, dims = OtlpEncoder({}, needs_start=True), Dimensions(gpu="0")
    sent = []
    for n, (value, increase) in enumerate([(1000, None), (1010, 10), (1010, 0), (3, None), (9, 6)]):
        at = AT + 60 * n * SECOND
        point = TOTAL.point(at, value, dims)._replace(window_start=at - 60 * SECOND, increase=increase)
        found = one(encoder.encode([point]))
        sent.append((found.value, (found.start - AT) // SECOND))
        assert found.start < found.at
    assert sent == [(0, -60), (10, -60), (10, -60), (3, 120), (9, 120)]


@pytest.mark.parametrize(("start", "sent"), [(AT - 9, AT - 9), (AT, AT - 1)])
def test_a_known_start_time_is_sent_and_is_before_the_end(start, sent):
    point = TOTAL.point(AT, 5, Dimensions(gpu="0"), start_time=start)
    found = one(OtlpEncoder({}, needs_start=True).encode([point]))
    assert (found.value, found.start) == (5, sent)


def test_a_metric_of_another_unit_or_kind_is_another_metric():
    encoder, dims = OtlpEncoder({}), Dimensions(gpu="0")
    batch = [
        LEVEL.point(AT, 1, dims),
        replace(LEVEL, unit="1").point(AT, 2, dims),
        replace(LEVEL, kind=Kind.COUNTER).point(AT, 3, dims),
    ]
    assert sorted((point.unit, point.kind, point.value) for point in read(encoder.encode(batch))) == [
        ("%", "gauge", 1), ("%", "sum cumulative", 3), ("1", "gauge", 2),
    ]  # fmt: skip


def test_more_series_than_the_cache_holds_are_all_sent():
    points = [LEVEL.point(AT, n, Dimensions(gpu=str(n))) for n in range(CACHED_SERIES + 500)]
    assert len([*read(OtlpEncoder({}).encode(points))]) == len(points)


def test_percentiles_of_a_histogram_lie_within_the_error_of_its_scale():
    dice = random.Random(3)
    for _ in range(50):
        samples = [dice.lognormvariate(2, dice.choice((0.01, 1, 4))) * dice.choice((1, 1, -1)) for _ in range(100)]
        body = OtlpEncoder({}, gauges="histogram").encode(
            [LEVEL.point(AT, 0, Dimensions(gpu="0"))._replace(summary=summarise(samples))]
        )
        (point,) = parse(body).resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points
        base = 2.0 ** (2.0**-point.scale)
        ordered = sorted(samples)
        values = [*negatives(point, base), *positives(point, base)]
        assert len(values) == len(ordered)
        for theirs, ours in zip(values, ordered, strict=True):
            assert math.isclose(theirs, ours, rel_tol=base - 1 + 1e-9)
        assert max(len(point.positive.bucket_counts), len(point.negative.bucket_counts)) <= 160


def positives(point, base):
    for n, count in enumerate(point.positive.bucket_counts):
        yield from [base ** (point.positive.offset + n + 1)] * count


def negatives(point, base):
    found = []
    for n, count in enumerate(point.negative.bucket_counts):
        found += [-(base ** (point.negative.offset + n + 1))] * count
    return reversed(found)
