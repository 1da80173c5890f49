"""A service is away, the agent is killed meanwhile and started again, the service comes back in a bad mood: nothing is lost."""

import itertools
from collections import Counter

import pytest
from tests.doubles import cloudwatch, otlp
from tests.doubles.cloudwatch import CloudwatchDouble
from tests.doubles.monitoring import MonitoringDouble
from tests.doubles.otlp import OtlpDouble
from tests.e2e.spools import hurried, ledger, owed
from tests.faults import lives

from chipwatch.contract.datapoint import Kind

QUICK = ("--collector", "memory", "--collector", "network", "--interval", "0.1", "--window", "0.1", "--flush", "0")


@pytest.fixture
def killed(agent, until, tmp_path):
    """Kill an agent that has spooled so many points; start it again, and return it, its spool and what was due."""

    def begin(name, least, *words, env=None):
        file = tmp_path / f"spool/{name}.db"
        words = ("--sink", name, *words, "--dim", "host=test", "--spool", file.parent)
        first = agent.start(*words, env=env)
        until(lambda: ledger(file)["collected"] > least)
        first.process.kill()
        first.process.wait()
        due = [*owed(file)]
        assert len(due) > least
        return agent.start(*words, env=env), file, due

    return begin


def test_cloudwatch_gets_every_point_once_but_for_an_answer_that_was_lost(killed, until, monkeypatch):
    cloudwatch.isolate(monkeypatch)
    with CloudwatchDouble(listen=False) as double:
        words = (*QUICK, "--region", "eu-west-1", "--endpoint-url", double.url)
        second, file, due = killed("cloudwatch", 50, *words)
        double.will(cloudwatch.THROTTLED, cloudwatch.LOST)
        double.listen()
        until(lambda: len(double.requests) > 3)
        code, _ = second.stop()

    assert code == 0, second.errors()
    books = ledger(file)
    doubled = sum(len(request.datums) for request in double.requests if request.end == cloudwatch.LOST)
    assert not [*owed(file)]
    assert books["sent"] == books["collected"] == len(double.datums) - doubled
    assert not Counter(lives.of_cloudwatch(*one) for one in due) - Counter(map(lives.of_datum, double.datums))
    # Where the kill left a recording, its incident has a cause and a file.
    of_readings = {datum.dims for datum in double.datums if "incident" not in datum.name}
    assert of_readings == {(("host", "test"),)}


def test_google_gets_every_point_once(killed, until):
    with MonitoringDouble(listen=False) as double:
        words = ("--project", "some-project", *QUICK[:4], "--interval", "1", "--flush", "0", "--log-level", "info")
        second, file, due = killed("google", 0, *words, env={
            "CHIPWATCH_SINKS__GOOGLE__ENDPOINT": double.target,
            "CHIPWATCH_SINKS__GOOGLE__INSECURE": "true",
            "CHIPWATCH_SINKS__GOOGLE__WINDOW": "10",
            "NO_GCE_CHECK": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        })  # fmt: skip
        double.start()
        until(lambda: double.count["stored"] >= len(due))
        code, _ = second.stop()

    assert code == 0, second.errors()
    assert not [*owed(file)]
    assert ledger(file)["sent"] == double.count["stored"] >= len(due)
    assert set(double.count) == {"stored"}
    assert {dict(key.labels)["host"] for key in double.series} == {"test"}
    assert {key.resource for key in double.series} == {"generic_node"}


def moods():
    """Of twenty requests throttle one, break one, lose the answer to another, and halve that of one more."""
    rounds = itertools.cycle(range(20))
    answers = {
        3: otlp.status(429, "", ("Retry-After", "0")),
        7: otlp.status(500, "broken proxy"),
        11: otlp.LOST,
        13: otlp.RESET,
        17: otlp.HALF,
    }
    return lambda: answers.get(next(rounds))


def test_a_receiver_of_otlp_gets_every_point_and_no_more_but_for_answers_that_were_lost(killed, until, tmp_path):
    with OtlpDouble(listen=False) as double:
        second, file, due = killed("otlp", 100, *QUICK, "--endpoint-url", double.url, env=hurried(tmp_path))
        double.weather = moods()
        double.listen()
        until(lambda: len(double.requests) > 20)
        double.weather = lambda: None
        until(lambda: double.requests[-1].end == 200)
        code, _ = second.stop()

    assert code == 0, second.errors()
    kinds = {Kind.COUNTER: "sum cumulative", Kind.GAUGE: "gauge"}
    wanted = Counter((p.metric.name, kinds[p.metric.kind], p.at, float(p.value)) for p, _ in due)
    books = ledger(file)
    stored = Counter((p.name, p.kind, p.at, p.value) for p in double.points if p.value is not None)
    doubtful = sum(len(request.points) for request in double.requests if request.end in (otlp.LOST, otlp.HALF))
    assert not [*owed(file)]
    assert not wanted - stored, "what the spool had at the kill has not arrived"
    assert {entry for entry, count in books.items() if count} == {"collected", "sent"}
    assert books["sent"] == books["collected"] <= stored.total() <= books["sent"] + doubtful
