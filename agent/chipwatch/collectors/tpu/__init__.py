"""
Collects metrics of Google TPUs, from the runtime in the training process.

While a workload runs, libtpu serves gRPC without credentials on a fixed port. metrics.py handles the few messages
that are needed of tpu_metric_service.proto:
https://github.com/AI-Hypercomputer/cloud-accelerator-diagnostics/tree/main/tpu_info/tpu_info/proto
Only the SDK of the user's libtpu reports utilization of tensor cores, throttling and links between chips. The option
`sdk` reads it in a child process. It is off by default, because libtpu may serve only one process, which must be the
workload.
The collector was tested with a real gRPC server, and with libtpu 0.0.52 on a machine without a TPU, but not with a
TPU.
"""

from __future__ import annotations

import importlib.util
import math
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.collectors.tpu import metrics as m
from chipwatch.collectors.tpu.sdk import Sdk
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric
from chipwatch.contract.errors import PartlyCollected, Unavailable, get_extra
from chipwatch.contract.facts import Device, DeviceProcess, Unlisted
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.counters import Counters
from chipwatch.host.open_devices import OpenDevices
from chipwatch.host.procfs import close_all, text

METHOD: Final = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
HOST: Final = "127.0.0.1"
CONNECT_TIMEOUT, CALL_TIMEOUT = 0.1, 0.5
"""Seconds to wait for a connection, and for an answer."""


class RuntimeService:
    """The runtime's gRPC service. grpcio is loaded only once the port is open."""

    def __init__(self, port: int, level: Level = Level.BASIC) -> None:
        """`level`: highest level of metrics; only newer runtimes have metrics above basic."""
        self._port = port
        self._rows = {name: row for name, row in m.ROWS.items() if row.metric.level <= level}
        self.channel: Any = None
        """The connection, None unless a workload answered the last reading."""

    def read(self, problems: list[str]) -> dict[str, Mapping[Any, Any]]:
        """Return name of a row -> answer; {} without a workload. Append errors to `problems`."""
        if self.channel is None and not self._listens():
            return {}
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else grpcio writes to standard error when a workload ends
        grpc = importlib.import_module("grpc")  # 22 MB, so only while a workload runs
        if self.channel is None:  # `close` drops old channels, which wait up to two minutes between attempts
            self.channel = grpc.insecure_channel(f"{HOST}:{self._port}", [("grpc.enable_http_proxy", 0)])
        call = self.channel.unary_unary(METHOD)
        answers: dict[str, Mapping[Any, Any]] = {}
        for name, row in self._rows.items():
            try:
                answers[name] = row.decode(call(m.encode(name), timeout=CALL_TIMEOUT))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:  # the workload has ended
                    self.close()
                    return {}
                if row.metric.level > Level.BASIC and error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    continue  # this runtime does not have the metric
                problems.append(f"{name}: {error.code().name}")
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    break
            except ValueError as problem:
                problems.append(f"{name}: {problem}")
        return answers

    def close(self) -> None:
        """Close the channel."""
        close_all(self.channel)
        self.channel = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(CONNECT_TIMEOUT)
            return probe.connect_ex((HOST, self._port)) == 0

    def __str__(self) -> str:
        return f"{HOST}:{self._port}"


ACCEL: Final = "/dev/accel"
"""Prefix of a chip's device file, before its number; newer chips have files of VFIO."""
VENDOR: Final = "0x1ae0"
"""PCI vendor Google. Its virtual network cards and disks also have it, so the device id is checked, too."""
CHIPS: Final = {
    ("0x0027", "0x004e"): ("v2", 2),
    ("0x0027", "0x004f"): ("v3", 2),
    ("0x005e", None): ("v4", 1),
    ("0x0063", None): ("v5e", 1),
    ("0x0062", None): ("v5p", 1),
    ("0x006f", None): ("v6e", 1),
    ("0x0076", None): ("7x", 2),
}
"""PCI device and subsystem -> name, and devices of a chip: tpu_info/device.py of the same repository."""


class Chips(NamedTuple):
    """The TPU chips on the PCI bus."""

    name: str
    number: int
    devices: int
    """Number of devices in each chip, as the runtime counts them."""


