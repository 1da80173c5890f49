"""
The planned alarms for silence, over what real agents left in moto, of which one was killed for good: minutes of real time.

CloudWatch's evaluation is the double's, tests/doubles/alarms.py. What the others send afterwards is what they sent last, again and again.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from tests.deploy import terraform as tf
from tests.doubles.alarms import Stored, state_of

pytestmark = pytest.mark.deploy
MODULE = tf.ROOT / "terraform/aws/modules/alarms"
NODES = ("a", "b", "c")
MINUTE, HOUR, DAY = 60, 3600, 86400
LONG = 400.0
LATER = (10 * MINUTE, HOUR, 4 * HOUR, 20 * DAY)
"""Seconds after which the alarm is still there."""


@pytest.fixture
def alarms(tmp_path):
    """Plan the module for these machines; return its alarms by name, as PutMetricAlarm takes them."""
    with tf.providers() as served:
        given = {
            "hosts": len(NODES),
            "families": ["host"],
            "dimensions": ["hostname"],
            "own_dimensions": ["node"],
            "namespace": "Silence",
        }
        plan = tf.Terraform(tmp_path, served).plan(MODULE, given)
    found = map(tf.alarm, tf.of_type(plan, "aws_cloudwatch_metric_alarm").values())
    return {alarm["AlarmName"].removeprefix("chipwatch-"): alarm for alarm in found}


def stored(cloudwatch, since):
    """Return what moto has stored, by the minute and in order."""
    listed = cloudwatch.list_metrics(Namespace="Silence")["Metrics"]  # by moto one for each point
    once = {(one["MetricName"], *sorted(dim["Value"] for dim in one["Dimensions"])): one for one in listed}
    found = []
    for metric in once.values():
        answer = cloudwatch.get_metric_statistics(
            Namespace="Silence", MetricName=metric["MetricName"], Dimensions=metric["Dimensions"], Period=MINUTE,
            StartTime=since, EndTime=datetime.now(UTC), Statistics=["SampleCount", "Sum", "Minimum", "Maximum"],
        )  # fmt: skip
        dims = {dim["Name"]: dim["Value"] for dim in metric["Dimensions"]}
        found += [
            Stored(one["Timestamp"].timestamp(), "Silence", metric["MetricName"], dims,
                   one["SampleCount"], one["Sum"], one["Minimum"], one["Maximum"])
            for one in answer["Datapoints"]
        ]  # fmt: skip
    return sorted(found, key=lambda one: one.at)


def of(points, node, name="network.sent"):
    return [one for one in points if (one.dims["node"], one.name) == (node, name)]


@pytest.fixture
def fleet(agent, moto, tmp_path):
    """Start an agent for each node."""
    return {
        node: agent.start(
            "--sink", "cloudwatch", "--collector", "cpu", "--collector", "network", "--region", "us-east-1",
            "--endpoint-url", moto, "--namespace", "Silence", "--common-dims", "hostname", "--dim", f"node={node}",
            env={"STATE_DIRECTORY": tmp_path / node, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y",
                 "CHIPWATCH_SINKS__CLOUDWATCH__ZEROS": "true"},  # over loopback alone network.sent does not move
        )
        for node in NODES
    }  # fmt: skip


def test_the_alarm_for_a_killed_agent_rises_and_stays(alarms, fleet, client, until):
    cloudwatch, since = client("cloudwatch"), datetime.now(UTC)

    def sent(times, nodes=NODES):
        points = stored(cloudwatch, since)
        return all(len(of(points, node)) >= times for node in nodes) and points

    until(lambda: time.sleep(1) or sent(2), LONG)
    fleet["c"].process.kill()
    killed = time.time()
    before = {node: len(of(stored(cloudwatch, since), node)) for node in NODES}
    points = until(lambda: time.sleep(1) or sent(max(before.values()) + 2, ("a", "b")), LONG)
    assert len(of(points, "c")) == before["c"], "it is dead"

    counted = alarms["agent-silent"]
    begin = max(of(points, node)[0].at for node in NODES) + MINUTE
    last = min(of(points, node)[-1].at for node in ("a", "b"))
    assert {state_of(counted, points, at, "OK") for at in minutes(begin, last)} == {"OK"}, "not yet for ten minutes"

    end = killed + max(LATER)
    alive = [one for node in ("a", "b") for one in of(points, node)]
    pattern = [one for one in alive if one.at == last]
    lasting = [one._replace(at=at) for at in minutes(last + MINUTE, end) for one in pattern]
    future = sorted([*(one for one in points if one.at <= last), *lasting], key=lambda one: one.at)
    rose = next(at for at in minutes(killed, end) if state_of(counted, future, at, "OK") == "ALARM")
    assert 9 * MINUTE <= rose - killed <= 13 * MINUTE
    print(f"\n    agent-silent: ALARM {rose - killed:.0f} s after the agent was killed")  # noqa: T201  # the figures are what this is run for
    assert [state_of(counted, future, rose + later, "OK") for later in LATER] == ["ALARM"] * len(LATER)
    back = [one._replace(dims=one.dims | {"node": "c"}) for one in lasting if one.at > end - HOUR and one.dims["node"] == "a"]  # fmt: skip
    returned = sorted([*future, *back], key=lambda one: one.at)
    assert state_of(counted, returned, end, "ALARM") == "OK"

    for name in ("agent-silent", "fleet-silent"):  # and if all of them are killed: nothing comes any more
        alarm = alarms[name]
        rose = next(at for at in minutes(last, last + HOUR) if state_of(alarm, points, at, "OK") == "ALARM")
        assert 9 * MINUTE <= rose - last <= 15 * MINUTE
        print(f"    {name}: ALARM {rose - last:.0f} s after the last point of all")  # noqa: T201
        assert [state_of(alarm, points, rose + later, "OK") for later in LATER] == ["ALARM"] * len(LATER)


def minutes(begin, end):
    """Return the whole minutes of a span (s since the epoch)."""
    return range(int(begin // MINUTE) * MINUTE, int(end // MINUTE) * MINUTE + 1, MINUTE)
