import json
import re
from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest
from tests.doubles.fake_neuron_monitor import CATEGORIES, ERRORS, OUTCOMES, record

from chipwatch.collectors.neuron import NeuronCollector, metrics
from chipwatch.collectors.neuron.monitor import RecordSplitter
from chipwatch.collectors.neuron.records import PERIODS, NeuronRecords
from chipwatch.contract.datapoint import Dimensions, Kind, Level
from chipwatch.host.last_values import LastValues

FIXTURES = Path(__file__).parents[3] / "fixtures"
NEURON = FIXTURES / "neuron"
AT, BOOT = 1_800_000_000_000_000_000, 1_790_000_000_000_000_000
SECOND = 10**9


def lines(name: str) -> list[bytes]:
    return (NEURON / f"synthetic_{name}.jsonl").read_bytes().splitlines()


class Feed:
    """Records in, values out, one tick a second."""

    def __init__(self, *, level=Level.ALL, tagged=False, ecc="cumulative", interval=1.0, boot=BOOT):
        config = NeuronCollector.Config(interval=interval, neuron_runtime_tag=tagged, ecc=ecc)
        kept = LastValues(None, "neuron", Path("/nowhere"))
        kept.start_time = boot
        self.records = NeuronRecords(config, level, kept)
        self.now = 0

    def tick(self, *given) -> dict:
        """Take the records of one tick; return {name: {dims: value}}, with words of `dims` in the order of their keys."""
        self.now += 1
        self.at = AT + self.now * SECOND
        for one in given:
            line = one if isinstance(one, bytes) else json.dumps(one).encode()
            self.records.take(line, float(self.now), self.at, self.at - SECOND)
        self.points = list(self.records.points(self.at, float(self.now)))
        series = Counter((p.metric.name, p.dims) for p in self.points)
        assert set(series.values()) <= {1}, f"twice in one tick: {series.most_common(1)}"
        found: dict = {}
        for point in self.points:
            found.setdefault(point.metric.name, {})[" ".join(point.dims.values())] = point.value
        return found

    def problems(self):
        return self.records.reader.take_problems()


def only(**changes):
    """A record of two runtimes on two cores, changed: keys are paths with __ between, from the first runtime's report."""
    made = record(runtimes=2, cores=2)
    for path, value in changes.items():
        *way, last = path.split("__")
        place = made["neuron_runtime_data"][0]["report"]
        for key in way:
            place = place[key]
        place[last] = value
    return made


@pytest.fixture
def feed():
    """Records of all levels, without tags."""
    return Feed()


def rows():
    text = (FIXTURES / "catalogue.md").read_text()
    table = re.search(r"^## AWS Neuron.*?\n(.*?)^With the dimension", text, re.MULTILINE | re.DOTALL)[1]
    for line in [line for line in table.splitlines() if line.startswith("| neuron.")]:
        name, kind, unit, dims, level, _ = (cell.strip() for cell in line.strip("|").split("|"))
        keys = {key.strip() for key in re.sub(r"\(.*?\)", "", dims).split(",") if key.strip()}
        yield name, {"G": Kind.GAUGE, "C": Kind.COUNTER}[kind], unit, keys, level


def test_a_record_yields_every_metric_of_the_catalogue(feed):
    feed.tick(record(runtimes=2, cores=4))
    assert len([*rows()]) == 13
    for name, kind, unit, keys, level in rows():
        found = [p for p in feed.points if p.metric.name == name]
        assert found, name
        assert {(p.metric.kind, p.metric.unit) for p in found} == {(kind, unit)}
        assert all(set(p.dims) == set(p.metric.dims) == keys for p in found), name
        if level in ("basic", "detailed"):
            assert {p.metric.level for p in found} == {Level[level.upper()]}


def test_only_p50_and_p99_of_total_latency_and_uncorrected_ecc_are_basic(feed):
    feed.tick(record(cores=2))
    basic = {(p.metric.name, p.dims) for p in feed.points if p.metric.level is Level.BASIC}
    assert {dims for name, dims in basic if name == "neuron.execution.latency"} == {
        Dimensions(scope="total", percentile="p50"),
        Dimensions(scope="total", percentile="p99"),
    }
    assert {dims["corrected"] for name, dims in basic if name == "neuron.ecc.events"} == {"no"}


@pytest.mark.parametrize("level", Level)
def test_no_metric_is_above_the_level(level):
    feed = Feed(level=level)
    feed.tick(lines("trn2_v3d")[0])
    assert max(p.metric.level for p in feed.points) == level


