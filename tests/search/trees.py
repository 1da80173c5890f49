"""Readers of /proc, /sys and cgroups, each with a tree of files of which one is changed."""

import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.doubles import sysfs as sysfs_double

from chipwatch.collectors.amd import AmdCollector
from chipwatch.collectors.container import ContainerCollector
from chipwatch.collectors.cpu import CpuCollector
from chipwatch.collectors.disk import DiskCollector
from chipwatch.collectors.hardware import HardwareCollector
from chipwatch.collectors.intel import IntelCollector
from chipwatch.collectors.memory import MemoryCollector
from chipwatch.collectors.network import NetworkCollector
from chipwatch.collectors.neuron import sysfs
from chipwatch.collectors.pressure import PressureCollector
from chipwatch.collectors.rdma import RdmaCollector
from chipwatch.collectors.storage import StorageCollector
from chipwatch.config.identity.dmi import DmiTables
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host.last_values import LastValues

FIXTURES = Path(__file__).parents[1] / "fixtures"
AT = 1_800_000_000_000_000_000
HOST = "vm"
CARD = "sys/class/drm/card0/device"


def targets(stack: ExitStack, folder: Path) -> Iterator[tuple]:
    """Yield name, captures, reader and documented errors of each file that a collector reads."""
    del stack
    root = folder / "host"
    shutil.copytree(FIXTURES / "host" / HOST, root)
    for name, data in _files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    sysfs_double.build(root / "sys", "rdma_mlx5")
    (root / "none").mkdir()
    for collector, files in READ.items():
        config = {"proc": root / "proc", "sys": root / "sys"}
        for name in files:
            yield (
                f"{GROUPS.get(collector, 'procfs')} {name}",
                [(root / name).read_bytes()],
                _spoilt(root / name, _read(collector, config)),
                HOST_ERRORS if collector in HOSTS else (),
            )
    yield "neuron-sysfs errors", [b"0", b"17\n"], _spoilt(root / NEURON / sysfs.REPAIRABLE, lambda: _neuron(root))
    yield (
        "neuron-sysfs power",
        [b"POWER_STATUS_VALID,1800000000,3.5,9.25,7.5\n"],
        _spoilt(root / NEURON / sysfs.POWER, lambda: _neuron(root)),
    )
    for name in ("sys_vendor", "product_name", "board_asset_tag", "bios_version"):
        path = root / "sys/class/dmi/id" / name
        yield f"dmi {name}", [path.read_bytes()], _spoilt(path, lambda: _dmi(root))


PORT = "sys/class/infiniband/mlx5_bond_0/ports/1"
PCIE = "sys/bus/pci/devices/0000:05:00.0"
NEURON = "sys/devices/virtual/neuron_device/neuron0"
CGROUP = "sys/fs/cgroup/box"
READ = {
    CpuCollector: ("proc/stat", "proc/loadavg"),
    MemoryCollector: ("proc/meminfo",),
    DiskCollector: ("proc/diskstats", "proc/self/mountinfo"),
    NetworkCollector: ("proc/net/dev",),
    RdmaCollector: tuple(
        f"{PORT}/{name}" for name in ("state", "rate", "counters/port_xmit_data", "counters/symbol_error")
    ),
    StorageCollector: (
        "proc/1/mountinfo",
        "proc/1/mountstats",
        "sys/class/nvme/nvme0/state",
        "proc/fs/lustre/osc/a/import",
    ),
    HardwareCollector: (
        "sys/class/hwmon/hwmon0/temp1_input",
        "sys/devices/system/edac/mc/mc0/ce_count",
        "sys/class/powercap/intel-rapl:0/energy_uj",
        f"{PCIE}/class",
        f"{PCIE}/aer_dev_fatal",
        f"{PCIE}/current_link_width",
        f"{PCIE}/current_link_speed",
    ),
    PressureCollector: ("proc/pressure/cpu", "proc/pressure/io", "proc/pressure/memory"),
    ContainerCollector: (
        "proc/self/mountinfo",
        "proc/self/cgroup",
        "proc/self/status",
        "proc/stat",
        *(f"{CGROUP}/{path.name}" for path in sorted((FIXTURES / "cgroup/v2").iterdir())),
    ),
    AmdCollector: (
        *(f"{CARD}/{name}" for name in ("gpu_busy_percent", "mem_info_vram_used", "uevent", "power/runtime_status")),
        *(f"{CARD}/{name}" for name in ("ras/umc_err_count", "gpu_metrics")),
        *(f"{CARD}/hwmon/hwmon0/{name}" for name in ("temp1_input", "temp1_label", "power1_average", "pwm1")),
    ),
    IntelCollector: tuple(
        f"sys/class/drm/card1/device/{name}"
        for name in ("hwmon/hwmon1/energy1_input", "hwmon/hwmon1/temp1_input", "uevent")
    ),
}
HOSTS = (CpuCollector, MemoryCollector, DiskCollector, NetworkCollector)
HOST_ERRORS = (OSError,)
"""Text that the kernel never writes ends a reading of these; the sampler counts and logs it."""
GROUPS = {ContainerCollector: "cgroup", AmdCollector: "amd-sysfs", IntelCollector: "intel-sysfs"}


