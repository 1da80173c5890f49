import os

import pytest

from chipwatch.collectors.neuron.metrics import ECC_REPAIRABLE, POWER
from chipwatch.collectors.neuron.sysfs import Devices, ultraserver
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.host.last_values import LastValues

EPOCH = 1781370720
AT, BOOT = EPOCH * 10**9 + 30 * 10**9, 1_780_000_000_000_000_000


class Tree:
    """A sysfs after the user guide."""

    def __init__(self, sys):
        self.sys, self.problems = sys, []
        self.kept = LastValues(None, "neuron", sys / "proc")
        self.kept.start_time = BOOT
        self.devices = Devices(sys, self.kept, self.problems.append)

    def write(self, device, power=None, repairable=None):
        folder = self.sys / f"devices/virtual/neuron_device/neuron{device}/stats"
        for name, text in (("power/utilization", power), ("hardware/mem_ecc_repairable_uncorrected", repairable)):
            if text is not None:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)

    def read(self, at=AT):
        return list(self.devices.points(at))


@pytest.fixture
def tree(tmp_path):
    made = Tree(tmp_path)
    yield made
    made.devices.close()


def dims(index):
    return Dimensions(neuron_device=str(index))


def test_power_is_the_mean_of_the_last_minute_and_ecc_a_counter_since_the_boot(tree):
    for device in range(12):
        tree.write(device, f"POWER_STATUS_VALID,{EPOCH},1.50,3.50,{device}.25\n", f"{device}\n")
    found = tree.read()
    assert len(found) == 24
    assert {*found} == {
        point
        for n in range(12)
        for point in (POWER.point(AT, n + 0.25, dims(n)), ECC_REPAIRABLE.point(AT, n, dims(n), start_time=BOOT))
    }
    assert tree.problems == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"POWER_STATUS_NO_DATA,{EPOCH},0.00,0.00,0.00\n", None),
        (f"POWER_STATUS_INVALID,{EPOCH},0.00,0.00,0.00\n", "stats/power/utilization: POWER_STATUS_INVALID"),
        (f"POWER_STATUS_VALID_NOT,{EPOCH},0,0,1\n", "stats/power/utilization: POWER_STATUS_VALID_NOT"),
        (f"POWER_STATUS_VALID,{EPOCH},0,0\n", "stats/power/utilization: expected STATUS,epoch,minimum,maximum,mean"),
        (f"POWER_STATUS_VALID,{EPOCH},0,0,x\n", "stats/power/utilization: expected STATUS,epoch,minimum,maximum,mean"),
        ("", "stats/power/utilization: "),
        (f"POWER_STATUS_VALID,{EPOCH},0,0,nan\n", None),
        (f"POWER_STATUS_VALID,{EPOCH},0,0,-1\n", None),
        (f"POWER_STATUS_VALID,{EPOCH},0,0,100.01\n", None),
        (f"POWER_STATUS_VALID,{EPOCH - 300},0,0,5\n", None),
    ],
)
def test_invalid_or_old_power_is_absent(tree, text, problem):
    tree.write(0, text)
    assert tree.read() == []
    assert tree.problems == ([problem] if problem else [])


@pytest.mark.parametrize("text", ["", "x\n", "-1\n", "9" * 30])
def test_an_invalid_count_is_absent(tree, text):
    tree.write(0, repairable=text)
    assert tree.read() == []
    assert tree.problems == ["stats/hardware/mem_ecc_repairable_uncorrected: not a count"]


def test_an_older_driver_has_some_of_the_files(tree):
    tree.write(0, repairable="0\n")
    tree.write(1, f"POWER_STATUS_VALID,{EPOCH},1,2,1.5\n")
    (tree.sys / "devices/virtual/neuron_device/neuron2").mkdir()
    (tree.sys / "devices/virtual/neuron_device/neuron_x").mkdir()
    assert [(p.metric, p.value) for p in tree.read()] == [(ECC_REPAIRABLE, 0), (POWER, 1.5)]


def test_devices_that_appear_later_are_found(tree):
    assert tree.read() == []
    tree.write(3, repairable="1\n")
    assert tree.read() == [ECC_REPAIRABLE.point(AT, 1, dims(3), start_time=BOOT)]
    assert tree.problems == []


def test_a_device_that_vanished_is_reported_and_searched_again(tree):
    tree.write(0, repairable="1\n")
    tree.write(1, repairable="2\n")
    assert len(tree.read()) == 2
    file = tree.devices._devices[0]._repairable
    os.dup2(os.open(tree.sys, os.O_RDONLY), file._fd)  # as good as a driver that is gone: each read fails
    assert [p.dims for p in tree.read()] == [dims(1)]
    assert tree.problems == [f"a device in {tree.sys}/devices/virtual/neuron_device cannot be read: Is a directory"]
    assert len(tree.read()) == 2