NO_ECC = {f"{corrected} {memory} 0": 0 for corrected in ("yes", "no") for memory in ("mem", "sram")}


def test_the_values_of_a_published_record(feed):
    found = feed.tick((NEURON / "inf1_2022_article.json").read_bytes())
    assert found == {
        "neuron.runtimes": {"": 1},
        "neuron.host.memory.used": {"": 626905088},
        "neuron.device.memory.used": {"": 0},
        "neuron.host.memory.category.used": {
            "application_memory": 626905088, "constants": 0, "dma_buffers": 0, "tensors": 0,
        },
        "neuron.core.memory.used": {f"{category} {core} 0": 0 for core in range(4) for category in CATEGORIES},
        "neuron.execution.outcomes": dict.fromkeys(OUTCOMES, 0),
        "neuron.execution.errors": dict.fromkeys(ERRORS, 0),
        "neuron.ecc.events": NO_ECC,
    }  # fmt: skip
    assert feed.problems() == []
    assert feed.records.machine.identity == {
        "instance_id": "i-XXXXXXXXXXXXX",
        "instance_type": "inf1.xlarge",
        "ami_id": "ami-0442925238f84cec5",
        "region": "ap-northeast-1",
        "availability_zone": "ap-northeast-1a",
    }


def test_four_runtimes_that_each_list_all_cores_are_merged_and_never_averaged(feed):
    found = feed.tick(*lines("inf1_four_containers_same_tag"))
    assert found["neuron.core.utilization"] == {"0 0": 2.5, "1 0": 3.5, "2 0": 4.5, "3 0": 5.5}
    assert found["neuron.runtimes"] == {"": 4}
    assert found["neuron.host.memory.used"] == {"": 4 * 4096}
    assert found["neuron.device.memory.used"] == {"": 4 * 1710}
    assert found["neuron.core.memory.used"]["tensors 2 0"] == 200
    assert found["neuron.execution.outcomes"]["completed"] == 160
    assert "neuron.runtime.vcpu.utilization" not in found
    assert feed.problems() == ["neuron_runtime_vcpu_usage: open /proc/N/stat: no such file or directory"]


def test_a_first_record_without_runtimes_has_the_memory_of_the_devices(feed):
    assert feed.tick(*lines("trn1_zero_runtimes_first_record")) == {
        "neuron.runtimes": {"": 0},
        "neuron.device.memory.total": {"": 32 << 30},
        "neuron.core.logical.size": {"": 1},
    }
    assert feed.problems() == []


def test_generic_errors_go_on_from_the_start_of_a_runtime_and_others_are_of_a_period(feed):
    for generic, numerical, sums in (23654, 1, (0, 1)), (23692, 2, (38, 3)), (23749, 0, (95, 3)), (7, 0, (102, 3)):
        made = only(execution_stats__error_summary={"generic": generic, "numerical": numerical})
        del made["neuron_runtime_data"][1]
        found = feed.tick(made)["neuron.execution.errors"]
        assert (found["generic"], found["numerical"]) == sums
    del made["neuron_runtime_data"][0]["report"]["execution_stats"]["error_summary"]["generic"]
    made["neuron_runtime_data"].append(deepcopy(made["neuron_runtime_data"][0]) | {"pid": 9})
    made["neuron_runtime_data"][1]["report"]["execution_stats"]["error_summary"] = {"generic": -1}
    assert feed.tick(made)["neuron.execution.errors"]["generic"] == 102


def test_records_of_2026_have_no_generic_errors_and_effective_flops(feed):
    found = feed.tick(*lines("inf2_2026_no_generic_eff_flops"))
    assert found["neuron.core.flops"] == {"0 0": 89500000000, "1 0": 0}
    core = {"neuroncore_utilization": 1, "flops": 5, "effective_flops": 4}  # as in 2024
    other = Feed().tick(only(neuroncore_counters__neuroncores_in_use={"0": core}))
    assert other["neuron.core.flops"]["0 0"] == 5
    assert set(found["neuron.execution.errors"]) == {*ERRORS} - {"generic"}
    assert found["neuron.execution.outcomes"]["completed"] == 800
    assert found["neuron.execution.latency"]["p99 total"] == 0.0011200000000000001
    assert feed.problems() == []


