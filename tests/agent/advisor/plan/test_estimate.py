import importlib.util
import json
import socket

import pytest

from chipwatch.advisor import discovery
from chipwatch.advisor.discovery import PAUSE
from chipwatch.advisor.plan import text as plan_text
from chipwatch.advisor.plan.estimate import make
from chipwatch.config.convert import ConfigError
from chipwatch.config.load import load
from chipwatch.contract.advice import MONTH, Terms

SOURCE = """
    from dataclasses import dataclass
    from chipwatch.contract.collector import Collector
    from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
    from chipwatch.contract.errors import Unavailable
    from chipwatch.contract.sink import Limits, Sink

    BASIC = gauge("fake.basic", "%", "A.", dims=("n",))
    DETAILED = counter("fake.detailed", "By", "B.", Level.DETAILED, ("n",))
    EVENTS = counter("fake.events", "{event}", "D.", dims=("kind",))
    ALL = gauge("fake.all", "1", "C.", Level.ALL, ("n",))

    class Fake(Collector):
        @dataclass(frozen=True, slots=True)
        class Config:
            basic: int = 3
            detailed: int = 2
            all: int = 5
        metrics = (BASIC, DETAILED, ALL)
        def __init__(self, config):
            self.config = config
        def open(self, given):
            pass
        def collect(self, at):
            for metric, n in ((BASIC, self.config.basic), (DETAILED, self.config.detailed), (ALL, self.config.all)):
                for i in range(n):
                    yield metric.point(at, float(i + 1), Dimensions(n=str(i)), start_time=None if metric is BASIC else 1)

    class Quiet(Fake):
        metrics = (EVENTS,)
        def collect(self, at):
            for kind in "abcd":
                yield EVENTS.point(at, float(kind == "d"), Dimensions(kind=kind), start_time=1)

    class Absent(Fake):
        def open(self, given):
            raise Unavailable("no such chip: looked for /dev/chip*")

    class Broken(Fake):
        def collect(self, at):
            raise RuntimeError("a bug")

    class Theirs(Sink):
        limits = Limits(max_points=10, window=60, flush=60)
        @dataclass(frozen=True, slots=True)
        class Config:
            max_points: int = 10
            max_bytes: int | None = None
            one_per_series: bool = False
        def __init__(self, config):
            self.limits = Limits(
                max_points=config.max_points, max_bytes=config.max_bytes, one_per_series=config.one_per_series,
                window=60, flush=60,
            )
        def open(self):
            raise AssertionError("a plan sends nothing")
        def write(self, batch):
            raise AssertionError("a plan sends nothing")
        def size(self, point):
            return 100 + 10 * len(point.summary.values) if point.summary else 100
"""


@pytest.fixture(autouse=True)
def _fakes(others, monkeypatch):
    others.add(
        "fakes_of_plan",
        SOURCE,
        collectors=[("fake", "Fake"), ("quiet", "Quiet"), ("absent", "Absent"), ("broken", "Broken")],
        sinks=[("theirs", "Theirs")],
    )
    monkeypatch.setattr(discovery, "PAUSE", 0.01)  # fakes have no rates
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def planned(**flags):
    """Return the plan of the only sink."""
    (sink,) = whole(**flags).sinks
    return sink


def whole(*, hosts=1, terms=None, families=(), devices=8, **flags):
    config = load(None, {"collector": ["fake"], "sink": ["theirs"]} | flags)
    return make(config, hosts, terms or Terms(), families=families, devices=devices)


def cloudwatch(**flags):
    pytest.importorskip("botocore")
    return planned(sink=["cloudwatch"], region="us-east-1", **flags)


def google(**flags):
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.cloud.monitoring_v3") is None:
        pytest.skip("google-cloud-monitoring is not installed")
    return planned(sink=["google"], **flags)


def otlp(**options):
    own = {key: options.pop(key) for key in ("owner_labels",) if key in options}
    return planned(sink=["otlp"], sinks={"otlp": {"flavour": "cloudwatch", "region": "us-east-1", **own}}, **options)


def choice(sink, flags):
    (found,) = [choice for choice in sink.choices if choice.flags == flags]
    return found


# -- series -----------------------------------------------------------------------------------------------------