class TpuCollector(Collector):
    """Reads the TPUs of this machine, but only while a workload uses them."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where the runtime listens."""

        port: int = 8431
        """Port of the runtime's metrics; the workload sets it by the variable TPU_RUNTIME_METRICS_PORTS."""
        sdk: bool = False
        """Load the user's libtpu in a child process, for what gRPC lacks; this may block the TPU for the workload."""
        interval: float = 5.0
        """Seconds between two ticks, from --interval; the child reads at most once a second."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted."""

    metrics = m.METRICS
    needs = Needs(level=True)
    knows = (Device, DeviceProcess)

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._chips: Chips | None = None
        self._service: RuntimeService | None = None
        self._sdk: Sdk | None = None
        self._counters = Counters()
        self._dims: dict[int, Dimensions] = {}
        self._open: OpenDevices | None = None

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        folder = self._config.sys / "bus/pci/devices"
        chips = find_chips(folder)
        if not chips:
            raise Unavailable(f"no TPU: no such device of vendor {VENDOR} in {folder}")
        if not importlib.util.find_spec("grpc"):
            raise Unavailable(f"grpcio is not installed: {get_extra('tpu')}")
        self._service = RuntimeService(self._config.port, self._level)
        if self._config.sdk and self._level >= Level.DETAILED:
            libtpu = importlib.util.find_spec("libtpu")
            if not libtpu or not libtpu.origin:
                raise Unavailable("libtpu is not installed; install it, or set collectors.tpu.sdk = false")
            self._sdk = Sdk(Path(libtpu.origin).parents[1], self._config.interval, self._clock)
            self._sdk.open()
        self._chips = chips

    def collect(self, at: int) -> Iterator[Datapoint]:
        assert self._chips is not None
        assert self._service is not None
        problems: list[str] = []
        answers = self._service.read(problems)
        values: m.DeviceValues = {
            m.ROWS[name].metric: each for name, each in answers.items() if not m.ROWS[name].points
        }
        if self._sdk:
            values |= self._sdk.read(problems)
        for metric, index, value in readings(values, self._chips.devices, problems):
            dims = self._dims.get(index) or self._dims.setdefault(index, Dimensions(tpu=str(index)))
            yield metric.point(at, value, dims)
        for link, fault in values.get(m.LINK_FAULT, {}).items():
            if 0 <= fault <= 10:
                yield m.LINK_FAULT.point(at, fault, Dimensions(link=link))
        if self._service.channel is None:
            self._counters = Counters()  # the next workload counts from zero
        for name, answer in answers.items():
            if make := m.ROWS[name].points:
                yield from make(m.ROWS[name], at, answer, self._counters)
        if problems:
            raise PartlyCollected(problems)

    def _processes(self) -> Iterable[DeviceProcess | Unlisted]:
        """Return the processes that have a chip's device file open."""
        self._open = self._open or OpenDevices(self._config.proc, r"/dev/(accel|vfio/)\d+")
        if not self._chips or (files_of := self._open.by_process()) is None:
            return [Unlisted("the right to see them is missing")]
        return [DeviceProcess(dims, pid) for pid, files in files_of.items() for dims in self._of(files)]

    def facts(self) -> Iterator[Device | DeviceProcess | Unlisted]:
        yield from (Device(dims, ids=(f"tpu{index}",)) for index, dims in self._dims.items())
        yield from self._processes()

    def _of(self, files: Collection[str]) -> list[Dimensions]:
        """Return the dimensions of devices by their files; all devices for VFIO, whose numbers are not chips."""
        assert self._chips is not None
        numbers = {int(file[len(ACCEL) :]) for file in files if file.startswith(ACCEL)}
        return [dims for index, dims in self._dims.items() if not numbers or index // self._chips.devices in numbers]

    def describe(self) -> str:
        if not self._chips:
            return ""
        devices = f"{len(self._dims)} devices" if self._dims else "no workload so far"
        sources = ", ".join(str(source) for source in (self._service, self._sdk) if source)
        return f"{self._chips.number} chips TPU {self._chips.name}, {sources}, {devices}"

    def close(self) -> None:
        close_all(self._service, self._sdk)
        self._service, self._sdk, self._chips, self._dims = None, None, None, {}


def readings(values: m.DeviceValues, per_chip: int, problems: list[str]) -> Iterator[tuple[Metric, int, float]]:
    """Yield (metric, device, value); impossible values are left out."""
    used, total = values.get(m.MEMORY_USED, {}), values.get(m.MEMORY_TOTAL, {})
    for index, value in sorted(total.items()):
        if 0 < value < math.inf:
            yield m.MEMORY_TOTAL, index, value
    for index, value in sorted(used.items()):
        if 0 <= value < math.inf:
            yield m.MEMORY_USED, index, value
            if 0 < (whole := total.get(index, 0)) < math.inf and value <= whole:
                yield m.MEMORY_UTILIZATION, index, min(100.0, 100 * value / whole)  # a quotient is rounded
    others = {
        metric: each for metric, each in values.items() if metric not in (m.MEMORY_USED, m.MEMORY_TOTAL, m.LINK_FAULT)
    }
    try:
        others[m.DUTY_CYCLE] = fan_out(others.get(m.DUTY_CYCLE, {}), sorted(used.keys() | total.keys()), per_chip)
    except ValueError as problem:
        del others[m.DUTY_CYCLE]
        problems.append(str(problem))
    for metric, each in others.items():
        for index, value in sorted(each.items()):
            if 0 <= value <= (100 if metric.unit == "%" else math.inf) and value < math.inf:
                yield metric, index, value


def find_chips(folder: Path) -> Chips | None:
    """Return the TPUs on the PCI bus, None without one; it takes about ten microseconds per device."""
    devices = [device for device in sorted(folder.glob("*")) if text(device / "vendor").lower() == VENDOR]
    found = [chip for device in devices if (chip := _chip(device))]
    return Chips(found[0][0], len(found), found[0][1]) if found else None


def fan_out(duty: Mapping[int, float], devices: Sequence[int], per_chip: int) -> Mapping[int, float]:
    """
    Convert the duty cycle from chips to devices: some chips have two. Raise ValueError if the numbers do not fit.

    Chips and devices have the same order, as in tpu-info. Newer runtimes already report it by device.
    """
    if not duty or (per_chip == 1 and duty.keys() <= set(devices or duty)):
        return duty
    share = len(devices) // len(duty)
    if share not in (1, per_chip) or share * len(duty) != len(devices):
        raise ValueError(f"duty cycle: expected a value for each chip or device, got {len(duty)} for {len(devices)}")
    ordered = [duty[chip] for chip in sorted(duty)]
    return {device: ordered[n // share] for n, device in enumerate(devices)}


def _chip(device: Path) -> tuple[str, int] | None:
    kind = text(device / "device").lower()
    return CHIPS.get((kind, None)) or CHIPS.get((kind, text(device / "subsystem_device").lower()))
