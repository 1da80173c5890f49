"""A run logs each change of a GPU once, from the points."""

import pytest

from chipwatch.collectors.nvidia.metrics import WHOLE
from chipwatch.contract.datapoint import Dimensions
from chipwatch.service.device_log import DeviceLog

STATE, RECOVERY, XID = (WHOLE[f"gpu.{name}"] for name in ("state", "recovery_action", "xid"))
AT = 1_800_000_000_000_000_000


class Run:
    """The log of a run, and what it said in the last tick."""

    def __init__(self, caplog):
        self.now, self.caplog = 0.0, caplog
        self.log = DeviceLog(lambda: self.now)
        caplog.set_level("INFO")

    def tick(self, *points, seconds=5):
        self.now += seconds
        self.caplog.clear()
        self.log.take(points, AT)
        return [f"{record.levelname} {record.getMessage()}" for record in self.caplog.records]


@pytest.fixture
def run(caplog):
    return Run(caplog)


def state(value, gpu="3"):
    return STATE.point(AT, value, Dimensions(gpu=gpu))


def recovery(action, value=1, gpu="3"):
    return RECOVERY.point(AT, value, Dimensions(gpu=gpu, action=action))


def xid(code, action, count, gpu="3"):
    return XID.point(AT, count, Dimensions(gpu=gpu, xid=code, action=action), start_time=1)


LOST = (
    "ERROR gpu 3: is lost, fails most queries or needs a reset. "
    "Drain this node, then reset the GPU or restart the machine."
)
NO_LONGER = "INFO gpu 3: no longer is lost, fails most queries or needs a reset"


def test_a_gpu_that_works_is_not_mentioned(run):
    assert [run.tick(state(1), state(1, "4"), recovery("gpu_reset", 0)) for _ in range(3)] == [[], [], []]


def test_a_loss_is_one_line_and_so_is_its_end(run):
    assert run.tick(state(0), state(1, "4")) == [LOST]
    assert run.tick(state(0), state(1, "4")) == []
    assert run.tick() == [], "nothing was read: it may still be lost"
    assert run.tick(state(1)) == [NO_LONGER]
    assert run.tick(state(1)) == []


def test_a_gpu_that_is_lost_again_and_again_is_logged_once_an_hour(run):
    said = [line for n in range(1200) for line in run.tick(state(n % 2), seconds=6)]
    assert sorted(said) == sorted([LOST, NO_LONGER] * 2)


def test_a_recovery_is_one_line_with_its_own_advice_also_where_the_state_is_0(run):
    line = "ERROR gpu 3: asks for a restart of the machine. Drain this node and restart the machine."
    assert run.tick(state(0), recovery("node_reboot")) == [line]
    assert run.tick(state(0), recovery("node_reboot")) == []
    assert run.tick(state(1), recovery("node_reboot", 0)) == ["INFO gpu 3: no longer asks for a restart of the machine"]


def test_a_recovery_under_which_the_gpu_works_on_is_a_warning(run):
    (line,) = run.tick(state(1), recovery("drain_p2p"))
    assert line.startswith("WARNING gpu 3: asks to end its traffic with other GPUs. Start no new jobs")
    assert run.tick(state(0)) == [LOST], "it no longer tells what it asks for"
    over = "INFO gpu 3: no longer asks to end its traffic with other GPUs"
    assert run.tick(state(1), recovery("drain_p2p", 0)) == [over, NO_LONGER]


def test_an_xid_is_one_line_for_each_code_and_hour(run):
    first = xid("79", "restart_machine", 1)
    assert run.tick(first) == ["ERROR gpu 3: had Xid 79. Drain this node and restart the machine."]
    assert run.tick(first) == []
    assert run.tick(xid("79", "restart_machine", 9)) == []
    assert run.tick(first, xid("31", "restart_app", 2)) == [
        "WARNING gpu 3: had Xid 31 (NVIDIA's catalogue: restart_app)"
    ]
    assert run.tick(xid("79", "restart_machine", 9), seconds=3600) == [
        "ERROR gpu 3: had Xid 79. Drain this node and restart the machine."
    ]


def test_each_gpu_has_its_own_lines(run):
    assert [line[:12] for line in run.tick(state(0), state(0, "4"), xid("79", "restart_machine", 1, "4"))] == [
        "ERROR gpu 3:", "ERROR gpu 4:", "ERROR gpu 4:",
    ]  # fmt: skip


def test_points_of_a_plugin_without_our_dimensions_hide_no_trouble(run):
    odd = [metric.point(AT, 1, Dimensions(device="a")) for metric in (STATE, RECOVERY, XID)]
    run.tick(*odd, xid("79", "restart", 0))
    assert any("Xid 79" in line for line in run.tick(*odd, xid("79", "restart", 1)))