@pytest.mark.parametrize(
    ("power", "repairable"),
    [
        ("power/utilization", "hardware/mem_ecc_repairable_uncorrected"),
        ("stats/device/power/utilization", "stats/ecc/mem_ecc_repairable_uncorrected/total"),
        ("a/b/c/d/power/utilization", "mem_ecc_repairable_uncorrected"),
    ],
)
def test_files_that_a_newer_driver_moved_are_found_by_their_names(tree, power, repairable):
    folder = tree.sys / "devices/virtual/neuron_device/neuron0"
    (tree.sys / "module/neuron").mkdir(parents=True)
    (tree.sys / "module/neuron/version").write_text("2.31.7.0\n")
    for name, content in ((power, f"POWER_STATUS_VALID,{EPOCH},1,2,1.5\n"), (repairable, "4\n")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    assert [(p.metric, p.value) for p in tree.read()] == [(POWER, 1.5), (ECC_REPAIRABLE, 4)]
    assert tree.problems == []


def test_the_former_path_counts_where_both_are_and_files_of_cores_and_links_never_do(tree):
    tree.write(0, f"POWER_STATUS_VALID,{EPOCH},1,2,1.5\n")
    folder = tree.sys / "devices/virtual/neuron_device/neuron0"
    for name in ("aa/power", "neuron_core0/stats/power", "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "utilization").write_text(f"POWER_STATUS_VALID,{EPOCH},1,2,99\n")
    (folder / "neuron_core0/mem_ecc_repairable_uncorrected").write_text("7\n")
    (folder / "subsystem").symlink_to(tree.sys)
    assert [(p.metric, p.value) for p in tree.read()] == [(POWER, 1.5)]


def test_what_a_driver_that_moved_its_files_lacks_is_reported_once(tree):
    (tree.sys / "devices/virtual/neuron_device/neuron0").mkdir(parents=True)
    (tree.sys / "module/neuron").mkdir(parents=True)
    for version, problems in (("2.30.2.0", 0), ("2.31.7.0", 2), ("3.0", 2), ("unknown", 0)):
        (tree.sys / "module/neuron/version").write_text(f"{version}\n")
        tree.problems.clear()
        tree.devices.close()
        assert tree.read() == tree.read() == []
        assert len(tree.problems) == problems
        assert all("and no file of that name elsewhere" in problem for problem in tree.problems)


def test_errors_of_a_driver_that_was_loaded_again_have_a_newer_start(tree):
    tree.write(0, repairable="7\n")
    assert [(p.value, p.start_time) for p in tree.read(AT)] == [(7, BOOT)]
    tree.kept.save(AT)
    tree.devices.close()
    tree.write(0, repairable="2\n")
    assert [(p.value, p.start_time) for p in tree.read(AT + 10**9)] == [(2, AT + 10**9)]


# Files of driver 2.27, neuron_sysfs_metrics.c and v3/neuron_pelect.c: tests/fixtures/SOURCES.neuron.txt


def put(tree, path, text):
    (tree.sys / path).parent.mkdir(parents=True, exist_ok=True)
    (tree.sys / path).write_text(text)


def everything(tree):
    return Devices(tree.sys, tree.kept, tree.problems.append, Level.ALL)


def test_the_hardware_errors_of_a_devices_cores_are_added_up_by_kind_and_its_links_counted(tree):
    folder = "devices/virtual/neuron_device/neuron3"
    put(tree, f"{folder}/connected_devices", "0, 2, 7, 15\n")
    for core, count in enumerate((4, 0)):
        put(tree, f"{folder}/neuron_core{core}/stats/status/hw_hbm_ue_error/total", f"{count}\n")
    devices = everything(tree)
    assert [(p.metric.name, p.value, p.dims.get("error")) for p in devices.points(AT)] == [
        ("neuron.device.links", 4, None), ("neuron.device.errors", 0, "hbm"),
    ]  # fmt: skip
    put(tree, f"{folder}/neuron_core1/stats/status/hw_hbm_ue_error/total", "2\n")
    (_, errors) = devices.points(AT + 10 * 10**9)
    assert errors.value == 2
    assert list(devices.points(AT + 60 * 10**9)) == []
    assert len(list(devices.points(AT + 71 * 10**9))) == 2
    assert tree.problems == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ("", None)),
        ({"server_id_4": "1a2b3c4d5e6f7788", "node_id_4": "2"}, ("1a2b3c4d5e6f7788", 2)),
        ({"server_id_4": "0000000000000000", "node_id_4": "-1"}, ("", None)),
        *(
            ({"server_id_4": "0123abcd", "node_id_4": odd}, ("", None))
            for odd in ("9" * 5000, "\u0663", "-1", "", "busy")
        ),
        (
            {"server_id_4": "0000000000000000", "node_id_4": "-1", "server_id_2": "00000000000000ab", "node_id_2": "0"},
            ("00000000000000ab", 0),
        ),
    ],
)
def test_the_ultraserver_is_the_one_that_the_driver_has_joined(tree, files, expected):
    for name, text in files.items():
        put(tree, f"class/neuron_device/{name}", f"{text}\n")
    assert ultraserver(tree.sys) == expected
    put(tree, "devices/virtual/neuron_device/neuron0/connected_devices", "\n")
    nodes = [p.value for p in everything(tree).points(AT) if p.metric.name == "neuron.ultraserver.node"]
    assert nodes == ([expected[1]] if expected[0] else [])
