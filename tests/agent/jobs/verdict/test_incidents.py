import pytest

from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.jobs.verdict.events import SETTLED, EventHistory

AT, S = 1_795_168_805_000_000_000, 10**9
XID = counter("gpu.xid", "{error}", "X.", dims=("gpu", "xid", "action"))
KERNEL = counter("kernel.events", "{event}", "K.", dims=("kind",))
STATE = gauge("gpu.state", "1", "S.", dims=("gpu",))
RECOVERY = gauge("gpu.recovery_action", "1", "R.", dims=("gpu", "action"))
JOBS = gauge("job.gpus", "{gpu}", "J.", dims=("job",))
KILLS = counter("job.oom_kills", "{kill}", "K.", dims=("job",))
READ_ONLY = gauge("disk.read_only", "1", "R.", dims=("path",))


def found(*ticks, born=AT):
    history, events = EventHistory([], born), []
    for n, tick in enumerate(ticks):
        history.take(tick, tick[0].at if tick else born + n)
        events += history.begun
    return [(failure.kind, failure.text, failure.job) for failure, _ in events]


def xid(at, value, number="79", action="restart_machine", start=AT - S):
    return XID.point(at, value, Dimensions(gpu="6", xid=number, action=action), start_time=start)


def test_an_xid_that_was_there_before_does_not_count_and_its_rise_does():
    assert found([xid(AT, 3)], [xid(AT + S, 3)]) == []
    assert found([xid(AT, 3)], [xid(AT + S, 4)]) == [("xid", "gpu 6 had Xid 79", "")]


def test_an_xid_that_is_first_seen_later_is_an_event_with_the_job():
    jobs = JOBS.point(AT + S, 4.0, Dimensions(job="41337"))
    assert found([], [xid(AT + S, 1, start=AT), jobs]) == [("xid", "gpu 6 had Xid 79", "41337")]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("xid_app", ["xid"]),
        ("gpu_lost", ["gpu-lost"]),
        ("oom_kill", ["oom"]),
        ("gpu_init", ["not-fit"]),
        ("nfs", []),
        ("aer_corrected", []),
    ],
)
def test_fatal_messages_of_the_kernel_are_events(kind, expected):
    tick = [KERNEL.point(AT + S, 1.0, Dimensions(kind=kind), start_time=AT)]
    assert [cause for cause, *_ in found([], tick)] == expected


def test_a_gpu_that_is_lost_is_an_event_once():
    lost = [[STATE.point(AT + n * S, float(n < 2), Dimensions(gpu="6"))] for n in range(5)]
    assert found(*lost) == [("gpu-lost", "gpu 6 is lost, fails most queries or needs a reset", "")]


def test_a_fault_that_is_there_at_the_start_does_not_count_but_a_later_one_does():
    def fault(at):
        return [READ_ONLY.point(at, 1.0, Dimensions(path="/"))]

    assert found(fault(AT)) == []
    assert found(fault(AT + SETTLED)) == [("not-fit", "/ is read-only", "")]


def test_a_kill_for_lack_of_memory_names_its_job():
    ticks = [[KILLS.point(AT + n * S, float(n), Dimensions(job="7"), start_time=AT)] for n in range(2)]
    assert found(*ticks) == [("oom", "a process was killed for lack of memory", "7")]


def test_an_application_has_an_incident_and_the_machine_also_a_failure():
    history = EventHistory([], AT - S, past="failures.json")
    history.take([xid(AT, 1, "31", "restart_app"), xid(AT, 1)], AT)
    assert [(failure.text, file) for failure, file in history.begun] == [
        ("gpu 6 had Xid 79", "failures.json"), ("gpu 6 had Xid 31", None),
    ]  # fmt: skip


def gpu(metric=STATE, value=0.0, **dims):
    return metric.point(AT, value, Dimensions(dims))


LOST = "is lost, fails most queries or needs a reset. Drain this node, then reset the GPU or restart the machine."


@pytest.mark.parametrize(("tick", "line"), [
    ([gpu(gpu="3")], f"ERROR gpu 3: {LOST}"),
    ([gpu(gpu="3"), gpu(RECOVERY, 1.0, gpu="3", action="node_reboot")],
     "ERROR gpu 3: asks for a restart of the machine. Drain this node and restart the machine."),
    ([xid(AT, 1)], "ERROR gpu 6: had Xid 79. Drain this node and restart the machine."),
    ([xid(AT, 1, "31", "restart_app", AT)], "WARNING gpu 6: had Xid 31. NVIDIA's catalogue: restart_app."),
    ([gpu(device="a")], f"ERROR gpu ?: {LOST}"),
])  # fmt: skip
def test_a_fault_of_a_gpu_is_one_line_an_hour_also_one_that_is_there_at_the_start(tick, line, caplog):
    history = EventHistory([], AT - S)
    for n, is_well in enumerate((0, 0, 1, 0)):  # it stays, ends and comes again
        values = (point.value if point.start_time else abs(is_well - point.value) for point in tick)
        history.take(
            [point._replace(value=value, at=AT + n) for point, value in zip(tick, values, strict=True)], AT + n
        )
    assert [f"{record.levelname} {record.getMessage()}" for record in caplog.records] == [line]