def test_trn2_has_logical_cores_and_physical_cores(feed):
    found = feed.tick(*lines("trn2_v3d"))
    assert found["neuron.core.utilization"] == {"0 0": 42, "1 0": 42, "2 0": 0, "3 0": 0}
    assert found["neuron.core.physical.utilization"] == {
        "0 0 0": 21, "0 0 1": 42, "1 0 2": 21, "1 0 3": 42, "2 0 4": 0, "2 0 5": 0, "3 0 6": 0, "3 0 7": 0,
    }  # fmt: skip
    assert found["neuron.device.memory.total"] == {"": 103079215104}
    assert feed.problems() == []


def test_inference_stats_of_2021_are_execution_stats(feed):
    made = only()
    for runtime in made["neuron_runtime_data"]:
        stats = runtime["report"].pop("execution_stats")
        stats["inference_summary"] = stats.pop("execution_summary")
        runtime["report"]["inference_stats"] = stats
    found = feed.tick(made)
    assert found["neuron.execution.outcomes"]["completed"] == 20
    assert found["neuron.execution.errors"]["transient"] == 2
    assert found["neuron.execution.latency"]["p50 total"] == 0.002
    assert feed.problems() == []


def test_the_values_of_a_large_record_equal_a_plain_computation():
    made = record(runtimes=32, cores=32, models=2)
    found = Feed().tick(made)
    reports = [runtime["report"] for runtime in json.loads(json.dumps(made))["neuron_runtime_data"]]
    in_use = [report["neuroncore_counters"]["neuroncores_in_use"] for report in reports]
    used = [report["memory_used"]["neuron_runtime_used_bytes"] for report in reports]
    stats = [report["execution_stats"] for report in reports]
    assert len(found["neuron.core.utilization"]) == 32
    for core in range(32):
        place = f"{core} {core // 2}"
        shares = [cores[str(core)]["neuroncore_utilization"] for cores in in_use]
        assert found["neuron.core.utilization"][place] == max(shares) > sum(shares) / len(shares)
        assert found["neuron.core.flops"][place] == sum(cores[str(core)]["flops"] for cores in in_use)
    for name in ("host", "neuron_device"):
        assert found[f"neuron.{name.removeprefix('neuron_')}.memory.used"] == {"": sum(each[name] for each in used)}
    assert found["neuron.execution.outcomes"]["completed"] == sum(s["execution_summary"]["completed"] for s in stats)
    assert found["neuron.execution.latency"]["p99 device"] == max(
        s["latency_stats"]["device_latency"]["p99"] for s in stats
    )


def test_a_later_record_adds_to_the_identity(feed):
    early = record()
    early["instance_info"] = {"instance_id": "i-1", "instance_region": "", "ami_id": None, "error": "metadata timeout"}
    feed.tick(early)
    assert feed.records.machine.identity == {"instance_id": "i-1"}
    assert feed.problems() == ["instance_info: metadata timeout"]
    later = record()
    later["instance_info"]["ultraserver_id"] = "us-1"
    feed.tick(later)
    feed.tick(early)
    assert feed.records.machine.identity == {
        "instance_id": "i-1",
        "instance_type": "trn1.2xlarge",
        "ami_id": "ami-0test",
        "region": "xx-test-1",
        "availability_zone": "xx-test-1a",
        "ultraserver_id": "us-1",
    }


def test_counts_are_added_up_over_all_records_of_a_tick(feed):
    # What a replay of 60,000 executions printed on a trn1.2xlarge.
    periods = [6657, 15409, 15273, 15199, 7465, 0]
    made = [only(execution_stats__execution_summary={"completed": n}) for n in periods]
    for one in made:
        del one["neuron_runtime_data"][1]
    assert feed.tick(made[0])["neuron.execution.outcomes"] == {"completed": 6657}
    first = feed.points
    assert feed.tick(*made[1:4])["neuron.execution.outcomes"] == {"completed": 52538}
    assert feed.tick()["neuron.execution.outcomes"] == {"completed": 52538}
    assert feed.tick(*made[4:])["neuron.execution.outcomes"] == {"completed": 60003}
    start_time = {p.start_time for p in first + feed.points if p.metric is metrics.OUTCOMES}
    assert start_time == {AT}


def test_the_last_counts_of_a_runtime_that_ended_within_the_tick_are_reported(feed):
    found = feed.tick(only(), {**record(), "neuron_runtime_data": []})
    assert found["neuron.execution.outcomes"]["completed"] == 20
    assert found["neuron.runtimes"] == {"": 0}
    assert "neuron.core.utilization" not in found
    assert "neuron.execution.outcomes" not in feed.tick({**record(), "neuron_runtime_data": []})
    assert feed.tick(only())["neuron.execution.outcomes"]["completed"] == 40, "it continues when the runtime returns"
    assert {p.start_time for p in feed.points if p.metric is metrics.OUTCOMES} == {AT}


