"""
Reads throttling, links, errors and partitions of an AMD chip; docs/decisions/0072-partitions-of-amd.md.

The use of chips by processes is read from fdinfo and the compute driver (KFD).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from chipwatch.collectors.amd import card as m
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.host import gpu_metrics
from chipwatch.host.counters import Counters
from chipwatch.host.drm_clients import DrmClient, Engine, TreeClients, size
from chipwatch.host.process_tree import Where
from chipwatch.host.procfs import number, text

MODES: Final = {"DPX": 2, "TPX": 3, "QPX": 4}
"""Mode -> number of partitions; the mode CPX has one for each chiplet."""
REASONS: Final = {
    "prochot": "prochot", "ppt": "power", "socket": "thermal", "regulator": "thermal_regulator",
    "hbm": "thermal_memory",
}  # fmt: skip
"""
Field of the table -> reason of throttling.

In amdsmi_violation_status_t of amdsmi 7.0.2 they are prochot_thrm, ppt_pwr (PVIOL), socket_thrm (TVIOL), vr_thrm and
hbm_thrm.
"""
HELD: Final = {"below_power": "power", "below_heat": "thermal", "idle": "low_utilization", "below": "total"}
"""The same for chiplets: gfx_clk_below_host_limit_{pwr,thm,total} and low_utilization of that struct."""
ERRORS: Final = {
    "recoveries": "pcie_recovery", "rollovers": "pcie_replay_rollover", "naks_sent": "pcie_nak_sent",
    "naks_received": "pcie_nak_received",
}  # fmt: skip
KILOBYTE: Final = 1024
"""Bytes of the "KB" that the tables count: AMD's tools also call MiB "MB"."""
Series = tuple[Metric, Dimensions]

HEADER: Final = struct.Struct("<HBB")
"""
Header of amdgpu's binary table gpu_metrics: size, format, revision.

The layouts below are gpu_metrics_v1_* of kgd_pp_interface.h (Linux; https://github.com/ROCm/amdgpu for 1.6 to 1.9).
A virtual MI300X has 1150 bytes in format 1.9 with driver 6.16.13, and 1664 in 1.6 with driver 6.10.5, as they say.
"""
ONES: Final = {"H": 0xFFFF, "I": 0xFFFFFFFF, "Q": 0xFFFFFFFFFFFFFFFF}
"""Type -> the value with all bits set, which means: not available."""
LIMITS: Final = "counter:I prochot:I ppt:I socket:I regulator:I hbm:I I"
PCIE: Final = "4H 2I 2Q recoveries:Q replays:Q rollovers:Q"
XGMI: Final = "naks_sent:I naks_received:I read:8Q write:8Q"
END: Final = "Q 8H 4H 4H 4H H partitions:H"
LAYOUTS: Final[Mapping[int, tuple[str, str]]] = {
    1: ("10H energy:Q", ""),
    2: ("10H energy:Q", ""),
    3: ("10H energy:Q", ""),
    4: (f"10H energy:Q Q 2I {PCIE} read:8Q write:8Q Q 21H H", ""),
    5: (f"42H energy:Q Q 2I {PCIE} {XGMI} Q 21H H", ""),
    6: (f"6H energy:Q Q {LIMITS} {PCIE} {XGMI} {END}", "busy:8I 32H 4H 8Q"),
    7: (f"6H Q energy:Q Q {LIMITS} {PCIE} {XGMI} up:8H H {END}", "busy:8I 32H 4H 8Q below:8Q"),
    8: (
        f"6H Q energy:Q Q {LIMITS} {PCIE} {XGMI} up:8H H {END}",
        "busy:8I 40H 4H 8Q below_power:8Q below_heat:8Q idle:8Q below:8Q",
    ),
}
"""Revision of format 1 -> fields of the chip, and of each of eight partitions. Fields without a name are skipped."""
MOST_PARTITIONS: Final = 8
CHIPLETS: Final = 8
"""Most chiplets of a partition, and most links of XGMI."""
FIXED: Final = 4
"""First revision whose tables must be as long as their layout: Linux once had another layout as revision 1.6."""
ATTRIBUTES: Final = {
    7: "energy", 9: "counter", 10: "prochot", 11: "ppt", 12: "socket", 13: "regulator", 14: "hbm", 24: "recoveries",
    25: "replays", 26: "rollovers", 27: "naks_sent", 28: "naks_received", 29: "read", 30: "write", 31: "up",
    38: "partitions", 40: "busy", 44: "below_power", 45: "below_heat", 46: "idle", 47: "below",
}  # fmt: skip
"""amdgpu_metrics_attr_id of format 1.9 -> field. Numbers above 48 differ between drivers, so they are not read."""
TYPES: Final = "BbHhIiQq"
"""Codes of the module struct, in the order of amdgpu_metrics_attr_type."""
TableFields = Mapping[str, list[int | None]]
"""Field -> its values; None is not available. Chiplets are in the order of partitions, equally many in each."""


