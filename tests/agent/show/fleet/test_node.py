"""The line of a node, by its readings and by the answers of its agent."""

import pytest

from chipwatch.jobs.verdict.rules import Seen
from chipwatch.show.fleet.node import DOUBTED, FleetNode, believed, of_agent, summarise, totals
from chipwatch.show.fleet.screen import COLUMNS, summary


def line(*readings, counts=()):
    told = [("gpu.count", dict(zip(("state", "cause"), key.split(), strict=False)), many) for key, many in counts]
    return summarise("n1", [Seen(*reading) for reading in (*readings, *told)], 5.0)


def gpu(metric, *values):
    return [(metric, {"gpu": str(number)}, value) for number, value in enumerate(values)]


def test_accelerators_are_busy_idle_or_lost():
    readings = [*gpu("gpu.utilization", 90, 0, 30), *gpu("gpu.state", 1, 1, 1, 0), *gpu("gpu.power", 600, 70, 300)]
    node = line(*readings)
    assert (node.gpus, node.busy, node.lost, node.utilization, node.power) == (4, 2, 1, 40, 970)
    assert node.idle == {"idle or free": 1}
    node = line(*readings, counts=[("busy", 1), ("stalled data", 0.8), ("free", 0.2), ("lost", 1), ("unknown", 1)])
    assert (node.gpus, node.busy, node.lost) == (4, 1, 1)
    assert node.idle == {"data": 0.8, "free": 0.2, "not known": 1}
    assert node.idle_most == ("not known", 25)
    assert (node.verdict, node.reason) == ("not fit", "gpu 3 is lost, fails most queries or needs a reset")


def test_a_device_in_parts_counts_once_and_a_neuron_device_by_its_cores():
    parts = [("gpu.utilization", {"gpu": "0", "mig": str(part)}, value) for part, value in enumerate((0, 50))]
    cores = [("neuron.core.utilization", {"neuron_device": "1", "neuron_core": str(core)}, 0) for core in (0, 1)]
    node = line(*parts, *cores)
    assert (node.gpus, node.busy, node.utilization) == (2, 1, 25)


def test_a_gpu_without_a_utilization_beside_others_is_neither_idle_nor_free():
    node = line(*gpu("gpu.state", 1, 1, 1, 0), *gpu("gpu.utilization", 50, 0))
    assert (node.gpus, node.busy, node.lost, node.idle) == (4, 1, 1, {"idle or free": 1, "not known": 1})


def test_what_is_not_on_a_page_is_absent_and_not_zero():
    node = line(("cpu.utilization", {}, 7.0))
    assert (node.cpu, node.gpus) == (7, 0)
    assert (node.busy, node.utilization, node.power, node.delivery, node.verdict) == (None,) * 5


@pytest.mark.parametrize(
    ("metric", "value", "says"),
    [("gpu.utilization", 4000.0, "gpu.utilization is 4000 %"), ("gpu.utilization", -1.0, "gpu.utilization is -1 %"),
     ("gpu.count", -1.0, "gpu.count is -1"), ("gpu.power", 1e9, "gpu.power is 1e+09 W"), ("cpu.utilization", 1e30, "cpu.utilization is 1e+30 %")],
)  # fmt: skip
def test_figures_that_cannot_be_true_are_not_believed(metric, value, says):
    node = line((metric, {"gpu": "0"}, value), *gpu("gpu.state", 1))
    assert (node.word, node.reason, node.gpus, node.power) == ("not believed", says, 0, None)


def test_a_node_with_more_accelerators_than_exist_is_not_believed():
    assert line(*gpu("gpu.state", *[1] * 5000)).reason == "it has 5,000 accelerators"


@pytest.mark.parametrize(
    ("readings", "delivery"),
    [([("agent.spool.oldest", {}, 30.0)], "ok"), ([("agent.spool.oldest", {}, 7300.0)], "points 2 h old"),
     ([("agent.spool.oldest", {}, 0.0), ("agent.sink.dropped", {}, 1204.0)], "1,204 lost"), ([], None)],
)  # fmt: skip
def test_delivery_is_by_the_metrics_of_the_agent(readings, delivery):
    assert line(*readings).delivery == delivery


