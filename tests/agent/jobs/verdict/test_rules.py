"""The table of conditions, and what an agent remembers for it."""

import json
import time
from pathlib import Path

import pytest

from chipwatch.commands import verdict as report
from chipwatch.config import plugins
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Kind, Level, counter, gauge
from chipwatch.engine.sampler import Sampler
from chipwatch.jobs.verdict import expect, rules
from chipwatch.jobs.verdict.callers import CALLERS, DEGRADED, FIT, NOT_FIT, UNKNOWN, VERDICTS, code_of, code_of_failure
from chipwatch.jobs.verdict.events import MAX_SERIES, STALE, WATCHED, EventHistory
from chipwatch.jobs.verdict.judge import judge
from chipwatch.jobs.verdict.rules import RULES, Seen

S = 10**9
AT = 1_800_000_000 * S
NOWHERE = Path("/nonexistent")
STATE = gauge("gpu.state", "1", "Works.", dims=("gpu",))
DOWNED = counter("rdma.link.downed", "{event}", "Went down.", dims=("device", "port"))
PORT = Dimensions(device="mlx5_3", port="1")


def declared():
    metrics = {}
    for name in plugins.installed(plugins.COLLECTORS):
        metrics |= {metric.name: metric for metric in plugins.load(plugins.COLLECTORS, name).metrics}
    return metrics


def always():
    names = plugins.installed(plugins.COLLECTORS)
    return frozenset().union(*(plugins.load(plugins.COLLECTORS, name).needs.always for name in names))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.metric}-{'-'.join(map(str, rule.only.values()))}")
def test_a_rule_is_of_a_metric_that_some_collector_yields_and_names_its_dimensions(rule):
    metric = declared()[rule.metric]
    assert (metric.kind is Kind.GAUGE) == (rule.gauge)
    assert metric.level is Level.BASIC or metric.name in always(), "an agent at the level basic has to know it"
    known = dict.fromkeys(metric.dims, "x")
    for text in (rule.about, rule.says, rule.do):
        text.format_map({**known, "value": 2.0})
    assert {*rule.only} <= {*metric.dims}
    assert not rule.says.endswith(".")
    assert rule.do.endswith(".")
    assert rule.severity in (NOT_FIT, DEGRADED, UNKNOWN)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.metric}-{'-'.join(map(str, rule.only.values()))}")
def test_each_rule_holds_for_its_series_and_not_for_a_good_one(rule):
    dims = {key: words[0] for key, words in rule.only.items()}
    bad, good = (0.0, 1.0) if rule.below else (rule.limit + 1, rule.limit)
    if rule.gauge:
        assert rule.reason(Seen(rule.metric, dims, bad)).severity == rule.severity
        assert rule.reason(Seen(rule.metric, dims, good)) is None
    else:
        assert rule.reason(Seen(rule.metric, dims, 9, rose=bad)).severity == rule.severity
        assert rule.reason(Seen(rule.metric, dims, 9, rose=good)) is None, "an older event, or few"
        assert rule.reason(Seen(rule.metric, dims, 9)) is None, "nobody watched"
        told = rule.reason(Seen(rule.metric, dims, 9, last=AT))
        assert (told is None) == (rule.limit > 0), "a message tells its time"
    for key in rule.only:
        assert rule.reason(Seen(rule.metric, {**dims, key: "other"}, bad, rose=9)) is None


def judged_gpu(action, state):
    seen = [Seen("gpu.state", {"gpu": "6"}, state), Seen("gpu.recovery_action", {"gpu": "6", "action": action}, 1)]
    return [(one.severity, f"{one.says} | {one.do}") for one in rules.reasons(seen)]


@pytest.mark.parametrize("action", ["gpu_reset", "bus_reset", "node_reboot", "drain_and_reset"])
def test_what_a_lost_gpu_asks_for_is_its_one_reason_with_its_own_advice(action):
    ((severity, text),) = judged_gpu(action, 0)
    assert severity == NOT_FIT
    assert ("reset the GPU" in text) == (action in ("gpu_reset", "drain_and_reset"))


def test_a_recovery_that_is_not_known_here_is_named():
    assert [text[:57] for _, text in judged_gpu("unknown (8)", 1)] == [
        "asks for a recovery that is not known here: unknown (8) |"
    ]