def test_series_are_counted_by_metric_at_the_level_of_the_sink():
    assert planned().metrics == {"fake.basic": 3}
    assert planned(sinks={"theirs": {"level": "all", "exclude": ["agent.*"]}}).metrics == {
        "fake.all": 5,
        "fake.basic": 3,
        "fake.detailed": 2,
    }


def test_include_and_exclude_count():
    sink = planned(level="all", sinks={"theirs": {"include": ["fake.*"], "exclude": ["*.basic"]}})
    assert sink.metrics == {"fake.all": 5, "fake.detailed": 2}


def test_the_agents_own_metrics_are_in_the_plan_as_they_are_in_a_run():
    metrics = planned(level="detailed").metrics
    assert metrics["agent.collector.ok"] == 2  # the collector's and its own
    assert metrics["agent.sink.sent"] == 1
    assert metrics["agent.cpu"] == 1


def test_what_max_series_keeps_back_is_not_billed():
    sink = cloudwatch(collectors={"fake": {"basic": 700}})
    assert (sink.metrics, sink.series, sink.max_series) == ({"fake.basic": 700}, 500, 500)
    assert sink.now.series == 500
    assert sink.now.bill[0].dollars == 150.0
    assert cloudwatch(collectors={"fake": {"basic": 700}}, sinks={"cloudwatch": {"max_series": 0}}).series == 700


@pytest.mark.parametrize(
    ("series", "flags", "own", "requests", "period"),
    [
        (10, {}, {}, 1, 60.0),
        (11, {}, {}, 2, 60.0),
        (11, {}, {"max_points": 1000}, 1, 60.0),
        (0, {}, {}, 0, 60.0),
        (5, {"window": 10.0}, {}, 3, 60.0),  # 30 points
        (5, {"window": 300.0}, {}, 1, 300.0),  # what is not there is not sent
        (5, {"flush": 0.0}, {}, 1, 60.0),
        (5, {"window": 0.0}, {}, 6, 60.0),  # each sample is a point: 5 x 12
        (5, {"window": 10.0}, {"max_points": 1000, "one_per_series": True}, 6, 60.0),
        (8, {}, {"max_points": 1000, "max_bytes": 880}, 2, 60.0),  # 12 samples make 220 bytes: 4 points fit
        (8, {"window": 0.0, "flush": 5.0}, {"max_points": 1000, "max_bytes": 880}, 1, 5.0),  # a sample 100 bytes
    ],
)
def test_requests_follow_from_series_windows_flush_and_the_limits_of_the_sink(series, flags, own, requests, period):
    sink = planned(collectors={"fake": {"basic": series}}, sinks={"theirs": own}, **flags)
    assert (sink.requests_per_period, sink.cadence.period) == (requests, period)
    assert sink.now.requests == requests * MONTH / period
    assert sink.now.requests_per_second == requests / period


# -- dollars, as the facts about CloudWatch have them ---------------------------------------------------------------


def test_a_plan_says_what_the_labels_of_holders_would_cost_where_they_are_off():
    def labelled(make, **own):
        sink = make(collector=["nvidia"], families=["nvidia"], **own)
        return sink.now, [choice for choice in sink.choices if choice.flags == "owner_labels"]

    now, (on,) = labelled(cloudwatch)
    assert (now.series, on.series) == (79, 151), "of its 72 series of GPUs each is there twice in the hour of a change"
    assert on.dollars > now.dollars
    now, (on,) = labelled(otlp)
    assert (on.series, on.bytes - now.bytes) == (now.series, 72 * 43_800 * 61), "the labels are bytes of each point"
    now, others = labelled(otlp, owner_labels=["pod", "namespace", "container"])
    assert (now.bytes, others) == (on.bytes, [])


def test_a_thousand_hosts_that_a_word_keeps_apart():
    flags = {"collectors": {"fake": {"basic": 160}}, "hosts": 1000}
    sink = cloudwatch(common_dims=["instance_id", "instance_type"], **flags)
    assert sink.words == {"instance_id": "host", "instance_type": "shared"}
    assert (sink.now.series, sink.now.requests) == (160_000, 43_800_000.0)
    assert sink.now.dollars == 18_000.0 + 438.0
    assert sink.now.requests_per_second == pytest.approx(1000 / 60)
    assert choice(sink, "--common-dims without instance_id").series == 160
    assert choice(sink, "--common-dims without instance_type").series == 160_000