def _files() -> dict[str, bytes]:
    """Return what the captured host lacks: a cgroup, cards, the tables of the firmware."""
    mounts = b"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
    files = {
        "proc/self/mountinfo": mounts,
        "proc/self/cgroup": b"0::/box\n",
        "proc/self/status": b"Name:\tagent\nCpus_allowed_list:\t0-3\n",
        f"{NEURON}/{sysfs.REPAIRABLE}": b"0",
        f"{NEURON}/{sysfs.POWER}": b"POWER_STATUS_VALID,1800000000,3.5,9.25,7.5\n",
        "sys/class/dmi/id/sys_vendor": b"Amazon EC2\n",
        "sys/class/dmi/id/product_name": b"trn1.32xlarge\n",
        "sys/class/dmi/id/board_asset_tag": b"i-0123456789abcdef0\n",
        "sys/class/dmi/id/bios_version": b"1.0\n",
    }
    files |= {f"{CGROUP}/{path.name}": path.read_bytes() for path in (FIXTURES / "cgroup/v2").iterdir()}
    amd = {
        "vendor": b"0x1002\n",
        "uevent": b"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n",
        "power/runtime_status": b"active\n",
        "gpu_busy_percent": b"91\n",
        "mem_busy_percent": b"66\n",
        "mem_info_vram_total": b"12868124672\n",
        "mem_info_vram_used": b"1564491776\n",
        "ras/umc_err_count": b"ue: 0\nce: 3\n",
        "gpu_metrics": struct.pack("<HBB20xQ", 120, 1, 3, 6122129286992),
    }
    amd |= {f"hwmon/hwmon0/{name}": value for name, value in HWMON.items()}
    files |= {f"{CARD}/{name}": data for name, data in amd.items()}
    intel = {"vendor": b"0x8086\n", "uevent": b"DRIVER=xe\nPCI_SLOT_NAME=0000:04:00.0\n"}
    intel |= {"hwmon/hwmon1/energy1_input": b"1234567\n", "hwmon/hwmon1/temp1_input": b"45000\n"}
    files |= {
        "proc/1/mountinfo": b"40 21 0:50 / /A rw - nfs 1.2.3.4:/storage/NFS rw\n21 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
        "proc/1/mountstats": (FIXTURES / "host/mountstats").read_bytes(),
        "proc/fs/lustre/osc/a/import": b"import:\n    target: lustre-OST0000_UUID\n    state: FULL\n",
        "sys/class/nvme/nvme0/state": b"live\n",
        "sys/class/hwmon/hwmon0/temp1_input": b"55000\n",
        "sys/devices/system/edac/mc/mc0/ce_count": b"3\n",
        "sys/class/powercap/intel-rapl:0/energy_uj": b"240422366267\n",
        "sys/class/powercap/intel-rapl:0/max_energy_range_uj": b"262143328850\n",
        f"{PCIE}/class": b"0x030200\n",
        f"{PCIE}/aer_dev_fatal": b"DLP 1\nTOTAL_ERR_FATAL 1\n",
        f"{PCIE}/max_link_width": b"16\n",
        f"{PCIE}/current_link_width": b"16\n",
        f"{PCIE}/current_link_speed": b"16.0 GT/s PCIe\n",
    }
    return files | {f"sys/class/drm/card1/device/{name}": data for name, data in intel.items()}


HWMON = {
    "name": b"amdgpu\n",
    "power1_average": b"41000000\n",
    "power1_cap": b"300000000\n",
    "temp1_input": b"45000\n",
    "temp1_label": b"edge\n",
    "temp2_input": b"47000\n",
    "temp2_label": b"junction\n",
    "freq1_input": b"500000000\n",
    "pwm1": b"51\n",
}


def _spoilt(path: Path, read: Callable[[], Iterable[object]]) -> Callable[[bytes], Iterator[object]]:
    good = path.read_bytes()

    def feed(data: bytes) -> Iterator[object]:
        path.write_bytes(data)
        try:
            yield from read()
        finally:
            path.write_bytes(good)

    return feed


def _read(cls: type, config: dict[str, Path]) -> Callable[[], Iterator[object]]:
    wanted = {name: value for name, value in config.items() if name in cls.Config.__dataclass_fields__}
    if cls is DiskCollector:
        wanted["paths"] = ()
    if cls is ContainerCollector:
        wanted["when"] = "always"
    if cls is IntelCollector:
        wanted["path"] = os.fspath(config["proc"].parent / "none")  # no tools

    def read() -> Iterator[object]:
        collector = cls(cls.Config(**wanted))
        try:
            collector.open(Given())
            for at in (AT, AT + 10**9):
                yield from collector.collect(at)
        except (Unavailable, PartlyCollected):
            pass
        finally:
            collector.close()

    return read


def _neuron(root: Path) -> Iterator[object]:
    devices = sysfs.Devices(root / "sys", LastValues(None, "neuron", root), [].append)
    try:
        yield from devices.points(AT)
    finally:
        devices.close()


def _dmi(root: Path) -> Iterator[object]:
    hardware = DmiTables(root / "sys", {})
    yield from (hardware.is_ec2, hardware.is_google, hardware.is_hidden, hardware.why, *hardware.found)