@pytest.mark.parametrize(("rose", "seconds", "is_wrong"), [
    (250, 1.0, True), (99, 1.0, False), (250, 3600.0, False), (360_001, 3600.0, True),
])  # fmt: skip
def test_a_limit_by_the_hour_is_scaled_to_the_time_between_two_readings(rose, seconds, is_wrong):
    errors = Seen("gpu.link.errors", {"gpu": "3", "kind": "nvlink_crc"}, 9, rose, AT, "", seconds)
    assert bool(rules.reasons([errors])) == is_wrong
    replays = errors._replace(dims={"gpu": "3", "kind": "pcie_replay"}, rose=10)
    assert rules.reasons([replays]) == [], "few events do not make a rate"
    within = f"{rose} times in {'the last hour' if seconds == 3600 else '1.0 s'}, last at"
    assert not is_wrong or within in report.as_text(judged(errors, collectors=OK))


def test_a_gpu_that_is_lost_after_it_asked_for_less_has_both_reasons():
    assert [severity for severity, _ in judged_gpu("drain_p2p", 0)] == [DEGRADED, NOT_FIT]


@pytest.mark.parametrize(
    ("others", "severity"),
    [
        ([], DEGRADED),
        ([("gpu.fault", "6", "fabric_limited")], DEGRADED),  # the same area: it is one signal
        ([("gpu.fault", "5", "nvlink_down")], DEGRADED),  # another GPU
        ([("gpu.fault", "6", "nvlink_down")], NOT_FIT),
    ],
)
def test_a_gpu_without_a_partition_is_not_fit_only_if_another_signal_agrees(others, severity):
    # Shared NVSwitches give an idle GPU no partition, as IMEX is off on an idle machine.
    signals = [("gpu.fault", "6", "fabric_no_partition"), *others]
    seen = [Seen(metric, {"gpu": gpu, "fault": fault}, 1.0) for metric, gpu, fault in signals]
    (reason,) = [one for one in rules.reasons(seen) if "partition" in one.says]
    assert reason.severity == severity


def test_xid_45_alone_gives_no_reason_and_beside_another_xid_only_the_other_one():
    # Each process that ends by a crash leaves an Xid 45.
    seen = [Seen("gpu.xid", {"gpu": "6", "xid": "45", "action": "see_workflow"}, 9, rose=9.0)]
    assert rules.reasons(seen) == []
    seen.append(Seen("gpu.xid", {"gpu": "6", "xid": "48", "action": "see_workflow"}, 1, rose=1.0))
    assert [one.says for one in rules.reasons(seen)] == ["had Xid 48"]


def test_a_finished_recovery_gives_no_reason():
    seen = [Seen("gpu.state", {"gpu": "6"}, 1), Seen("gpu.recovery_action", {"gpu": "6", "action": "gpu_reset"}, 0)]
    assert rules.reasons(seen) == []
    assert [*rules.fine(seen, [], ())] == ["1 GPU"]


def test_every_kind_of_event_but_an_applications_has_a_rule():
    from chipwatch.collectors.kernel import KINDS

    kinds = {word for rule in RULES if rule.metric == "kernel.events" for word in rule.only["kind"]}
    assert {*KINDS} - kinds == {"xid_app", "oom_kill", "nccl_segfault", "aer_corrected", "amd_aca", "peermem"}


def recent():
    return EventHistory([], born=AT)


def test_rises_count_for_an_hour_and_several_in_one_minute_count_once():
    watch = recent()
    watch.take([DOWNED.point(AT, 7, PORT, start_time=1)], AT)
    assert watch.series(AT) == [Seen("rdma.link.downed", dict(PORT), 7, 0)]
    later = AT + 10 * S
    watch.take([DOWNED.point(later, 9, PORT, start_time=1)], later)
    watch.take([DOWNED.point(later + S, 10, PORT, start_time=1)], later + S)
    assert watch.series(later + S) == [Seen("rdma.link.downed", dict(PORT), 10, 3, later + S)]
    for second in range(0, 7200, 30):
        at = later + second * S
        watch.take([DOWNED.point(at, 10, PORT, start_time=1)], at)
    assert watch.series(at) == [Seen("rdma.link.downed", dict(PORT), 10, 0)]