def test_names_of_jobs_are_short_and_without_control_characters():
    node = line(("job.gpus", {"job": "\x1b[2J" + "x" * 500, "user": "ada"}, 1.0), ("job.gpus", {"job": ""}, 1.0))
    assert node.users == ["ada"]
    assert "\x1b" not in node.jobs[0]
    assert len(node.jobs[0]) < 50


def test_causes_of_idle_time_are_short_and_possible():
    node = line(*gpu("gpu.state", 1), counts=[("stalled \x1b[2J" + "x" * 500, 1.0)])
    assert [cause[:5] for cause in node.idle] == ["\\x1b["]
    assert line(*gpu("gpu.state", 1), counts=[("free", float("inf"))]).word == DOUBTED


def test_a_node_whose_parts_exceed_its_accelerators_is_not_believed_and_left_out_of_sums():
    sane = line(*gpu("gpu.state", *[1] * 8), counts=[("free", 4.0), ("stalled data", 2.0)])
    liar = line(*gpu("gpu.state", *[1] * 8), counts=[("busy", 7), ("stalled data", 592.8)])
    assert (liar.word, liar.gpus, liar.idle) == (DOUBTED, 0, {})
    assert liar.reason == "its agent counts 599.8 accelerators, 8 are read: do two agents send under its name?"
    sums = totals([sane, liar])
    assert (sums["gpus"], sum(sums["idle"].values())) == (8, 8)


def test_a_node_that_two_targets_scrape_counts_once_and_two_agents_with_half_of_it_add_up():
    used = gpu("gpu.utilization", 90, 0, 0, 90)
    two = [("gpu.count", {"state": state, "instance": place}, number) for place in "ab"
           for state, number in (("busy", 2), ("free", 2))]  # fmt: skip
    assert [(node.busy, node.idle) for node in (line(*used, *two), line(*used, *two[:2]))] == [(2, {"free": 2})] * 2
    halves = [("gpu.count", {"state": "busy", "instance": place}, 2) for place in "ab"]
    assert line(*used, *halves).busy == 4


def test_the_parts_of_all_nodes_add_up_to_their_accelerators_whatever_the_pages_tell():
    told = line(*gpu("gpu.utilization", 90, 0, 0, 0, 0), *gpu("gpu.state", 1, 1, 1, 1, 0),
                counts=[("busy", 1), ("held", 1), ("free", 1), ("unknown", 0.5), ("lost", 1)])  # fmt: skip
    basic = line(*gpu("gpu.utilization", 90, 0, 0), *gpu("gpu.state", 1, 1, 1))
    sums = "GPUs 8: busy 2, idle 1 (held 1), lost 1, free 1, idle or free 2, not known 1"
    assert summary([told, basic])[1:] == [sums]


def test_an_xid_on_a_page_is_a_note_unless_an_application_causes_it():
    codes = [("gpu.xid", {"gpu": "3", "xid": code, "action": "x"}, 2.0) for code in ("79", "31", "45")]
    node = line(*gpu("gpu.state", 1), *codes, ("gpu.xid.last", {"gpu": "4"}, 48.0), ("gpu.xid.last", {"gpu": "5"}, 0.0))
    assert (node.verdict, node.reason) == (None, "gpu 3 had Xid 79; gpu 4 had Xid 48; its page does not say when")
    assert node.place < FleetNode("n0", seen=5.0).place
    assert line(("gpu.xid.last", {"gpu": "0"}, 1e300), ("gpu.xid", {}, 1.0)).reason == ""


def test_where_no_utilization_is_known_nobody_counts_the_busy_ones():
    node = line(*gpu("gpu.state", *[1] * 8))
    assert (node.gpus, node.busy, node.idle) == (8, None, {"not known": 8})
    assert COLUMNS[1].cell(node)[0] == "-"


