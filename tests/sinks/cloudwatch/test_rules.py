import math

import pytest

from chipwatch.config import plugins
from chipwatch.config.naming import profiles
from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Summary, counter, gauge
from chipwatch_sinks.cloudwatch import CloudwatchSink
from chipwatch_sinks.cloudwatch.wire import UNITS, dims_fault, name_fault, namespace_fault, point_fault, unit_of

NOW = 1_800_000_000 * 10**9
DAY = 86_400 * 10**9
HOUR = 3_600 * 10**9
CPU = gauge("cpu.utilization", "%", "Busy share of all cores.")
READ = counter("disk.read", "By", "Bytes read.")


# -- units


@pytest.mark.parametrize(
    ("word", "unit"),
    [
        ("%", "Percent"),
        ("By", "Bytes"),
        ("s", "Seconds"),
        ("{thread}", "Count"),
        ("{flop}/s", "Count/Second"),
        ("W", "None"),
        ("1", "None"),
        ("furlong", "None"),
    ],
)
def test_ucum_words_become_cloudwatchs_units_and_what_it_lacks_becomes_none(word, unit):
    assert unit_of(word) == unit


def test_somebody_has_chosen_a_unit_for_every_metric_that_ships_and_every_name_that_others_know():
    collectors = [plugins.load(plugins.COLLECTORS, name) for name in plugins.installed(plugins.COLLECTORS)]
    words = {metric.unit for collector in collectors for metric in collector.metrics}
    tables = [profiles.profile(name).names for name in profiles.PROFILES]
    words |= {name.unit for profile in tables for name in profile.values() if name.unit}
    assert {word for word in words if word not in UNITS and not word.startswith("{")} == set()


# -- names


@pytest.mark.parametrize("bad", ["", " ", "x" * 256, ":a", "größe", "a\nb", "AWS/EC2"])
def test_a_namespace_that_the_service_refuses_is_known_before(bad):
    assert namespace_fault(bad)


def test_thirty_dimensions_are_taken_and_one_more_is_not():
    dims = {f"d{n}": "v" for n in range(30)}
    assert dims_fault(Dimensions(dims)) is None
    assert dims_fault(Dimensions(dims, more="v")) == "too many dimensions"


@pytest.mark.parametrize("name", ["k" * 256, ":k", " ", "", "größe", "a\tb"])
def test_the_name_of_a_dimension_is_held_to_its_length_and_printable_ascii(name):
    assert dims_fault(Dimensions({name: "v"})) == "dimension name not allowed"


@pytest.mark.parametrize("value", ["v" * 1025, "", "  ", "größe", "a\x7fb"])
def test_the_value_of_a_dimension_is_held_to_its_length_and_printable_ascii(value):
    assert dims_fault(Dimensions(k=value)) == "dimension value not allowed"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("m" * 255, None), (":m", None), ("m" * 256, "metric name not allowed"), ("", "metric name not allowed")],
)
def test_a_metrics_name_has_1_to_255_characters(name, reason):
    assert name_fault(name) == reason


# -- numbers and times


OVER = math.nextafter(2.0**360, math.inf)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ((0.0, -1.5, 1e-300, 2.0**360, -(2.0**360), 2**70), None),
        ((OVER, -(2.0**361), 2**2000), "number out of range"),
        ((math.nan, math.inf, -math.inf), "not finite"),
    ],
)
def test_numbers_are_finite_and_within_two_to_the_360(numbers, reason):
    for number in numbers:
        sampled = Summary(3, 2 * number, min(number, 0.0), max(number, 0.0), tuple(sorted((0.0, number))), (1, 2))
        assert point_fault(CPU.point(NOW, number), NOW) == reason
        assert point_fault(Datapoint(READ, 7.0, NO_DIMENSIONS, NOW, 0, 0, None, number), NOW) == reason
        assert point_fault(Datapoint(CPU, 1.0, NO_DIMENSIONS, NOW, None, 0, sampled), NOW) == reason


def test_a_datum_holds_150_values_and_no_more():
    def sampled(count):
        total = Summary(count, 1.0, 0.0, 9.0, tuple(map(float, range(count))), (1,) * count)
        return Datapoint(CPU, 1.0, NO_DIMENSIONS, NOW, None, 0, total)

    assert point_fault(sampled(150), NOW) is None
    assert point_fault(sampled(151), NOW) == "too many values"


def test_a_point_lies_at_most_two_weeks_back_and_two_hours_ahead():
    times = (NOW - 14 * DAY, NOW - 14 * DAY - 1, NOW + 2 * HOUR, NOW + 2 * HOUR + 1)
    assert [point_fault(CPU.point(at, 1.0), NOW) for at in times] == [None, "too old", None, "too far ahead"]


def test_a_counter_that_has_no_increase_yet_has_nothing_to_send():
    assert point_fault(READ.point(NOW, 4096.0), NOW) == "first reading of a counter"


@pytest.mark.parametrize(
    ("dims", "why"),
    [
        ({"site": "Zurich"}, None),
        ({"site": "Zürich"}, "dimension value not allowed"),
        ({"site\n": "x"}, "dimension name"),
    ],
)
def test_a_sink_that_is_not_open_says_what_it_would_reject_and_what_is_allowed(dims, why):
    message = CloudwatchSink(CloudwatchSink.Config()).refuses(CPU, Dimensions(dims))
    assert message is None if why is None else message.startswith(why) and "printable ASCII" in message


def test_the_limits_of_a_request_leave_room_below_the_services_own():
    """1000 datums, 1 MB and two weeks: API Reference, PutMetricData; an hour for what is in hand."""
    limits = CloudwatchSink.limits
    assert (limits.max_points, limits.max_age, limits.increases) == (1000, 14 * 86_400 - 3_600, True)
    assert 900_000 <= limits.max_bytes <= 1_000_000 - 1_000