def parse_table(data: bytes) -> TableFields:
    """Parse a table; return {} if its format is unknown. Raise struct.error if it ends early."""
    size, form, revision = HEADER.unpack_from(data)
    if (form, revision) == (1, 9):
        return _attributes(data)
    if form != 1 or revision not in LAYOUTS:
        return {}
    whole, part = (_layout(LAYOUTS[revision], parts) for parts in (0, MOST_PARTITIONS))
    layout = part if size >= part[0].size else whole
    if revision >= FIXED and size != layout[0].size:
        return {}
    unpacked = layout[0].unpack_from(data)
    values: dict[str, list[int | None]] = {}
    for name, code, start, count in layout[1]:
        values.setdefault(name, []).extend(_known(code, unpacked[start : start + count]))
    parts = values.get("partitions", [None])[0] or 1
    return {name: known[: max(1, parts) * CHIPLETS] for name, known in values.items()}


@cache
def _layout(fields: tuple[str, str], parts: int) -> tuple[struct.Struct, list[tuple[str, str, int, int]]]:
    """Return the layout in native alignment, and (name, type, index, count) of each named field."""
    places, start, codes = [], 3, "HBB"
    for name, count, code in re.findall(r"(?:(\w+):)?(\d*)(\w)", " ".join([fields[0], *[f"0Q {fields[1]}"] * parts])):
        number = int(count or 1)  # 0Q aligns the start of a partition as C does
        if name:
            places.append((name, code, start, number))
        start, codes = start + number, codes + f"{number}{code}"
    return struct.Struct(f"@{codes}{'I0Q' if parts and fields[1] else '0Q'}"), places


def _attributes(data: bytes) -> TableFields:
    values: dict[str, list[int | None]] = {}
    (count,) = struct.unpack_from("<i", data, HEADER.size)
    place = HEADER.size + 4
    for _ in range(count):
        (encoding,) = struct.unpack_from("<Q", data, place)
        code, number = TYPES[encoding >> 20 & 7], max(1, encoding & 0x3FF)
        packed = struct.Struct(f"<{number}{code}")
        name = ATTRIBUTES.get(encoding >> 10 & 0x3FF)
        if name:
            values[name] = _known(code, packed.unpack_from(data, place + 8))
        place += 8 + packed.size
    return values


def _known(code: str, values: tuple[int, ...]) -> list[int | None]:
    return [None if value == ONES.get(code) else value for value in values]