def test_counts_stay_within_64_bits(feed):
    for _ in range(3):
        feed.records._tally("", AT).outcomes["", "completed"] = 2**63 - 10
        found = feed.tick(only(execution_stats__execution_summary={"completed": 2**53 - 1}))
    assert found["neuron.execution.outcomes"]["completed"] == 2**63 - 1


def test_names_of_counts_are_bounded(feed):
    for n in range(3):
        feed.tick(only(execution_stats__error_summary={f"kind{n}_{m}": 1 for m in range(64)}))
    found = feed.tick(only(execution_stats__error_summary={"not a name": 1, "x" * 65: 1, "": 1}))
    assert len(found["neuron.execution.errors"]) <= 64
    assert feed.problems() == ["summary by error: too many names, or an invalid name"]
    feed.tick(*[f"line {chr(65 + n % 26)}{chr(65 + n // 26)}".encode() for n in range(500)])
    assert len(feed.problems()) <= 32, "so are the problems of a tick"


def ecc(count, **more):
    made = record(runtimes=0)
    made["system_data"]["neuron_hw_counters"]["neuron_devices"][0] |= {"mem_ecc_uncorrected": count, **more}
    return made


def uncorrected(feed, count):
    feed.tick(ecc(count))
    (point,) = [p for p in feed.points if p.dims == Dimensions(neuron_device="0", memory="mem", corrected="no")]
    return point.value, point.start_time


def test_ecc_counts_per_period_are_added_up():
    feed = Feed(ecc="per_period")
    assert [uncorrected(feed, count) for count in (3, 0, 5)] == [(3, AT), (3, AT), (8, AT)]


def test_an_ecc_counter_that_fell_starts_after_the_last_reading(feed):
    values = [uncorrected(feed, count) for count in (7, 0, 8, 1, 3)]
    assert values == [(7, BOOT), (7, BOOT), (8, BOOT), (1, AT + 3 * SECOND), (3, AT + 3 * SECOND)]


def test_without_a_boot_time_ecc_counts_from_the_first_reading():
    assert uncorrected(Feed(boot=None), 3) == (3, AT + SECOND)


def test_missing_ecc_counts_are_absent(feed):
    made = ecc(0)
    del made["system_data"]["neuron_hw_counters"]["neuron_devices"][0]["sram_ecc_corrected"]
    made["system_data"]["neuron_hw_counters"]["neuron_devices"][0]["sram_ecc_uncorrected"] = None
    assert set(feed.tick(made)["neuron.ecc.events"]) == {"yes mem 0", "no mem 0"}
    assert feed.problems() == []


@pytest.mark.parametrize(
    "devices", [None, {}, "x", [None, 1, {}, {"neuron_device_index": "0"}, {"neuron_device_index": -1}]]
)
def test_invalid_devices_have_no_ecc(devices, feed):
    made = ecc(0)
    made["system_data"]["neuron_hw_counters"]["neuron_devices"] = devices
    assert "neuron.ecc.events" not in feed.tick(made)
    assert len(feed.problems()) == (devices is not None)


def test_gauges_and_counters_end_three_periods_after_the_last_record():
    feed = Feed(interval=1.0)
    whole = set(feed.tick(record(period=2.0)))
    for _ in range(PERIODS * 2):
        assert set(feed.tick()) == whole
    assert feed.tick() == {}
    feed.tick(record(period=1e12))
    feed.now += 3 * 3600
    assert feed.tick() == {}, "a period of centuries is not believed"


def test_the_gauges_of_a_runtime_that_ended_are_absent_at_once(feed):
    assert feed.tick(record(runtimes=2, cores=2))["neuron.core.utilization"] == {"0 0": 31.25, "1 0": 32.25}
    found = feed.tick(record(runtimes=1, cores=2))
    assert found["neuron.core.utilization"] == {"0 0": 31.25, "1 0": 0}
    assert found["neuron.host.memory.used"] == {"": 4096}


def test_a_group_that_a_record_lacks_keeps_its_values():
    feed = Feed(interval=5.0)
    feed.tick(record())
    found = feed.tick(record(groups={"memory_used"}))
    assert found["neuron.core.utilization"] == {"0 0": 31.25, "1 0": 0}
    assert found["neuron.execution.outcomes"]["completed"] == 10


def test_a_record_without_runtime_data_keeps_the_values_of_runtimes(feed):
    feed.tick(record())
    made = record()
    del made["neuron_runtime_data"]
    assert feed.tick(made)["neuron.runtimes"] == {"": 1}
    assert feed.tick({**made, "neuron_runtime_data": None})["neuron.core.utilization"]
    assert feed.problems() == []