def test_endless_events_count_for_the_last_hour():
    watch = recent()
    for second in range(3 * 3600):
        at = AT + second * S
        watch.take([DOWNED.point(at, second, PORT, start_time=1)], at)
    (one,) = watch.series(at)
    assert abs(one.rose - 3600) <= 60
    assert one.last == at


def test_a_reset_does_not_count_as_a_rise():
    watch = recent()
    for at, value, start in ((AT, 500, 1), (AT + S, 3, AT + S)):
        watch.take([DOWNED.point(at, value, PORT, start_time=start)], at)
    assert watch.series(AT + S)[0].rose == 0


def test_a_series_that_ends_says_nothing_of_now_and_their_number_is_limited():
    watch = recent()
    watch.take([STATE.point(AT, 0, Dimensions(gpu=str(n))) for n in range(MAX_SERIES + 5)], AT)
    assert len(watch.series(AT)) == MAX_SERIES
    assert watch.series(AT + STALE) == []


def test_a_rate_that_cannot_be_read_beside_the_state_says_nothing_of_now():
    watch, rate, state = recent(), gauge("rdma.rate", "Gbit/s", "."), gauge("rdma.state", "1", ".")
    watch.take([rate.point(AT, 400, PORT), state.point(AT, 1, PORT)], AT)
    assert [seen.metric for seen in watch.series(AT)] == ["rdma.rate", "rdma.state"]
    watch.take([state.point(AT + S, 1, PORT)], AT + S)
    assert [seen.metric for seen in watch.series(AT + S)] == ["rdma.state"]


def test_an_agent_that_has_stopped_to_read_knows_nothing():
    class Nvidia(Collector):
        metrics = (STATE,)

        def collect(self, at):
            return ()

    sampler = Sampler("nvidia", Nvidia(), Level.BASIC)
    sampler.ok = True
    watch, now = EventHistory([sampler], born=0), time.time_ns()
    watch.take([STATE.point(now, 1, Dimensions(gpu="0"))], now)
    assert watch.answer()["collectors"]["nvidia"]["state"] == "ok"
    watch.take([], now - STALE)
    assert watch.answer()["collectors"]["nvidia"]["state"] == "failing"
    slow = EventHistory([sampler], born=now - STALE, interval=300)
    assert slow.answer()["collectors"]["nvidia"]["state"] == "ok"


def test_what_no_rule_asks_for_is_not_remembered():
    watch = recent()
    watch.take([gauge("cpu.load", "1", "Busy.").point(AT, 5)], AT)
    assert watch.series(AT) == []
    assert "cpu.load" not in WATCHED


def judged(*series, collectors=None, expected=()):
    answer = {"series": [list(one) for one in series], "collectors": collectors or {}}
    return judge(answer, [*expected], NOWHERE, [], "agent")


OK = {"nvidia": {"state": "ok", "error": None, "metrics": ["gpu.state"]}}
HANGS = {"nvidia": {"state": "failing", "error": "no answer", "metrics": ["gpu.state"]}}


def test_no_line_of_a_verdict_is_wider_than_the_terminal(monkeypatch):
    collectors = {"nvidia": {**OK["nvidia"], "is_counted": True, "state": "absent", "error": "NVML lists no GPU " * 5}}
    verdict = judged(collectors=collectors, expected=expect.parse("gpus=8"))
    monkeypatch.setattr(report, "line_width", lambda most: min(most, 60))
    assert 55 < max(map(len, report.as_text(verdict).splitlines())) <= 60


def test_not_fit_goes_before_what_is_not_known_and_that_before_degraded():
    lost = Seen("gpu.state", {"gpu": "0"}, 0)
    narrow = Seen("pcie.links.degraded", {}, 2)
    assert judged(lost, narrow, collectors=HANGS).word == NOT_FIT
    assert [*judged(lost, Seen("gpu.state", {"gpu": "1"}, 1), collectors=OK).fine] == ["1 GPU"]
    hangs = judged(narrow, collectors=HANGS)
    assert hangs.word == UNKNOWN
    assert report.as_line(hangs).startswith("UNKNOWN: nvidia: no answer; PCIe: 2 links")
    assert report.as_text(hangs).splitlines()[:2] == ["UNKNOWN", "DEGRADED"]
    lines = report.as_text(hangs._replace(fine=["all else"])).splitlines()
    assert {
        line.index(words) for line in lines for words in ("2 links", "all else", "nvidia (no") if words in line
    } == {13}
    assert judged(narrow, collectors=OK).word == DEGRADED
    assert judged(collectors=HANGS).word == UNKNOWN
    assert judged(collectors=OK).word == FIT
    assert judged().word == UNKNOWN, "nothing was read"


