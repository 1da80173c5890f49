"""Google alone takes a last reading at any second only if it is moved, and asks for the resource of a machine."""

import time
from pathlib import Path

from tests.doubles.gce import VM, Gce
from tests.doubles.monitoring import MonitoringDouble

from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch_sinks.google import GoogleSink

ROOT = Path(__file__).parents[2]
LONG = 60.0
LEVEL, TOTAL = gauge("test.level", "%", "A level.", dims=("n",)), counter("test.total", "By", "A total.")
S = 10**9


def test_a_run_delivers_its_last_reading_at_whatever_second_it_is_stopped():
    with MonitoringDouble() as double:
        born = time.time_ns() // (60 * S) * 60 * S - 3600 * S
        last = {}
        for seconds in range(1, 75):
            config = GoogleSink.Config(project="some-project", endpoint=double.target, insecure=True)
            sink, spool, common = GoogleSink(config), Spool("google"), Dimensions(run=str(seconds))
            worker = Worker("google", sink, spool, common=lambda common=common: common)
            window = Window(60, born=born, spacing=sink.limits.spacing, first=10)
            route = Route(MetricFilter(Level.ALL), window, spool, worker, lambda common=common: common)
            for at in range(born + S, born + (seconds + 1) * S, S):
                route.take([TOTAL.point(at, at - born, start_time=born), LEVEL.point(at, 1.0)], at)
            route.close_window()
            worker.start()
            worker.stop()
            assert worker.join(LONG)
            last[common["run"]] = float(at - born)
            assert (spool.ledger.collected, spool.ledger.rejected.total()) == (spool.ledger.sent, 0)
        delivered = {
            dict(key.labels)["run"]: points[-1].value
            for key, points in double.series.items()
            if key.type.endswith("test/total")
        }
        assert {**double.count}.keys() == {"stored"}
    assert delivered == last


def test_a_machine_of_googles_writes_into_its_own_project_under_its_own_resource(agent, tmp_path):
    with Gce() as metadata, MonitoringDouble() as double:
        env = {
            "GCE_METADATA_HOST": metadata.host,
            "CHIPWATCH_SINKS__GOOGLE__ENDPOINT": double.target,
            "CHIPWATCH_SINKS__GOOGLE__INSECURE": "true",
        }
        words = ("--sink", "google", "--sink", "stdout", "--format", "json", "--common-dims", "instance_type")
        done = agent.run(*words, "--collector", "memory", "--once", "--interval", "1", "--spool", tmp_path, env=env)

    assert done.returncode == 0, done.stderr
    facts = VM["instance"]
    zone = facts["zone"].rpartition("/")[2]
    assert {(key.project, key.resource, key.labels, key.resource_labels) for key in double.series} == {(
        VM["project"]["projectId"],
        "gce_instance",
        (("instance_type", facts["machineType"].rpartition("/")[2]),),
        (("instance_id", str(facts["id"])), ("zone", zone)),
    )}  # fmt: skip
    assert "@" not in done.stdout
    assert zone not in done.stdout