def test_latency_is_absent_when_nothing_was_executed(feed):
    feed.tick(record())
    nothing = {"total_latency": None, "device_latency": None}
    for latency in (nothing, None, {}, {"total_latency": {}}):
        made = only(execution_stats__latency_stats=latency)
        del made["neuron_runtime_data"][1]
        assert "neuron.execution.latency" not in feed.tick(made)
    assert feed.problems() == []


def test_valid_percentiles_are_reported_without_the_others(feed):
    made = only(
        execution_stats__latency_stats={"total_latency": {"p50": 0.5, "p99": None, "mean": 1, "p9x": 1}, "x": 1}
    )
    del made["neuron_runtime_data"][1]
    assert feed.tick(made)["neuron.execution.latency"] == {"p50 total": 0.5}


def test_the_first_reading_over_a_very_short_time_has_no_utilization(feed):
    found = feed.tick(record(period=0.07))
    assert not {"neuron.core.utilization", "neuron.core.flops", "neuron.runtime.vcpu.utilization"} & set(found)
    assert found["neuron.host.memory.used"] == {"": 4096}
    assert found["neuron.execution.outcomes"]["completed"] == 10
    assert feed.tick(record(period=0.2))["neuron.core.utilization"] == {"0 0": 31.25, "1 0": 0}, "so is the period"


LEFT_OUT = ["utilization is left out of records of less than 0.5 s, unless the one before was as short"]


def new_runtime(pid, period):
    made = record(period=period)
    made["neuron_runtime_data"][0]["pid"] = pid
    return made


def test_utilization_left_out_of_three_records_in_a_row_is_reported_once(feed):
    said = []
    for pid in range(20):
        assert "neuron.core.utilization" not in feed.tick(new_runtime(pid, 0.008))
        said.append(feed.problems())
    assert said == [[], [], LEFT_OUT, *[[]] * 17]


def test_utilization_left_out_as_runtimes_start_is_not_reported(feed):
    for pid in range(20):
        feed.tick(new_runtime(pid, 0.008))
        feed.tick(new_runtime(pid, 1.0))
        assert feed.problems() == []


def tagged(*tags, **options):
    made = record(runtimes=len(tags), cores=4, **options)
    for runtime, tag in zip(made["neuron_runtime_data"], tags, strict=True):
        runtime["neuron_runtime_tag"] = tag
    return made


def test_tags_are_dimensions_if_configured():
    feed = Feed(tagged=True)
    found = feed.tick(tagged("a", "b"))
    assert found["neuron.core.utilization"]["1 0 a"] == 0
    assert found["neuron.core.utilization"]["1 0 b"] == 32.25
    assert found["neuron.execution.outcomes"]["a completed"] == 10
    assert found["neuron.execution.latency"]["a p50 total"] == 0.001
    assert found["neuron.host.memory.used"] == {"a": 4096, "b": 4096}
    assert found["neuron.runtimes"] == {"": 2}
    assert found["neuron.device.memory.total"] == {"": 64 << 30}
    assert all(set(p.dims) == set(p.metric.dims) for p in feed.points)
    assert {p.metric for p in feed.points} <= set(metrics.declared(tagged=True))
    plain = Feed()
    plain.tick(tagged("a", "b"))
    assert not any("neuron_runtime_tag" in p.dims for p in plain.points)


def test_pids_and_empty_and_missing_tags_are_untagged():
    feed = Feed(tagged=True)
    found = feed.tick(tagged("4000", "", None, "  "))
    assert found["neuron.host.memory.used"] == {"untagged": 4 * 4096}
    assert found["neuron.core.utilization"]["2 1 untagged"] == 33.25


def test_odd_tags_become_printable_and_bounded():
    feed = Feed(tagged=True)
    found = feed.tick(tagged("学習-é", "a\nb\x00", "x" * 300, 7))
    assert set(found["neuron.host.memory.used"]) == {"学習-é", "a?b?", "x" * 255, "untagged"}
    assert feed.problems() == ["neuron_runtime_tag: not a string"]


def test_a_tag_that_appears_later_counts_from_the_tick_before():
    feed = Feed(tagged=True)
    feed.tick(tagged("a"))
    feed.tick(tagged("a", "b"))
    start_time = {
        p.dims["neuron_runtime_tag"]: p.start_time for p in feed.points if p.metric.name == "neuron.execution.outcomes"
    }
    assert start_time == {"a": AT, "b": AT + SECOND}
    found = feed.tick(tagged("a"))
    assert not [name for name, series in found.items() if any("b" in dims.split() for dims in series)], "b has ended"


