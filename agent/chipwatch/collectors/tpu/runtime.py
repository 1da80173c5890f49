"""The runtime's gRPC service in the training process."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, Final

from chipwatch.collectors.tpu.message import ORDINAL, Distribution, decode, distributions, encode, queued, totals
from chipwatch.contract.datapoint import Level

USED, TOTAL, DUTY = "usage", "total", "duty"
NAMES: Final = {
    USED: "tpu.runtime.hbm.memory.usage.bytes",
    TOTAL: "tpu.runtime.hbm.memory.total.bytes",
    DUTY: "tpu.runtime.tensorcore.dutycycle.percent",
}
ACTIVITY, IDLE = "activity", "idle"
CORE, THROTTLE, LINKS = "core", "throttle", "links"
QUEUE, PROGRAMS, ROUND_TRIP, DELIVERY = "queue", "programs", "round_trip", "delivery"
NEWER: Final = {
    ACTIVITY: "tpu.runtime.hbm.utilization.percent",
    IDLE: "tpu.runtime.tensorcore.idle_duration.seconds",
    QUEUE: "hlo.queue.size.gauge",
}
"""Metrics that older runtimes lack, with the names in tpu-info 0.14.2."""
PROGRAMS_NAME: Final = {PROGRAMS: "hlo.execution.timing.distribution.microseconds"}
MULTISLICE: Final = {
    ROUND_TRIP: "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution",
    DELIVERY: "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution",
    "send": "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution",
    "receive": "megascale.dcn_inbound_transfer_latencies.microsecond.cumulative.distribution",
    "host_to_device": "megascale.host_to_device_transfer_latencies.microsecond.cumulative.distribution",
    "device_to_host": "megascale.device_to_host_transfer_latencies.microsecond.cumulative.distribution",
    "collective": "megascale.collective_end_to_end_latencies.microsecond.cumulative.distribution",
    "host_compute": "megascale.mxla_compute_latencies.microsecond.cumulative.distribution",
}
"""Traffic between slices: names in tpu-info 0.14.2, where only jobs of several slices have them."""
PACKETS, RETRANSMITTED, ERRORS, UPTIME = "packets", "retransmitted", "errors", "uptime"
TOTALS: Final = {
    PACKETS: "megascale.grpc_tcp_packets_sent.cumulative.count",
    RETRANSMITTED: "megascale.grpc_tcp_packets_retransmitted.cumulative.count",
    ERRORS: "megascale.error_count",
    UPTIME: "tpu.runtime.uptime.seconds.gauge",
}
"""Names in libtpu 0.0.52 itself, which tpu-info does not know."""
RuntimeValues = dict[str, Mapping[Any, float]]
"""Values of each metric by the number of the device or chip, or by the name of the link."""
METHOD: Final = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
HOST: Final = "127.0.0.1"
CONNECT_TIMEOUT, CALL_TIMEOUT = 0.1, 0.5
"""Seconds."""


class RuntimeService:
    """The runtime's gRPC service; grpcio is loaded once the port is open."""

    def __init__(self, port: int, level: Level = Level.BASIC) -> None:
        """Read metrics up to `level`; only newer runtimes have metrics above basic."""
        self._port = port
        self._names = NAMES | (NEWER | MULTISLICE if level >= Level.DETAILED else {})
        self._names |= PROGRAMS_NAME | TOTALS if level >= Level.ALL else {}
        self._channel: Any = None
        self.distributions: dict[str, Mapping[str, Distribution]] = {}
        """The distributions of the last reading, by key and label."""
        self.totals: dict[str, dict[str, float]] = {}
        """Numbers of the workload, by key and labels."""

    def read(self, problems: list[str]) -> RuntimeValues:
        """Return the values, none without a workload; add errors to `problems`."""
        self.distributions, self.totals = {}, {}
        if self._channel is None and not self._listens():
            return {}
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else it writes to standard error when a workload ends
        grpc = importlib.import_module("grpc")  # takes 22 MB, only while a workload runs
        if self._channel is None:  # an old channel waits up to two minutes between attempts
            self._channel = grpc.insecure_channel(f"{HOST}:{self._port}", [("grpc.enable_http_proxy", 0)])
        call = self._channel.unary_unary(METHOD)
        by_key: RuntimeValues = {}
        for key, name in self._names.items():
            try:
                answer: bytes = call(encode(name), timeout=CALL_TIMEOUT)
                self._take(key, answer, by_key)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:  # the workload has ended
                    self.close()
                    self.distributions, self.totals = {}, {}
                    return {}
                if key not in NAMES and error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    continue  # this runtime lacks it
                problems.append(f"{name}: {error.code().name}")
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    break
            except ValueError as problem:
                problems.append(f"{name}: {problem}")
        return by_key

    def _take(self, key: str, answer: bytes, by_key: RuntimeValues) -> None:
        """Take an answer; raise ValueError if it is malformed."""
        if key in NAMES or key in NEWER:
            by_key[key] = (queued if key == QUEUE else decode)(answer)
        elif key in TOTALS:
            self.totals[key] = totals(answer)
        else:
            self.distributions[key] = distributions(answer, ORDINAL if key == PROGRAMS else "buffer-size")

    def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    @property
    def is_connected(self) -> bool:
        """True if a workload answered the last reading."""
        return self._channel is not None

    def _listens(self) -> bool:
        import socket  # noqa: PLC0415  # 0.5 MB, only for a chip that is there

        with socket.socket() as probe:
            probe.settimeout(CONNECT_TIMEOUT)
            return probe.connect_ex((HOST, self._port)) == 0

    def __str__(self) -> str:
        return f"{HOST}:{self._port}"
