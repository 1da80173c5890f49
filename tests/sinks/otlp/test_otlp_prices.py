"""`chipwatch plan` of OTLP: samples, bytes, and no price that is not known."""

import pytest

from chipwatch.contract.advice import MONTH, Load, Terms
from chipwatch.contract.datapoint import Dimensions, Summary, gauge
from chipwatch_sinks.common.cloudwatch_prices import CloudwatchPrices
from chipwatch_sinks.otlp import OtlpSink
from chipwatch_sinks.otlp.advisor import OtlpAdvisor

LEVEL = gauge("test.level", "%", "A level.", dims=("gpu",))


def advisor(flavour, terms=Terms(), **options):  # noqa: B008  # a constant
    return OtlpAdvisor(OtlpSink.Config(flavour=flavour, **options), terms)


def bill(of, load):
    return sum(line.dollars for line in of.costs(load))


def test_google_charges_a_million_samples():
    assert bill(advisor("google"), Load(points=1e9)) == pytest.approx(1000 * 0.06)
    assert bill(advisor("google", gauges="mean-min-max"), Load(points=1e9)) == pytest.approx(3000 * 0.06)
    tiers = 50_000 * 0.06 + 200_000 * 0.048 + 250_000 * 0.036 + 1000 * 0.024
    assert bill(advisor("google"), Load(points=501_000e6)) == pytest.approx(tiers)


def test_cloudwatchs_price_is_the_users_or_not_known():
    (line,) = advisor("cloudwatch").costs(Load(bytes=5e9))
    assert (line.amount, line.unit, line.dollars, line.missing) == (5.0, "GB", None, "--price-per-gb")
    assert any("--price-per-gb" in note for note in advisor("cloudwatch").notes(Load()))
    assert bill(advisor("cloudwatch", Terms(price_per_gb=0.3)), Load(bytes=5e9)) == pytest.approx(1.5)


def test_beside_it_stands_what_putmetricdata_costs():
    load, config = Load(series=720, requests=438_000, bytes=3e9, points=31e6), OtlpSink.Config(region="us-east-1")
    same = sum(line.dollars for line in CloudwatchPrices(config, Terms()).costs(load._replace(bytes=None)))
    (said,) = advisor("cloudwatch", region="us-east-1").beside(load)
    assert f"PutMetricData (--sink cloudwatch) the same series cost {same:,.2f} dollars a month" in said
    assert f"these 3.000 GB at {same / 3:,.2f} dollars a GB" in said
    assert [*advisor("google").beside(load)] == []


def test_the_bytes_of_a_point_are_its_name_attributes_resource_time_and_value():
    point = LEVEL.point(1, 1.0, Dimensions(gpu="0", hostname="n1"))
    resource = {"service.name": "chipwatch", "service.version": "0.1.0", "service.instance.id": "i-0123456789abcdef0",
                "host.id": "i-0123456789abcdef0", "host.type": "p5.48xlarge", "host.image.id": "ami-0123456789abcdef0",
                "host.name": "n1", "cloud.provider": "aws", "cloud.platform": "aws_ec2", "cloud.region": "us-east-1",
                "cloud.availability_zone": "us-east-1a", "cloud.account.id": "123456789012"}  # fmt: skip
    wanted = len("test.level" + "gpu0") + sum(len(key + value) for key, value in resource.items()) + 16
    assert advisor("cloudwatch").measure([point, point]) == 2 * wanted
    assert advisor("cloudwatch", gauges="mean-min-max").measure([of_window(point)]) == 3 * wanted
    assert advisor("cloudwatch", gauges="histogram").measure([of_window(point)]) > wanted
    assert advisor("google").measure([point]) is None


def of_window(point):
    return point._replace(summary=Summary(2, 3.0, 1.0, 2.0, (1.0, 2.0), (1, 1)))


def test_a_receiver_of_ones_own_has_no_price():
    (line,) = advisor("plain").costs(Load(points=1e6))
    assert line.dollars is None


@pytest.mark.parametrize(("flavour", "limit"), [("cloudwatch", 500), ("google", 1000)])
def test_the_quota_of_requests(flavour, limit):
    (quota,) = advisor(flavour).quotas(Load(requests=MONTH))
    assert (quota.limit, quota.used) == (limit, 1)
