"""`chipwatch check --capture`: what it keeps, what it masks, and that its file replays."""

import json
import stat
from pathlib import Path

import pytest
from tests.doubles import sysfs
from tests.doubles.nvml import replay
from tests.doubles.nvml.driver import LIBRARY, VARIABLE, CannotBuild, Driver, Loaded, build

from chipwatch.collectors.amd import AmdCollector
from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.commands.capture import Mask, plain
from chipwatch.contract.plugin import Given
from chipwatch.host import nvml

SECOND = 10**9
UUID = "GPU-8f6a1b2c-0d3e-4f50-8a9b-0123456789ab"
SERIAL = "1a2b3c4d5e6f7788"
CARD = {
    "uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n",
    "vendor": "0x1002\n",
    "unique_id": f"{SERIAL}\n",
    "gpu_busy_percent": "94\n",
    "mem_info_vram_total": "206141652992\n",
    "mem_info_vram_used": "123456789012\n",
    "hwmon/hwmon3/temp1_input": "61000\n",
    "hwmon/hwmon3/temp1_label": "edge\n",
    "hwmon/hwmon3/name": "amdgpu\n",
}


def points(collector, clock, ticks=2):
    """Return what each tick reads, by name and dimensions."""
    if isinstance(collector, NvidiaCollector):
        collector._clock = lambda: clock[0]
    collector.open(Given())
    read = []
    for _ in range(ticks):
        clock[0] += SECOND
        read.append(
            [(point.metric.name, point.dims.items_sorted, point.value) for point in collector.collect(clock[0])]
        )
    collector.close()
    return read


@pytest.fixture
def machine(tmp_path):
    """Folders of a machine with two GPUs of NVIDIA, by a fake driver, and a card of AMD."""
    try:
        library = build(tmp_path)
    except CannotBuild as reason:
        pytest.skip(str(reason))
    fake = Driver(tmp_path, "gb300", 2)
    fake.gpus[0]["uuid"] = UUID
    fake.write()
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: 570.124.06\n")
    (tmp_path / "proc/1").mkdir()
    (tmp_path / "proc/1/cmdline").write_text("train --token=hunter2")
    device = tmp_path / "sys/devices/pci0000:00/0000:03:00.0"
    for name, content in CARD.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(content)
    (tmp_path / "sys/class/drm/card0").mkdir(parents=True)
    (tmp_path / "sys/class/drm/card0/device").symlink_to("../../../devices/pci0000:00/0000:03:00.0")
    return {"LD_LIBRARY_PATH": str(library.parent), VARIABLE: str(fake.path)}


@pytest.fixture
def captured(agent, machine, tmp_path):
    """The file that the real command writes."""
    file = tmp_path / "capture.json"
    places = ["--proc", tmp_path / "proc", "--sys", tmp_path / "sys", "--root", tmp_path]
    words = ["check", "--collector", "nvidia,amd", "--level", "all", *places, "--capture", file]
    done = agent.run(*words, env=machine)
    assert f"capture    {file}: read it before you send it" in done.stdout, done.stderr
    return file


def test_a_capture_of_nvml_replays_with_equal_points(captured, machine, tmp_path, monkeypatch):
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "there").mkdir()
    library = replay.load(captured, tmp_path / "there")
    config = NvidiaCollector.Config(proc=tmp_path / "there/proc", sys=tmp_path / "there/sys", root=tmp_path / "there")
    monkeypatch.setattr(nvml, "functions", nvml.Functions())
    monkeypatch.setattr(nvml, "library", library)
    replayed = points(NvidiaCollector(config), [5 * SECOND])
    monkeypatch.setattr(nvml, "functions", nvml.Functions())
    monkeypatch.setattr(nvml, "library", None)
    fake = Loaded(Path(machine["LD_LIBRARY_PATH"]) / LIBRARY, tmp_path, "gb300", 2)
    fake.gpus[0]["uuid"] = UUID
    fake.tell()
    read = points(NvidiaCollector(config), [5 * SECOND])
    assert library.unknown == []
    masked = [[row for row in tick if row[0] != "gpu.fabric"] for tick in read]
    assert [[row for row in tick if row[0] != "gpu.fabric"] for tick in replayed] == masked
    assert len(masked[1]) > 100


def test_files_of_a_capture_replay_with_equal_points(captured, tmp_path):
    replay.load(captured, tmp_path / "there")

    def of(folder):
        return points(AmdCollector(AmdCollector.Config(sys=folder / "sys", proc=folder / "proc")), [0])

    read = of(tmp_path)
    assert of(tmp_path / "there") == read
    assert ("gpu.memory.used", 123456789012) in {(name, value) for name, _, value in read[1]}


def test_a_capture_has_no_identifier_and_no_command_line(captured):
    text = captured.read_text()
    for secret in (UUID, UUID[4:], UUID.replace("-", ""), SERIAL, "hunter2", "cmdline"):
        assert secret not in text
    calls = json.loads(text)["nvml"]
    uuids = [call["answer"][1] for call in calls if call["call"] == "nvmlDeviceGetUUID"]
    assert len({*uuids}) == 2
    assert all(uuid.startswith("GPU-") and len(uuid) == len(UUID) for uuid in uuids)
    assert stat.S_IMODE(captured.stat().st_mode) == 0o600
    fabric = [call["answer"][1] for call in calls if call["call"] == "nvmlDeviceGetGpuFabricInfoV"]
    assert fabric
    assert not [data for data in fabric if "00000000000000000000000000000001" in data]