def test_hosts_that_nothing_keeps_apart_share_their_series():
    flags = {"collectors": {"fake": {"basic": 160}}, "hosts": 1000}
    sink = cloudwatch(common_dims=["instance_type"], dims={"team": "a"}, **flags)
    assert sink.words == {"instance_type": "shared", "team": "shared"}
    assert (sink.now.series, sink.now.requests, sink.now.dollars) == (160, 43_800_000.0, 48.0 + 438.0)
    assert choice(sink, "--common-dims ...,instance_id").series == 160_000


def test_a_dimension_given_for_a_word_keeps_hosts_apart_as_the_word_does():
    assert cloudwatch(dims={"hostname": "a"}, hosts=9).now.series == 27


def test_counters_at_0_are_not_sent_where_each_series_costs_and_the_plan_says_what_they_would_cost():
    sink = cloudwatch(collector=["quiet"], hosts=10, common_dims=["instance_id"])
    assert (sink.metrics, sink.held, sink.now.series) == ({"fake.events": 1}, {"fake.events": 3}, 10)
    moved = choice(sink, "every counter above 0")
    assert (moved.series, moved.dollars) == (40, 12.0 + 4.38)
    text = plan_text.as_text(whole(collector=["quiet"], sink=["cloudwatch"], region="us-east-1"))
    assert "max_series" not in text


