"""The fake driver: compiled from nvml.c, and told what to answer."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROFILES = HERE.parents[1] / "fixtures" / "nvidia"
LIBRARY = "libnvidia-ml.so.1"
VARIABLE = "FAKE_NVML"


class CannotBuild(Exception):
    """There is no C compiler, or not the kind of system that this is for."""


def build(folder: Path) -> Path:
    """Write the library, which is compiled once in a process, into `folder`; return its path."""
    (folder / LIBRARY).write_bytes(_compiled())
    return folder / LIBRARY


@cache
def _compiled() -> bytes:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or not compiler:
        raise CannotBuild("the fake driver needs Linux and a C compiler (cc)")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    with tempfile.TemporaryDirectory() as folder:
        words = [compiler, *flags, "-o", library := Path(folder) / LIBRARY, HERE / "nvml.c"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the fake driver does not compile: {done.stderr}")
        return library.read_bytes()


def sizes() -> str:
    """Return nvml_sizes.h: sizes and versions of structs by nvidia-ml-py, which a run does not need."""
    import pynvml

    known = {
        "SIZE_UTILIZATION": ctypes.sizeof(pynvml.c_nvmlUtilization_t),
        "SIZE_MEMORY": ctypes.sizeof(pynvml.c_nvmlMemory_t),
        "SIZE_MEMORY2": ctypes.sizeof(pynvml.c_nvmlMemory_v2_t),
        "SIZE_FIELD": ctypes.sizeof(pynvml.c_nvmlFieldValue_t),
        "SIZE_PROCESS": ctypes.sizeof(pynvml.c_nvmlProcessInfo_v3_t),
        "SIZE_SAMPLE": ctypes.sizeof(pynvml.c_nvmlProcessUtilizationSample_t),
        "SIZE_EVENT": ctypes.sizeof(pynvml.c_nvmlEventData_t),
        "SIZE_METRIC": ctypes.sizeof(pynvml.c_nvmlGpmMetric_t),
        "SIZE_ATTRIBUTES": ctypes.sizeof(pynvml.c_nvmlDeviceAttributes),
        "SIZE_INSTANCE": ctypes.sizeof(pynvml.c_nvmlGpuInstanceInfo_t),
        "SIZE_SHARE": ctypes.sizeof(pynvml.c_nvmlSample_t),
        "SIZE_SUPPORT": ctypes.sizeof(pynvml.c_nvmlGpmSupport_t),
        "SIZE_TEMPERATURE": ctypes.sizeof(pynvml.c_nvmlTemperature_v1_t),
        "SIZE_MARGIN": ctypes.sizeof(pynvml.c_nvmlMarginTemperature_v1_t),
        "SIZE_SRAM": ctypes.sizeof(pynvml.c_nvmlEccSramErrorStatus_v1_t),
        "SIZE_FABRIC": ctypes.sizeof(pynvml.c_nvmlGpuFabricInfo_v3_t),
        "OFFSET_METRICS": pynvml.c_nvmlGpmMetricsGet_t.metrics.offset,
        "VERSION_MEMORY": pynvml.nvmlMemory_v2,
        "VERSION_TEMPERATURE": pynvml.nvmlTemperature_v1,
        "VERSION_MARGIN": pynvml.nvmlMarginTemperature_v1,
    }
    return "".join(f"#define {name} {size}\n" for name, size in known.items())


def profile(name: str) -> dict[str, Any]:
    """Return the answers of a machine in tests/fixtures/nvidia; what was captured and what was made are put together."""
    told = json.loads((PROFILES / f"{name}.json").read_text())
    return {"driver": told["driver"], "gpus": [together(gpu["captured"], gpu["made"]) for gpu in told["gpus"]]}


def together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return two tables as one, tables in them likewise."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        if isinstance(one[key], Mapping):
            both[key] = together(one[key], other[key])
    return both


def flat(answers: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield the lines of the driver's table: the keys of tables in tables are joined by dots."""
    for key, value in answers.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{place}{key}.")
        elif value is not None:
            yield f"{place}{key}={value}"


class Driver:
    """Answers of the driver: `gpus` by index, and `machine`; `tell` makes it so."""

    def __init__(self, folder: Path, name: str, many: int = 1) -> None:
        """Begin with `many` GPUs of a profile, which differ in their UUIDs."""
        told = profile(name)
        self.path = folder / "nvml.txt"
        self.machine: dict[str, Any] = {"driver": told["driver"]}
        self.gpus: list[dict[str, Any]] = [json.loads(json.dumps(gpu)) for gpu in told["gpus"] * many]
        for n, gpu in enumerate(self.gpus):
            gpu["minor"] = n
            if n:
                gpu["uuid"] = f"{gpu['uuid'][:-4]}{n:04}"
        self.write()

    def write(self) -> None:
        """Write the table whole, for a program that is about to start, also while another reads it."""
        self.path.with_suffix(".new").write_text(self.table())
        self.path.with_suffix(".new").replace(self.path)

    def table(self) -> str:
        """Return the answers as the driver reads them."""
        gpus = {str(n): gpu for n, gpu in enumerate(self.gpus)}
        lines = flat({"count": len(self.gpus), **self.machine, **gpus})
        return "".join(f"{line}\n" for line in lines)


def machine_with(folder: Path, many: int) -> tuple[Driver, dict[str, str]]:
    """Return a driver with so many H100, and the environment of a machine that has it; skip the test without cc."""
    import pytest

    root = folder / "root"
    (root / "dev").mkdir(parents=True)
    (root / "dev/nvidiactl").touch()
    (root / "etc").symlink_to("/etc")
    try:
        library = build(folder)
    except CannotBuild as reason:
        pytest.skip(str(reason))
    driver = Driver(folder, "h100", many)
    env = {"LD_LIBRARY_PATH": str(library.parent), VARIABLE: str(driver.path), "CHIPWATCH_ROOT": str(root)}
    return driver, env


class Loaded(Driver):
    """
    A driver in this process, whose answers can change while it is in use.

    All of a process share the library that was loaded first, since the loader finds it by its name.
    """

    _first: ctypes.CDLL | None = None

    def __init__(self, library: Path, folder: Path, name: str, many: int = 1) -> None:
        """Load the library: from now on it is the process's libnvidia-ml.so.1."""
        super().__init__(folder, name, many)
        self._library = Loaded._first = Loaded._first or ctypes.CDLL(str(library))
        assert ctypes.CDLL(LIBRARY)._handle == self._library._handle, "a test has loaded another one past this class"
        self._library.fakeCalls.restype = ctypes.c_ulonglong
        self._counted: dict[str, int] = {}
        os.environ[VARIABLE] = str(self.path)

    def tell(self) -> None:
        """Write the table and have it read."""
        self.write()
        self._library.fakeLoad()

    def tell_changes(self) -> None:
        """Tell, if an answer has changed since."""
        if self.path.read_text() != self.table():
            self.tell()

    def let_pass(self, seconds: float) -> None:
        """Move the driver's clock, and what follows from it: kernels, samples, counters that grow."""
        self._library.fakePass(ctypes.c_double(seconds))

    def calls(self, function: str) -> int:
        """Return how often a function was called since this was asked last."""
        total = self._library.fakeCalls(function.encode())
        before, self._counted[function] = self._counted.get(function, 0), total
        return total - before