def test_the_number_of_tags_is_bounded_and_a_dropped_tag_counts_again():
    feed = Feed(tagged=True)
    feed.tick(tagged("first"))
    for n in range(300):
        feed.tick(tagged(f"job-{n}"))
    assert len(feed.records._tallies) <= 256
    assert feed.tick(tagged("first"))["neuron.execution.outcomes"]["first completed"] == 10
    assert {p.start_time for p in feed.points if p.metric.name == "neuron.execution.outcomes"} == {feed.at - SECOND}


def pods(**cores):
    made = record(runtimes=1, cores=2)
    names = {"pod_name": "train-0", "namespace": "ml", "container_name": ["b", "a"]}
    made["neuron_k8s_info"] = {"period": 15.03, "neuroncores_k8s_info": {"0": names} | cores, "error": ""}
    return made


def test_cores_have_the_dimensions_of_the_pod_that_uses_them(feed):
    many = [f"container-{n}" for n in range(40)]
    feed.tick(pods(**{"1": {"container_name": many}}))
    found = {p.dims for p in feed.points if p.metric.name == "neuron.core.utilization"}
    own = {"k8s_pod": "train-0", "k8s_namespace": "ml", "k8s_container": "a,b"}
    assert found == {
        Dimensions(own, neuron_core="0", neuron_device="0"),
        Dimensions(k8s_container=",".join(sorted(many))[:255], neuron_core="1", neuron_device="0"),
    }
    assert all(set(p.dims) == set(p.metric.dims) for p in feed.points)
    assert not any("k8s_pod" in p.dims for p in feed.points if "neuron_core" not in p.dims)


def test_pods_missing_from_the_records_expire(feed):
    feed.tick(pods())
    feed.tick(record(cores=2))
    assert any("k8s_pod" in p.dims for p in feed.points)
    for _ in range(4):
        feed.tick(record(cores=2))
    assert not any("k8s_pod" in p.dims for p in feed.points)
    made = pods()
    made["neuron_k8s_info"]["error"] = "no kubelet"
    feed.tick(made, pods(**{"1": None, "x": "y"}))
    assert feed.problems() == ["neuron_k8s_info: no kubelet", "a core's pod: not an object"]


GOOD = only()


def still_good(feed):
    """Whatever came before, the next record counts in full."""
    return feed.tick(GOOD)["neuron.core.utilization"] == {"0 0": 31.25, "1 0": 32.25}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"Usage: some-tool [OPTIONS] 12", "neuron-monitor printed: Usage: some-tool [OPTIONS] N"),
        (b"\xff\xfe panic", "neuron-monitor printed: \ufffd\ufffd panic"),
        (b'{"neuron_runtime_data":[{"pid":1,', "a record was cut, or is not JSON"),
        (b'{"system_data":{"x":{"error":"\xff"}}}', "a record was cut, or is not JSON"),
        (b'{"system_data":{"x":{"period":1e999}}}', "a record was cut, or is not JSON"),
        (b"[" * 100_000, "neuron-monitor printed: " + "[" * 120),
        (b'{"neuron_runtime_data":' + b"[" * 100_000, "a record was cut, or is not JSON"),
        (b"[]", "a line is JSON, but not a record"),
        (b"null", "a line is JSON, but not a record"),
        (b"1e3", "a line is JSON, but not a record"),
        (b'"text"', "a line is JSON, but not a record"),
        (b'{"level":"info"}', "a line is JSON, but not a record"),
    ],
)
def test_an_invalid_line_is_reported_once_and_the_next_record_counts(line, problem, feed):
    assert feed.tick(line, line) == {}
    assert feed.problems() == [problem]
    assert still_good(feed)


def test_each_edge_case_is_reported_and_the_next_record_counts(feed):
    bad = [*RecordSplitter(feed.records.reader.report).split((NEURON / "synthetic_edge_cases.jsonl").read_bytes())]
    found = feed.tick(*bad[:-1])
    problems = feed.problems()
    assert {
        "neuron-monitor printed: Usage: some-tool [OPTIONS]",
        "a record was cut, or is not JSON",
        "a runtime: cannot attach",
        "neuroncore_counters: read failed",
        "instance_info: metadata timeout",
        "neuron_hardware_info: driver not loaded",
        "the group future_group of the system is unknown",
        "the key of a core is not an index; the core is left out",
        "neuroncore_utilization: out of range",
    } <= set(problems)
    assert len(problems) == len(set(problems))
    assert "neuron.core.utilization" not in found, "101.5 %"
    assert feed.tick(bad[-1])["neuron.core.utilization"] == {"0 0": 5, "1 0": 0}  # printed for people
    assert feed.problems() == []
    assert still_good(feed)