class Chip:
    """The chip of one card: its modes, and its counters from reading to reading."""

    def __init__(self, device: Path) -> None:
        self._device, self.parse_table = device, parse_table
        self.read_modes()
        self._counters = Counters()
        self._last: tuple[int, int, Mapping[Series, float]] = 0, 0, {}
        """The last reading: its time (monotonic ns), the count of all cycles, the cycles of each reason."""
        self._seconds: dict[Series, float] = {}

    def read_modes(self) -> None:
        """Read the partition modes of compute and memory: https://docs.kernel.org/gpu/amdgpu/driver-misc.html ."""
        compute, memory = (text(self._device / f"current_{part}_partition") for part in ("compute", "memory"))
        self.modes = compute, memory

    @property
    def is_divided(self) -> bool:
        """True if the mode has several partitions."""
        return self.modes[0] not in ("", "SPX")

    def partitions(self, values: TableFields) -> int:
        """Return the number of partitions; 1 if the mode is unknown."""
        given, compute = values.get("partitions", [None])[0], self.modes[0]
        return given or (len(values.get("busy", ())) if compute == "CPX" else MODES.get(compute, 1)) or 1

    def busy(self, at: int, dims: Dimensions, values: TableFields) -> Iterator[Datapoint]:
        """Yield the utilization of each partition, the mean of its chiplets; nothing if there is only one."""
        if (number := self.partitions(values)) > 1:
            for part, busy in enumerate(_split(values.get("busy", ()), number)):
                if busy:
                    share = min(100.0, sum(busy) / len(busy))
                    yield m.PART_UTILIZATION.point(at, share, dims | {"mig": str(part)})

    def points(self, at: int, now: int, dims: Dimensions, values: TableFields) -> Iterator[Datapoint]:
        """Yield partitions, throttling, errors and links from a table that was read at `now` (monotonic ns)."""
        number = self.partitions(values)
        if self.modes[0]:
            compute, memory = self.modes
            yield m.PARTITIONS.point(at, number, dims | {"compute": compute, "memory": memory or "unknown"})
        yield from self._throttled(at, now, dims, values, number)
        for name, kind in ERRORS.items():
            if (count := values.get(name, [None])[0]) is not None:
                yield self._counters.point(gpu_metrics.LINK_ERRORS, at, count, dims | {"kind": kind})
        if (count := values.get("replays", [None])[0]) is not None:
            yield self._counters.point(gpu_metrics.PCIE_REPLAYS, at, count, dims)
        up = sum(state == 1 for state in values.get("up", ()))
        if up:  # a slot without a link also counts as down, so only links that are up are counted
            yield gpu_metrics.LINKS.point(at, up, dims | {"kind": "xgmi", "state": "up"})
        for name, metric in (("read", m.XGMI_RECEIVED), ("write", m.XGMI_SENT)):
            moved = {link: KILOBYTE * size for link, size in enumerate(values.get(name, ())) if size is not None}
            if up or any(moved.values()):
                yield self._counters.total(metric, at, moved, dims)

    def _throttled(self, at: int, now: int, dims: Dimensions, values: TableFields, number: int) -> Iterator[Datapoint]:
        """Yield the seconds of each reason of throttling: its share of the cycles, times the time between readings."""
        cycles = values.get("counter", [None])[0]
        if cycles is None:
            return
        counts: dict[Series, float] = {}
        for name, reason in REASONS.items():
            count = values.get(name, [None])[0]
            if count is not None and count != cycles:  # an MI300X with driver 6.10.5 counts all cycles, also idle
                counts[gpu_metrics.THROTTLED, dims | {"reason": reason}] = count
        for name, reason in HELD.items():
            for part, held in enumerate(_split(values.get(name, ()), number)):
                place = dims | ({"mig": str(part)} if number > 1 else {}) | {"reason": reason}
                if held:
                    counts[m.PART_BELOW if number > 1 else m.BELOW, place] = sum(held) / len(held)
        (then, before, earlier), self._last = self._last, (now, cycles, counts)
        passed = cycles - before
        for (metric, named), held_for in counts.items():
            gained = held_for - earlier.get((metric, named), held_for)
            is_valid = 0 < gained <= passed
            total = self._seconds.get((metric, named), 0.0)
            total += gained / passed * (now - then) / 1e9 if is_valid else 0.0
            self._seconds[metric, named] = total
            yield self._counters.point(metric, at, total, named)
            if total and metric is gpu_metrics.THROTTLED:
                yield gpu_metrics.CLOCK_REDUCED.point(at, int(is_valid), named)


def _split(values: Sequence[int | None], number: int) -> list[list[int]]:
    """Divide values of chiplets among `number` partitions; leave out unknown ones."""
    size = len(values) // number
    return [[v for v in values[n * size : (n + 1) * size] if v is not None] for n in range(number)] if size else []


VRAM: Final = ("drm-resident-vram", "drm-memory-vram")
GTT: Final = ("drm-resident-gtt", "drm-memory-gtt")
"""Names of a field, the newer one first: https://docs.kernel.org/gpu/drm-usage-stats.html ."""
MAX_PROCESSES: Final = 4096
"""Most processes of KFD that are read."""
GpuKey = TypeVar("GpuKey", str, "KfdNode")
ENGINES: Final[tuple[str, ...]] = ("drm-engine-gfx", "drm-engine-compute")