def test_equal_identifiers_have_equal_masks_and_numbers_stay():
    mask = Mask({"node-7": "<host>"})
    text = f"{UUID} {UUID} 02:42:ac:11:00:02 123456789012 18446744073709551615 node-7 node-71"
    first, second, address, *rest = mask.text(text).split()
    assert first == second != UUID
    assert address != "02:42:ac:11:00:02"
    assert rest == ["123456789012", "18446744073709551615", "<host>", "node-71"]
    assert mask.identifier("0123456789").isdecimal()
    assert Mask().text(UUID) != first


def test_a_capture_does_not_replace_a_file(here, tmp_path):
    (tmp_path / "there.json").write_text("mine")
    done = here("check", "--capture", tmp_path / "there.json")
    assert (done.returncode, "it exists; name a new file" in done.stderr) == (2, True)


def test_a_serial_number_of_one_file_is_replaced_in_all_and_a_secret_in_a_text_is_left_out(agent, machine, tmp_path):
    serial, file = "1562821083900422", tmp_path / "capture.json"
    device = tmp_path / "sys/devices/pci0000:00/0000:03:00.0"
    (device / "unique_id").write_text(f"{serial}\n")
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/class/dmi/id/product_serial").write_text("S7XK-00219\n")
    note = f"NOTE=board\n{serial}, of {serial}0\nMACHINE=S7XK-00219\nserial number: QX-7709\npassword=hunter22\nMODALIAS=pci:v00001002\n"
    (device / "uevent").write_text(CARD["uevent"] + note)
    (device / "hwmon/hwmon3/temp1_label").write_bytes(b"\xffedge " + serial.encode())
    places = ["--proc", tmp_path / "proc", "--sys", tmp_path / "sys", "--root", tmp_path]
    agent.run("check", "--collector", "amd", "--level", "all", *places, "--capture", file, env=machine)
    files = {name.rpartition("/")[2]: content for name, content in json.loads(file.read_text())["files"].items()}
    masked = files["uevent"].partition("NOTE=board\n")[2].partition(",")[0]
    assert (len(masked), masked.isdecimal(), masked == serial) == (16, True, False)
    assert files["uevent"].startswith(f"{CARD['uevent']}NOTE=board\n{masked}, of {serial}0\nMACHINE=")
    assert files["uevent"].endswith("\npassword=...\nMODALIAS=pci:v00001002\n")
    assert bytes.fromhex(files["temp1_label"]["hex"]) == b"\xffedge " + masked.encode()
    for secret in (f"{serial},", f"{serial}\\", serial.encode().hex(), "QX-7709", "hunter22", "S7XK-00219"):
        assert secret not in file.read_text()


def test_of_many_identifiers_the_first_five_hundred_are_replaced_wherever_they_occur():
    mask = Mask()
    for number in range(3000):
        mask.identifier(f"serial{number:06}")
    seventh, last, other = mask.everywhere("serial000007 serial000499 serial000007x").split()
    assert (seventh == "serial000007", last == "serial000499", other) == (False, False, "serial000007x")
    assert mask.everywhere("serial002999") == "serial002999", "more are not kept"
    assert mask.everywhere("0000000000 ffffffff") == "0000000000 ffffffff"


def test_a_handle_is_named_by_its_first_use():
    handles = {}
    first, second = nvml.c_void_p(7_000_000), nvml.c_void_p(9)
    assert [plain("f", handle, handles) for handle in (first, second, first)] == [
        {"handle": number} for number in (0, 1, 0)
    ]


def test_a_capture_has_no_address_in_the_name_of_a_device_and_no_cgroup(agent, machine, tmp_path):
    guid, colons = "525400c0fe123455", "5254:00c0:fe12:3455"
    pod, file = "0a1b2c3d_1234_5678_9abc_def012345678", tmp_path / "capture.json"
    sysfs.build(tmp_path / "sys", "rdma_efa")
    ports = next((tmp_path / "sys/class/infiniband").iterdir())
    ports.rename(ports.with_name(f"rocex{guid}"))
    sysfs.write(tmp_path / f"sys/class/infiniband/rocex{guid}/node_guid", colons)
    box = f"kubepods.slice/kubepods-pod{pod}.slice"
    sysfs.write(tmp_path / f"sys/fs/cgroup/{box}/memory.current", "5")
    sysfs.write(tmp_path / "sys/fs/cgroup/system.slice/backup@customer.service/cgroup.procs", "1")
    sysfs.write(tmp_path / "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    sysfs.write(tmp_path / "proc/self/cgroup", f"0::/{box}")
    places = ["--proc", tmp_path / "proc", "--sys", tmp_path / "sys", "--root", tmp_path]
    words = ["check", "--collector", "rdma,container,jobs", "--level", "all", *places, "--capture", file]
    agent.run(*words, env=machine)
    text = file.read_text()
    assert "class/infiniband/rocex" in text
    for secret in (guid, colons, pod, "customer", "fs/cgroup"):
        assert secret not in text
    *masked, number, slot = (
        Mask().path(f"net/enx0242ac110002 fe80:0000:0000:0000:{colons} 0xffffffffffff 0000:03:00.0").split()
    )
    assert (number, slot) == ("0xffffffffffff", "0000:03:00.0")
    assert not [word for word in masked if "0242ac110002" in word or colons in word]