def test_a_failed_runtime_leaves_the_values_of_the_others(feed):
    made = record(runtimes=2, cores=2)
    made["neuron_runtime_data"][0] |= {"error": "cannot attach to pid 4711", "report": None}
    found = feed.tick(made)
    assert found["neuron.core.utilization"] == {"0 0": 0, "1 0": 32.25}
    assert found["neuron.runtimes"] == {"": 2}
    assert feed.problems() == ["a runtime: cannot attach to pid N"]


def test_a_single_failed_runtime_has_no_values(feed):
    feed.tick(record())
    made = record()
    made["neuron_runtime_data"][0] |= {"error": "cannot attach", "report": None}
    of_machine = {"neuron.runtimes", "neuron.ecc.events", "neuron.device.memory.total", "neuron.core.logical.size"}
    assert set(feed.tick(made)) == of_machine


@pytest.mark.parametrize(
    "group", ["neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "execution_stats"]
)
@pytest.mark.parametrize("given", [None, {}, [], "x", 1, True, {"period": "x", "error": 1}, {"error": "failed"}])
def test_an_invalid_group_leaves_the_values_of_the_others(group, given, feed):
    whole = set(feed.tick(record(cores=2)))
    made = record(cores=2)
    made["neuron_runtime_data"][0]["report"][group] = given
    left = set(feed.tick(made))
    lost = {
        "neuroncore_counters": {"neuron.core.utilization", "neuron.core.flops"},
        "memory_used": {
            f"neuron.{of}.used" for of in ("core.memory", "host.memory", "host.memory.category", "device.memory")
        },
        "neuron_runtime_vcpu_usage": {"neuron.runtime.vcpu.utilization"},
        "execution_stats": {"neuron.execution.latency", "neuron.execution.outcomes", "neuron.execution.errors"},
    }[group]
    if group == "execution_stats" and given == {}:
        lost = {"neuron.execution.latency"}
    assert left == whole - lost
    assert bool(feed.problems()) == (given not in (None, {}))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("neuroncore_counters__neuroncores_in_use__0__neuroncore_utilization", "neuron.core.utilization"),
        ("neuroncore_counters__neuroncores_in_use__0__flops", "neuron.core.flops"),
        ("memory_used__neuron_runtime_used_bytes__host", "neuron.host.memory.used"),
        ("execution_stats__execution_summary__completed", "neuron.execution.outcomes"),
        ("execution_stats__error_summary__model", "neuron.execution.errors"),
        ("execution_stats__latency_stats__total_latency__p50", "neuron.execution.latency"),
        ("neuron_runtime_vcpu_usage__vcpu_usage__user", "neuron.runtime.vcpu.utilization"),
    ],
)
@pytest.mark.parametrize("value", [-1, "12", True, [], {}, 10**30, None])
def test_an_invalid_value_is_absent_and_the_others_are_not(path, name, value):
    feed = Feed()
    found = feed.tick(only(**{path: value}))
    assert set(found[name]) == set(Feed().tick(GOOD)[name])  # the other runtime's
    assert all(0 <= n < 2**53 for n in found[name].values())
    assert len(feed.problems()) == (value is not None)


@pytest.mark.parametrize("key", ["", "x", "-1", "1.0", "00", "٣", "99999", "9" * 100])
def test_a_core_whose_key_is_not_an_index_is_left_out(key, feed):
    core = {"neuroncore_utilization": 9, "flops": 1, "v3d": {"nc_v3.0": {"neuroncore_utilization": 1}}}
    found = feed.tick(only(neuroncore_counters__neuroncores_in_use={key: core, "0": core}))
    assert found["neuron.core.utilization"] == {"0 0": 9, "1 0": 32.25}
    assert feed.problems() == ["the key of a core is not an index; the core is left out"]


def test_cores_are_left_out_until_the_cores_per_device_are_known(feed):
    made = record(cores=2)
    made["neuron_hardware_info"] = {"error": "driver not loaded"}
    assert "neuron.core.utilization" not in feed.tick(made)
    assert (
        "the key of a core has no device: neuroncore_per_device_count is unknown; the core is left out"
        in feed.problems()
    )
    assert feed.tick(record(cores=2))["neuron.core.utilization"]
    assert feed.tick(made)["neuron.core.utilization"] == {"0 0": 31.25, "1 0": 0}