def test_a_collector_that_hangs_leaves_its_number_open_also_where_it_counted_before():
    seen = [Seen("gpu.state", {"gpu": str(n)}, 1) for n in range(7)]
    asked = expect.parse("gpus=8")
    assert judged(*seen, collectors=OK, expected=asked).word == NOT_FIT
    assert judged(*seen, collectors=HANGS, expected=asked).word == UNKNOWN


def test_the_line_for_programs_begins_with_the_worst_and_stays_one_line():
    verdict = judged(Seen("pcie.links.degraded", {}, 2), Seen("gpu.state", {"gpu": "6\n|x"}, 0), collectors=OK)
    line = report.as_line(verdict)
    assert line.startswith("NOT FIT: gpu 6")
    assert "\n" not in line
    assert "|" not in line
    assert (
        len(report.as_line(judged(*(Seen("gpu.state", {"gpu": str(n)}, 0) for n in range(500)), collectors=OK))) < 700
    )


def test_json_has_the_evidence_of_each_reason():
    verdict = judged(Seen("rdma.link.downed", dict(PORT), 9, 4, AT), collectors=OK)
    told = json.loads(report.as_json(verdict, 0))
    assert told["verdict"] == "degraded"
    (reason,) = told["reasons"]
    assert reason["shown_by"] == {
        "metric": "rdma.link.downed", "dims": dict(PORT), "value": 9, "last_hour": 4, "last": "2027-01-15T08:00:00+00:00",
        "message": None,
    }  # fmt: skip
    assert "4 times in the last hour, last at " in report.as_text(verdict)


def test_no_caller_takes_unknown_for_not_fit():
    for caller, codes in CALLERS.items():
        assert len(codes) == len(VERDICTS)
        assert codes.unknown != codes.not_fit
        assert code_of(NOT_FIT, caller) != 0
        assert code_of_failure(["verdict", f"--for={caller}"]) == codes.unknown
    assert code_of_failure(["verdict", "--for", "slrum"]) == 0
    assert code_of_failure(["verdict", "--for", "slurm", "--job", "nagios"]) == CALLERS["slurm"].unknown
    assert code_of_failure(["verdict", "--fo", "slrum"]) == 0
    assert code_of_failure(["verdict", "--expekt", "gpus=8"]) == 2
    for other in ([], ["status"], ["verdct"], ["dashboard", "--for", "slurm"], ["--", "verdict", "--for", "slurm"]):
        assert code_of_failure(other) is None


def test_where_the_driver_counts_no_gpu_those_that_are_expected_are_missing():
    none = {"nvidia": {"state": "absent", "error": "NVML lists no GPU", "is_counted": True, "metrics": ["gpu.state"]}}
    verdict = judged(collectors=none, expected=expect.parse("gpus=8"))
    assert (verdict.word, verdict.reasons[0].says) == (NOT_FIT, "8 expected, NVML lists no GPU")
    fine = {**none, "rdma": {"state": "ok", "error": None, "metrics": ["rdma.state"]}}
    assert judged(collectors=fine, expected=expect.parse("gpus=0")).word == FIT
    out_of_reach = {"nvidia": {**none["nvidia"], "is_counted": False}}
    assert judged(collectors=out_of_reach, expected=expect.parse("gpus=8")).word == UNKNOWN
    out_of_reach |= {"rdma": fine["rdma"]}
    assert judged(collectors=out_of_reach, expected=expect.parse("gpus=0, nvme = 0")).word == FIT, "none is missing"


@pytest.mark.parametrize("text", expect.known_instances().values())
def test_what_an_instance_has_can_be_expected(text):
    assert expect.parse(text)