def test_a_line_from_another_machine_has_plain_words():
    given = FleetNode("other", "\x1b", 5.0, "\x1b[1mfit", "\x1b]0;t\x07", 8, 7.0, idle={"\x1bc": 1.0}, jobs=["\x1b"],
                      users=["\x1b"], delivery="\x1b")  # fmt: skip
    node = believed(given, "n1")
    assert node.node == "n1"
    assert repr(given).count("\\x1b") == repr(node).count("\\\\x1b")
    assert (node.gpus, node.busy, node.seen) == (8, 7, 5.0)


@pytest.mark.parametrize(
    "figures",
    [{"gpus": -4}, {"busy": 10**30}, {"idle": {"no_process": 1e308}}, {"power": 1e308}, {"utilization": -1e308},
     {"gpus": 4, "busy": 5}, {"gpus": 4, "lost": 5}, {"gpus": 8, "busy": 6, "lost": 6}, {"jobs": ["x"] * 5000},
     {"idle": {"data": -1.0, "other": 2.0}}, {"gpus": 8, "idle": {"no_process": 8.0, "data": 8.0}},
     {"gpus": 8, "busy": 4, "lost": 1, "idle": {"free": 4.0}}],
    ids=lambda figures: str(figures)[:40],
)  # fmt: skip
def test_a_line_from_another_machine_with_impossible_figures_is_not_believed(figures):
    assert believed(FleetNode("n1", **figures), "n1").verdict == DOUBTED


def test_the_worst_node_is_first():
    nodes = [
        FleetNode("n10", seen=1, verdict="fit"), FleetNode("n9²", seen=1, verdict="fit"),
        FleetNode("idle", seen=1, gpus=8, idle={"data": 3.0}), FleetNode("late", seen=1, delivery="9 lost"),
        FleetNode("low", seen=1, verdict="degraded"), FleetNode("bad", seen=1, verdict="not fit"),
        FleetNode("liar", seen=1, verdict="not believed"), FleetNode("dead", "no answer"),
    ]  # fmt: skip
    order = [node.node for node in sorted(nodes, key=lambda node: node.place)]
    assert order == ["dead", "liar", "bad", "low", "late", "idle", "n9²", "n10"]
    assert totals(nodes)["nodes"] == {
        "fit": 2, "answer": 2, "degraded": 1, "not fit": 1, "not believed": 1, "silent": 1,
    }  # fmt: skip


def test_an_agent_tells_verdict_jobs_idle_devices_and_delivery():
    series = [*gpu("gpu.state", 1, 1, 1, 0), *gpu("gpu.utilization", 90, 0, 0)]
    sink = {"kept": 904, "refused": None, "last_error": "refused", "rejected": {}, "dropped": {}}
    held = {"slices": 1.0, "holders": [{"job": "7"}], "jobs": ["7"], "users": ["ada"], "state": "busy", "cause": ""}
    stalled = {**held, "state": "stalled", "cause": "data"}
    free = {**held, "holders": [], "jobs": [], "users": [], "state": "free"}
    devices = [{"place": {"gpu": str(n)}, **one} for n, one in enumerate((held, stalled, free, free))]
    states = [{"state": "busy"}, {"state": "stalled", "cause": "data"}, {"state": "free"}, {"state": "lost"}]
    answers = {
        "status": {"sinks": {"cloudwatch": sink}},
        "jobs": {"devices": devices, "counts": [{"dims": dims, "gpus": 1.0} for dims in states]},
        "verdict": {"collectors": {"nvidia": {"state": "ok", "error": None, "metrics": []}},
                    "series": [(*one, None, None, "") for one in series]},
    }  # fmt: skip
    node = of_agent("n1", answers, 5.0)
    assert (node.verdict, node.delivery, node.jobs, node.users) == ("not fit", "904 kept", ["7"], ["ada"])
    assert node.idle == {"data": 1, "free": 1}  # a lost device is not free
    answers["verdict"]["series"].pop(3)
    assert of_agent("n1", answers, 5.0).verdict == "fit"


def test_a_list_without_nodes_says_that_none_fits():
    assert summary([]) == ["0 nodes: none has what was asked for"]
