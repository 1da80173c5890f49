"""What the runtime in the training process is asked, and how."""

from __future__ import annotations

import importlib
import os
import socket
from typing import Any, Final, Protocol

from agent.collectors.tpu.message import Values, decode, encode

USED, TOTAL, DUTY = "usage", "total", "duty"
NAMES: Final = {
    USED: "tpu.runtime.hbm.memory.usage.bytes",
    TOTAL: "tpu.runtime.hbm.memory.total.bytes",
    DUTY: "tpu.runtime.tensorcore.dutycycle.percent",
}
ACTIVITY, IDLE = "activity", "idle"
NEWER: Final = {
    ACTIVITY: "tpu.runtime.hbm.utilization.percent",
    IDLE: "tpu.runtime.tensorcore.idle_duration.seconds",
}
"""What older runtimes do not have; these names as tpu-info 0.14.2 asks for them."""
CORE: Final = "core"
SDK_NAMES: Final = {
    USED: "hbm_capacity_usage",
    TOTAL: "hbm_capacity_total",
    DUTY: "duty_cycle_pct",
    CORE: "tensorcore_util",
}
"""https://docs.cloud.google.com/tpu/docs/tpu-monitoring-library ."""
METHOD: Final = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
HOST: Final = "127.0.0.1"
PROBE, CALL = 0.1, 0.5
"""Seconds for a connection, and for an answer."""


class Source(Protocol):
    """Where the values come from."""

    def read(self, problems: list[str]) -> dict[str, Values]:
        """Return what can be had now, nothing without a workload; add to `problems` what went wrong."""
        ...

    def close(self) -> None:
        """Release it."""


class Service:
    """The runtime's own gRPC service; grpcio is loaded once something listens there."""

    def __init__(self, port: int, *, newer: bool = False) -> None:
        """Take the port on this machine, and whether to ask for what only newer runtimes have."""
        self._port = port
        self._names = NAMES | NEWER if newer else NAMES
        self._channel: Any = None

    def read(self, problems: list[str]) -> dict[str, Values]:
        """Ask for all of them."""
        if self._channel is None and not self._listens():
            return {}
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else it writes to standard error when a workload ends
        grpc = importlib.import_module("grpc")  # 22 MB, and only where a workload runs

        if self._channel is None:  # a fresh one: an old one waits up to two minutes between two attempts
            self._channel = grpc.insecure_channel(f"{HOST}:{self._port}", [("grpc.enable_http_proxy", 0)])
        call = self._channel.unary_unary(METHOD)
        found: dict[str, Values] = {}
        for key, name in self._names.items():
            try:
                found[key] = decode(call(encode(name), timeout=CALL))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:  # the workload has ended
                    self.close()
                    return {}
                if key in NEWER and error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    continue  # this runtime does not have it, or not yet
                problems.append(f"{name}: {error.code().name}")
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    break
            except ValueError as problem:
                problems.append(f"{name}: {problem}")
        return found

    def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _listens(self) -> bool:
        try:
            socket.create_connection((HOST, self._port), PROBE).close()
        except OSError:
            return False
        return True

    def __str__(self) -> str:
        return f"{HOST}:{self._port}"


class Sdk:
    """The module that comes with libtpu; never imported where there is no TPU, since libtpu may abort there."""

    def __init__(self, *keys: str) -> None:
        """Load it, to be asked for `keys` of SDK_NAMES, all unless some are given; raise ImportError."""
        self._names = {key: SDK_NAMES[key] for key in keys or SDK_NAMES}
        self._monitoring = importlib.import_module("libtpu.sdk").tpumonitoring

    def read(self, problems: list[str]) -> dict[str, Values]:
        """Ask for them: lists of texts, one for each device or chip, and empty without a workload."""
        found: dict[str, Values] = {}
        for key, name in self._names.items():
            try:
                data = self._monitoring.get_metric(name).data()
                found[key] = {index: float(text) for index, text in enumerate(data)}
            except (RuntimeError, ValueError, TypeError) as problem:
                problems.append(f"libtpu: {name}: {type(problem).__name__}")
        return found

    def close(self) -> None:
        """Leave it loaded: there is no way back."""

    def __str__(self) -> str:
        return "libtpu"
