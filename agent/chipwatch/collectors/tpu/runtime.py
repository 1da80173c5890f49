"""Sources of TPU values: the runtime's gRPC service, and libtpu's SDK."""

from __future__ import annotations

import importlib
import os
import socket
from typing import Any, Final

from chipwatch.collectors.tpu.message import Values, decode, encode

USED, TOTAL, DUTY = "usage", "total", "duty"
NAMES: Final = {
    USED: "tpu.runtime.hbm.memory.usage.bytes",
    TOTAL: "tpu.runtime.hbm.memory.total.bytes",
    DUTY: "tpu.runtime.tensorcore.dutycycle.percent",
}
ACTIVITY, IDLE = "activity", "idle"
NEWER: Final = {ACTIVITY: "tpu.runtime.hbm.utilization.percent", IDLE: "tpu.runtime.tensorcore.idle_duration.seconds"}
"""Metrics that older runtimes lack, with the names in tpu-info 0.14.2."""
CORE: Final = "core"
SDK_NAMES: Final = {
    USED: "hbm_capacity_usage", TOTAL: "hbm_capacity_total", DUTY: "duty_cycle_pct", CORE: "tensorcore_util"
}  # fmt: skip
"""https://docs.cloud.google.com/tpu/docs/tpu-monitoring-library ."""
METHOD: Final = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
HOST: Final = "127.0.0.1"
CONNECT_TIMEOUT, CALL_TIMEOUT = 0.1, 0.5
"""Seconds."""


class Service:
    """The runtime's gRPC service; grpcio is loaded once the port is open."""

    def __init__(self, port: int, *, newer: bool = False) -> None:
        """Take the port, and whether to read the metrics that only newer runtimes have too."""
        self._port = port
        self._names = NAMES | NEWER if newer else NAMES
        self._channel: Any = None

    def read(self, problems: list[str]) -> dict[str, Values]:
        """Return the values, none without a workload; add errors to `problems`."""
        if self._channel is None and not self._listens():
            return {}
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else it writes to standard error when a workload ends
        grpc = importlib.import_module("grpc")  # takes 22 MB, only while a workload runs
        if self._channel is None:  # an old channel waits up to two minutes between attempts
            self._channel = grpc.insecure_channel(f"{HOST}:{self._port}", [("grpc.enable_http_proxy", 0)])
        call = self._channel.unary_unary(METHOD)
        found: dict[str, Values] = {}
        for key, name in self._names.items():
            try:
                found[key] = decode(call(encode(name), timeout=CALL_TIMEOUT))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:  # the workload has ended
                    self.close()
                    return {}
                if key in NEWER and error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    continue  # this runtime lacks it
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
        with socket.socket() as probe:
            probe.settimeout(CONNECT_TIMEOUT)
            return probe.connect_ex((HOST, self._port)) == 0

    def __str__(self) -> str:
        return f"{HOST}:{self._port}"


class Sdk:
    """The SDK in libtpu; create it only where a TPU exists, since libtpu may abort without one."""

    def __init__(self, *keys: str) -> None:
        """Load the SDK to read `keys` of SDK_NAMES, by default all; raise ImportError."""
        self._names = {key: SDK_NAMES[key] for key in keys or SDK_NAMES}
        self._monitoring = importlib.import_module("libtpu.sdk").tpumonitoring

    def read(self, problems: list[str]) -> dict[str, Values]:
        """Return the same; a metric is a list with a text for each device or chip, empty without a workload."""
        found: dict[str, Values] = {}
        for key, name in self._names.items():
            try:
                data = self._monitoring.get_metric(name).data()
                found[key] = {index: float(text) for index, text in enumerate(data)}
            except (RuntimeError, ValueError, TypeError) as problem:
                problems.append(f"libtpu: {name}: {type(problem).__name__}")
        return found

    def close(self) -> None:
        """Do nothing: libtpu cannot be unloaded."""

    def __str__(self) -> str:
        return "libtpu"