def test_the_device_of_a_core_follows_a_new_number_of_cores_per_device(feed):
    """Trn2's logical cores are regrouped by a setting, under an agent that goes on."""
    for per_device, places in ((2, {"0 0", "1 0", "2 1", "3 1"}), (4, {"0 0", "1 0", "2 0", "3 0"}),
                               (1, {"0 0", "1 1", "2 2", "3 3"}), (2, {"0 0", "1 0", "2 1", "3 1"})):  # fmt: skip
        made = record(cores=4)
        made["neuron_hardware_info"]["neuroncore_per_device_count"] = per_device
        assert set(feed.tick(made)["neuron.core.utilization"]) == places


def test_the_size_of_a_logical_core_is_known_from_newer_monitors(feed):
    """Keys of neuron_hardware_info on an inf2.xlarge, where it is 1; a Trn2 has 2 unless it is set otherwise."""
    made = record()
    del made["neuron_hardware_info"]["logical_neuroncore_config"]
    assert "neuron.core.logical.size" not in feed.tick(made)
    made["neuron_hardware_info"] |= {
        "logical_neuroncore_config": 2, "neuron_device_type": "inferentia2", "neuron_device_version": "v3",
        "neuroncore_version": "v2",
    }  # fmt: skip
    assert feed.tick(made)["neuron.core.logical.size"] == {"": 2}
    assert feed.problems() == []


@pytest.mark.parametrize("v3d", [7, [], {"x": 1}, {"nc_v3.x": {}}, {"nc_v3.0": {"neuroncore_utilization": "y"}}])
def test_invalid_physical_cores_are_left_out(v3d, feed):
    found = feed.tick(only(neuroncore_counters__neuroncores_in_use={"0": {"neuroncore_utilization": 3, "v3d": v3d}}))
    assert found["neuron.core.utilization"]["0 0"] == 3
    assert "neuron.core.physical.utilization" not in found


@pytest.mark.parametrize("cores", [None, {}, [], "x", {"0": None}, {"0": 7}])
def test_invalid_cores_leave_the_values_of_the_other_runtime(cores, feed):
    found = feed.tick(only(neuroncore_counters__neuroncores_in_use=cores))
    assert found["neuron.core.utilization"] == {"0 0": 0, "1 0": 32.25}  # the other runtime's


ODD = [None, {}, [], {"a": 1}, "x", 7, False, {"error": 5}]


@pytest.mark.parametrize("part", ["system_data", "instance_info", "neuron_hardware_info", "neuron_k8s_info", "report"])
@pytest.mark.parametrize("given", ODD)
def test_an_invalid_part_leaves_the_values_of_the_others(part, given, feed):
    feed.tick(record(cores=2))
    made = record(runtimes=2, cores=2)
    (made["neuron_runtime_data"][0] if part == "report" else made)[part] = given
    made["neuron_runtime_data"].append(given)
    first = 0 if part == "report" else 31.25
    assert feed.tick(made)["neuron.core.utilization"] == {"0 0": first, "1 0": 32.25}
    if not isinstance(given, dict):
        assert "neuron_runtime_data: a runtime is not an object" in feed.problems()
    listed = Feed().tick({**record(), "neuron_runtime_data": given})
    assert "neuron.runtimes" not in listed or given == []


def test_an_unknown_group_is_reported_only_once(feed):
    made = record()
    made["system_data"]["power 2"] = {"x": 1}
    made["neuron_runtime_data"][0]["report"]["links"] = [1]
    made["brand_new"] = {"x": 1}
    feed.tick(made)
    assert feed.problems() == ["the group power N of the system is unknown", "the group links of a runtime is unknown"]
    feed.tick(made)
    assert feed.problems() == []


def test_a_runtime_is_a_process_on_the_cores_that_it_uses(feed):
    assert feed.records.processes(0.0) is None
    feed.tick(*lines("inf1_four_containers_same_tag"))
    found = feed.records.processes(float(feed.now))
    assert sorted((*one.dims.values(), one.memory) for one in found) == [
        (core, "0", sizes) for core, sizes in zip("0123", sorted(one.memory for one in found), strict=True)
    ]
    assert len({one.pid for one in found}) == 4
    assert feed.records.processes(feed.now + 60.0) is None, "they are as old as the record"
    feed.tick(*lines("trn1_zero_runtimes_first_record")[:1])
    assert feed.records.processes(float(feed.now)) == []
