"""
The binary table gpu_metrics of amdgpu, which tells how often a chip was held below its clocks, and by what.

Layouts: gpu_metrics_v1_* of kgd_pp_interface.h (Linux; https://github.com/ROCm/amdgpu for 1.6 to 1.9). A table of a
virtual MI300X with driver 6.16.13 has 1150 bytes in format 1.9, one of driver 6.10.5 has 1664 in 1.6, as counted here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import cache
from typing import Final

HEADER: Final = struct.Struct("<HBB")
ONES: Final = {"H": 0xFFFF, "I": 0xFFFFFFFF, "Q": 0xFFFFFFFFFFFFFFFF}
"""All bits set: not available."""
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
"""By content revision of format 1: fields of the chip, and of each of its eight partitions; unnamed ones are unused."""
PARTITIONS: Final = 8
CHIPLETS: Final = 8
"""Of each partition, at most; also links of XGMI."""
FIXED: Final = 4
"""The revision from which on a table is as long as its layout: Linux once had another one of the same revision 1.6."""
ATTRIBUTES: Final = {
    7: "energy", 9: "counter", 10: "prochot", 11: "ppt", 12: "socket", 13: "regulator", 14: "hbm", 24: "recoveries",
    25: "replays", 26: "rollovers", 27: "naks_sent", 28: "naks_received", 29: "read", 30: "write", 31: "up",
    38: "partitions", 40: "busy", 44: "below_power", 45: "below_heat", 46: "idle", 47: "below",
}  # fmt: skip
"""amdgpu_metrics_attr_id of format 1.9; the numbers above 48 have changed between drivers, so they are not read."""
TYPES: Final = "BbHhIiQq"
"""amdgpu_metrics_attr_type."""
Values = Mapping[str, list[int | None]]
"""Values by field; of partitions by chiplet, as many for each of them, in their order. None: not available."""


def decode(data: bytes) -> Values:
    """Return the fields of a table, {} if its format is unknown; raise struct.error if it ends early."""
    size, form, revision = HEADER.unpack_from(data)
    if (form, revision) == (1, 9):
        return _attributes(data)
    if form != 1 or revision not in LAYOUTS:
        return {}
    whole, part = (_layout(LAYOUTS[revision], parts) for parts in (0, PARTITIONS))
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
    """Return the native layout, and name, type, place and number of values of each named field."""
    places, start, codes = [], 3, "HBB"
    for name, count, code in re.findall(r"(?:(\w+):)?(\d*)(\w)", " ".join([fields[0], *[f"0Q {fields[1]}"] * parts])):
        number = int(count or 1)  # 0Q: a partition begins as C aligns it
        if name:
            places.append((name, code, start, number))
        start, codes = start + number, codes + f"{number}{code}"
    return struct.Struct(f"@{codes}{'I0Q' if parts and fields[1] else '0Q'}"), places


def _attributes(data: bytes) -> Values:
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