def parse_client(pid: int, fields: dict[str, str]) -> DrmClient:
    """Parse an fdinfo; raise KeyError or ValueError if it does not belong to amdgpu."""
    if fields["drm-driver"] != "amdgpu":
        raise KeyError("drm-driver")
    vram, gtt = (next((size(fields[name]) for name in names if name in fields), None) for names in (VRAM, GTT))
    engines = {name: Engine(int(fields[name].split()[0])) for name in ENGINES if name in fields}
    return DrmClient(pid, fields["drm-pdev"].lower(), int(fields["drm-client-id"]), vram, gtt or 0, engines)


class AmdShare(TreeClients):
    """The share of the watched process tree in each card."""

    def __init__(self, config: Where, pid: int) -> None:
        super().__init__(config, pid, parse_client)
        self._sys, self._slots = config.sys, {n: node.slot for n, node in find_nodes(config.sys).items()}
        self._used_by: Mapping[str, Mapping[int, int]] = {}

    def read(self) -> None:
        super().read()
        self._used_by = computing(self._sys, self._slots, self.pids)

    def queues(self, slot: str) -> Mapping[int, int]:
        return self._used_by.get(slot, {})


def computing(sys: Path, gpus: Mapping[str, GpuKey], pids: Iterable[int] | None = None) -> dict[GpuKey, dict[int, int]]:
    """
    Return GPU -> the host's PID -> bytes that KFD counts for the process; `pids`: None for all processes.

    `gpus`: number of a KFD device -> its GPU: a PCI address, or a KfdNode to keep partitions apart.
    """
    sizes: dict[GpuKey, dict[int, int]] = {}
    processes = sys / "class/kfd/kfd/proc"
    if pids is None:
        pids = [int(path.name) for path in islice(processes.glob("[0-9]*"), MAX_PROCESSES) if path.name.isdecimal()]
    for pid in pids:
        folder = processes / str(pid)
        for node, gpu in gpus.items() if folder.is_dir() else ():
            if (used := number(folder / f"vram_{node}")) is not None:
                sizes.setdefault(gpu, {})[pid] = sizes.get(gpu, {}).get(pid, 0) + used
    return {gpu: sizes_at for gpu, sizes_at in sizes.items() if any(sizes_at.values())}


def occupied(sys: Path, gpus: Mapping[str, GpuKey], gpu: GpuKey, pids: Iterable[int]) -> dict[int, int]:
    """
    Return PID -> compute units of `gpu` that the process uses now; {} on older kernels and some cards.

    For each answer the kernel reads registers of the card.
    https://git.kernel.org/torvalds/c/f2fa07b39fafb2a5f49c71a504862c5efa57d03e
    """
    units: dict[int, int] = {}
    for pid in pids:
        for node in (node for node, other in gpus.items() if other == gpu):
            if (used := number(sys / f"class/kfd/kfd/proc/{pid}/stats_{node}/cu_occupancy")) is not None:
                units[pid] = units.get(pid, 0) + used
    return units


class KfdNode(NamedTuple):
    """A device of KFD: a card, or a partition of one."""

    slot: str
    """Its PCI address."""
    partition: int
    """Its number in the card, bits 28 to 31 of location_id: kfd_topology_add_device of Linux 6.6 and later."""
    name: str
    """Name of the device that the kernel created for the partition, such as amdgpu_xcp_1."""


def find_nodes(sys: Path) -> dict[str, KfdNode]:
    """Return number -> device of KFD."""
    nodes = {}
    for node in sorted((sys / "class/kfd/kfd/topology/nodes").glob("*"), key=lambda path: (len(path.name), path)):
        gpu_id = number(node / "gpu_id")
        facts = dict(re.findall(r"^(\w+) (\d+)$", text(node / "properties"), re.MULTILINE))
        if gpu_id and "location_id" in facts:
            location = int(facts["location_id"])
            bus, device, function = location >> 8 & 255, location >> 3 & 31, location & 7
            slot = f"{int(facts.get('domain', 0)):04x}:{bus:02x}:{device:02x}.{function}"
            render = sys / f"class/drm/renderD{facts.get('drm_render_minor', '')}/device"
            nodes[str(gpu_id)] = KfdNode(slot, location >> 28, render.resolve().name)
    return nodes