def test_bytes_of_all_interfaces_are_taken_to_move_though_their_sum_begins_at_0(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text(f"\n\neth0: {'7 ' * 16}\n")
    sink = cloudwatch(collector=["network"], proc=tmp_path)
    assert sink.metrics == {"network.received": 1, "network.sent": 1}
    assert sink.held == {}


@pytest.mark.parametrize("flags", [{"sinks": {"cloudwatch": {"zeros": True}}}, {"sink": ["theirs"]}])
def test_counters_at_0_count_where_they_are_sent(flags):
    sink = planned(**{"sink": ["cloudwatch"], "region": "us-east-1", "collector": ["quiet"], **flags})
    assert (sink.metrics, sink.held, sink.now.series) == ({"fake.events": 4}, {}, 4)
    assert all(choice.flags != "every counter above 0" for choice in sink.choices)


def test_a_limit_that_leaves_no_room_for_events_is_reported():
    options = {"cloudwatch": {"max_series": 3}}
    text = plan_text.as_text(whole(collector=["quiet"], sink=["cloudwatch"], region="us-east-1", sinks=options))
    note = "max_series of [sinks.cloudwatch] allows 3 series, and a host has 4 once every counter has moved: the others"
    assert note in " ".join(text.split())
    text = plan_text.as_text(whole(sink=["cloudwatch"], region="us-east-1", collectors={"fake": {"basic": 700}}))
    assert "allows 500 series, and a host has 700: the others are counted, not sent." in " ".join(text.split())
    text = plan_text.as_text(whole(sink=["cloudwatch"], region="us-east-1", collectors={"fake": {"basic": 497}}))
    assert "max_series (500 in [sinks.cloudwatch]) cuts --level all." in " ".join(text.split())


def test_high_resolution_costs_requests_and_no_more_for_a_metric():
    sink = cloudwatch(collectors={"fake": {"basic": 100}})
    high = choice(sink, "--high-resolution-metrics")
    assert (high.series, high.requests, high.now) == (100, 262_800.0, False)  # 10 x 100 points fill one request
    assert high.dollars == 30.0 + 2.63
    configured = cloudwatch(collectors={"fake": {"basic": 100}}, high_resolution_metrics=True)
    assert choice(configured, "--high-resolution-metrics").now
    assert configured.now.dollars == high.dollars


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_is_the_flags_the_tables_or_the_environments(variable, monkeypatch):
    pytest.importorskip("botocore")
    monkeypatch.setenv(variable, "ap-southeast-1")
    own = {"sinks": {"cloudwatch": {"region": "eu-west-1"}}}
    for flags, region in (({}, "ap-southeast-1"), ({"region": "us-west-1"}, "us-west-1"), (own, "eu-west-1")):
        assert planned(sink=["cloudwatch"], **flags).tariff.service.endswith(f", {region}")


# -- Google: bytes are what is charged --------------------------------------------------------------------------


def test_to_google_points_are_what_costs():
    sink = google(collectors={"fake": {"basic": 500}})
    assert (sink.kind, sink.cadence.window) == ("priced", 60.0)
    assert sink.requests_per_period == 3  # of 200 series
    assert sink.now.points == 500 * MONTH / 60
    assert sink.now.volume == pytest.approx(167.08, abs=0.01)
    assert sink.now.dollars == 43.11
    assert sum(line.amount for line in sink.now.bill) == pytest.approx(sink.now.volume)


def test_to_google_a_thousand_hosts_cost_what_each_does_whatever_the_words():
    flags = {"collectors": {"fake": {"basic": 160}}, "hosts": 1000}
    one = google(collectors={"fake": {"basic": 160}})
    for words in ([], ["instance_type"], ["instance_id"]):
        sink = google(common_dims=words, **flags)
        assert (sink.now.series, sink.now.requests) == (160_000, 43_800_000.0)
        assert sink.now.volume == pytest.approx(1000 * one.now.volume)
        assert sink.now.dollars == pytest.approx(1000 * one.now.volume * 0.258, abs=0.01)
        assert not [c.flags for c in sink.choices if "common-dims" in c.flags]


def test_to_google_nothing_is_planned_that_it_would_refuse():
    assert not [c.flags for c in google().choices if c.flags == "--high-resolution-metrics"]
    for flags in ({"window": 5.0}, {"high_resolution_metrics": True}):
        with pytest.raises(ConfigError, match=r"window: \d s is too short"):
            google(**flags)


# -- other sinks ------------------------------------------------------------------------------------------------


def test_a_free_sink_costs_nothing():
    sink = planned(sink=["stdout"], format="json")
    assert (sink.kind, sink.now.bill, sink.now.dollars, sink.choices) == ("free", (), 0, ())


def test_what_a_sink_of_somebody_else_charges_is_not_known_and_not_nothing():
    sink = planned()
    assert (sink.kind, sink.tariff.service, sink.now.dollars) == ("unknown", "", None)


# -- the machine ------------------------------------------------------------------------------------------------


def test_the_series_of_this_machine_equal_the_series_of_a_run(agent, monkeypatch):
    monkeypatch.setattr(discovery, "PAUSE", PAUSE)
    done = agent.run("--once", "--level", "all", "--format", "json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    names = [line["name"] for line in lines if not line["name"].startswith("agent.")]
    (sink,) = whole(
        collector=[], no_collector=["fake", "absent", "broken", "quiet"], sink=["stdout"], level="all"
    ).sinks
    planned = {name: n for name, n in sink.metrics.items() if not name.startswith("agent.")}
    assert planned == {name: names.count(name) for name in names}


def test_what_a_profile_has_twice_is_counted_twice(agent, monkeypatch):
    monkeypatch.setattr(discovery, "PAUSE", PAUSE)
    done = agent.run("--once", "--collector", "memory", "--format", "json", "--names", "wandb")
    lines = [json.loads(line)["name"] for line in done.stdout.splitlines()]
    (sink,) = whole(collector=["memory"], sink=["stdout"], names="wandb").sinks
    assert sink.metrics["memory_percent"] == 1
    assert sum(sink.metrics.values()) == len(lines)


def test_nothing_is_sent_nobody_is_asked_and_nothing_is_kept(monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("a plan asks nobody")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    cloudwatch(common_dims=["instance_id", "autoscaling_group", "k8s_pod"], spool=str(tmp_path / "spool"))
    assert not (tmp_path / "spool").exists()


def test_collectors_without_anything_to_read_are_named_and_add_nothing():
    plan = whole(collector=["fake", "absent"])
    assert plan.collectors == {"fake": 10, "agent": plan.collectors["agent"]}
    assert plan.absent == {"absent": "no such chip: looked for /dev/chip*"}
    assert plan.sinks[0].metrics == {"fake.basic": 3}
    text = " ".join(plan_text.as_text(plan).split())
    assert "Not on this machine, so not in these numbers; --for NAME plans for a machine that has it: absent." in text


def test_a_collector_that_fails_is_said_to_be_missing():
    plan = whole(collector=["fake", "broken"])
    assert plan.failed == {"broken": "RuntimeError: a bug"}
    assert "FAILED, so its series are missing below: broken: RuntimeError: a bug." in plan_text.as_text(plan)


def test_a_wrong_option_is_refused_before_anything_is_read():
    with pytest.raises(ConfigError, match=r"sinks\.theirs\.max_poinst: no such option"):
        planned(sinks={"theirs": {"max_poinst": 1}})


# -- the text ---------------------------------------------------------------------------------------------------


def texts():
    pytest.importorskip("botocore")
    hosts = 1_000_000
    three = ["cloudwatch", "stdout", "theirs"]
    yield whole(sink=three, common_dims=["instance_id", "run_id"], hosts=hosts)
    yield whole(sink=["cloudwatch"], region="us-west-1", common_dims=["instance_type"], level="all")
    yield whole(sink=["cloudwatch"], region="me-central-1", hosts=5, terms=Terms(0.123456, 0.00005, free_tier=True))
    yield whole(sink=["cloudwatch"], collectors={"fake": {"basic": 2_000}}, hosts=hosts, collector=["fake", "absent"])
    yield whole(sink=["cloudwatch", "theirs"], collectors={"fake": {"basic": 0}})
    google()
    million = {"collectors": {"fake": {"basic": 2_000}}, "common_dims": ["instance_id", "k8s_pod"], "hosts": hosts}
    yield whole(sink=["google"], **million)
    yield whole(sink=["google", "cloudwatch"], level="all", terms=Terms(0.3, free_tier=True))
    yield whole(sink=["google"], collectors={"fake": {"basic": 0}}, hosts=3)


def test_text_and_json_have_the_same_numbers_each_bill_is_the_sum_of_its_lines_and_no_line_is_long():
    for plan in texts():
        text, data = plan_text.as_text(plan), json.loads(plan_text.as_json(plan))
        assert [line for line in text.splitlines() if len(line) > 100] == []
        for sink in data["sinks"]:
            for row in [sink["now"], *sink["choices"]]:
                for number in (row["series"], row["dollars"]):
                    assert number is None or f"{number:,}" in text
        assert (data["hosts"], data["month_seconds"]) == (plan.hosts, 2_628_000)
        for of in (of for sink in plan.sinks for of in (sink.now, *sink.choices)):
            assert of.dollars in (None, pytest.approx(sum(line.dollars or 0 for line in of.bill), abs=1e-6))


def test_the_text_as_a_whole():
    text = plan_text.as_text(
        whole(
            sink=["cloudwatch"], region="us-east-1", common_dims=["instance_id"], hosts=200,
            sinks={"cloudwatch": {"include": ["fake.*"]}}, collectors={"fake": {"basic": 60}},
        )
    )  # fmt: skip
    assert text.splitlines() == WHOLE.strip("\n").splitlines()


WHOLE = """
Plan for 200 hosts like this one, after two readings; a month is 730 hours. No network was used.

what if                            series  requests/month  dollars/month
------------------------------------------------------------------------
as configured                      12,000       8,760,000       3,287.60
--level basic (now)                12,000       8,760,000       3,287.60
--level detailed                   12,400       8,760,000       3,327.60
--level all                        13,400       8,760,000       3,427.60
--window 10                        12,000      52,560,000       3,725.60
--window 60 (now)                  12,000       8,760,000       3,287.60
--window 300                       12,000       1,752,000       3,217.52
--high-resolution-metrics          12,000      52,560,000       3,725.60
--common-dims without instance_id      60       8,760,000         105.60

Alarms (`dashboard --alarms`, Terraform) look at 400 metrics: 40.00 dollars a month more.
--format json has each metric's series, a dated bill, quotas and notes.
"""


def test_a_price_that_is_not_known_names_its_option_and_the_other_way_stands_beside_it():
    given = {"sink": ["cloudwatch-otlp"], "region": "us-east-1"}
    text = plan_text.as_text(whole(**given))
    row = next(line for line in text.splitlines() if line.startswith("as configured"))
    assert row.endswith(" GB  --price-per-gb")
    assert "By PutMetricData (--sink cloudwatch) the same series cost 1.34 dollars a month" in " ".join(text.split())
    assert "--price-per-gb" not in plan_text.as_text(whole(**given, terms=Terms(price_per_gb=0.5)))
    with pytest.raises(ConfigError, match="--price-per-gb: no sink here charges by the GB; name one that does"):
        whole(sink=["otlp"], terms=Terms(price_per_gb=0.5))


def test_what_is_not_in_the_table_is_in_the_json():
    (sink,) = json.loads(plan_text.as_json(whole(sink=["cloudwatch"], region="us-east-1", hosts=200)))["sinks"]
    assert sink["metrics"] == {"fake.basic": 3}
    assert sink["cadence"] == {"interval": 5.0, "window": 60.0, "flush": 10.0}
    assert sink["tariff"]["service"] == "Amazon CloudWatch, us-east-1"
    assert sink["now"]["bill"][0]["as_of"].startswith("2025-10-28, AWS Price List API")
    assert [quota["limit"] for quota in sink["now"]["quotas"]] == [500]
    assert "High resolution costs requests; a metric costs the same." in sink["notes"]
    passing = cloudwatch(common_dims=["instance_id", "run_id"]).notes
    assert "run_id: each new value makes new series; the old ones cost until their hour ends." in passing


# -- the command ------------------------------------------------------------------------------------------------


def test_the_command_prints_the_plan_in_its_forms_and_fails_where_series_are_missing(here):
    for form in ("json", "text"):
        done = here("plan", "--collector", "fake", "--sink", "stdout", "--hosts", "3", "--format", form)
        assert done.returncode == 0
        assert (done.stdout[0] == "{") == (form == "json")
        assert done.stdout.startswith("Plan for 3 hosts like this one,") == (form != "json")
    done = here("plan", "--collector", "broken", "--sink", "stdout")
    assert (done.returncode, "FAILED" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--hosts", "-3"], "--hosts -3: expected a whole number from 1 to 1000000"),
        (["--hosts", "many"], "--hosts many: expected a whole number from 1 to 1000000"),
        (["--price-per-metric", "-0.1"], "--price-per-metric -0.1: expected a number of dollars"),
        (["--price-per-metric", "nan"], "--price-per-metric nan: expected a number of dollars"),
        (["--price-per-1000-requests", "x"], "--price-per-1000-requests x: expected a number of dollars"),
        (["--format", "xml"], "--format xml: no such choice; choose from: text, json"),
        (["--sink", "clodwatch"], "--sink clodwatch: no such sink; did you mean cloudwatch"),
        (["--", "true"], "plan: takes no command after --"),
    ],
)
def test_wrong_usage_is_one_line_and_2(words, line, here):
    done = here("plan", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr


# -- machines that are not here ---------------------------------------------------------------------------------------


def test_a_plan_for_other_machines_reads_nothing_and_counts_each_device():
    made = whole(sink=["cloudwatch"], region="us-east-1", level="detailed", families=("nvidia",), devices=4)
    (sink,) = made.sinks
    assert (made.families, made.devices, made.absent, made.failed) == (("nvidia",), 4, {}, {})
    assert {*made.collectors} == {"nvidia", "jobs", "agent"}  # the processor jobs derives from its points
    assert sink.metrics["gpu.utilization"] == 4
    assert sink.metrics["gpu.idle.time"] == 7 * 4
    assert sink.metrics["job.gpu.time"] == 5
    assert not [name for name in sink.metrics if name.startswith(("fake.", "cpu.", "gpu.process."))]
    assert "gpu.process.memory.used" in whole(families=("nvidia",), pid=1, devices=4).sinks[0].metrics
    twice = whole(sink=["cloudwatch"], region="us-east-1", level="detailed", families=("nvidia",), devices=8).sinks[0]
    assert twice.metrics["gpu.utilization"] == 8


def test_a_family_counts_each_series_once():
    alone, family = (whole(families=words, level="all").sinks[0].metrics for words in (("nvidia",), ("gpu", "nvidia")))
    assert family["gpu.utilization"] == alone["gpu.utilization"] == 8
    assert {*alone} < {*family}


def test_the_text_says_that_nothing_was_read():
    text = plan_text.as_text(whole(families=("gpu",), devices=2, hosts=3))
    assert text.startswith("Plan for 3 hosts with gpu; a month is 730 hours. Nothing was read: 2 devices of each kind")
    assert "Read here" not in text
