"""Asks the gRPC service that the TPU runtime opens in the training process."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Mapping
from typing import Any, Final

from chipwatch.collectors.tpu.message import encode
from chipwatch.collectors.tpu.metrics import ROWS
from chipwatch.contract.datapoint import Level

METHOD: Final = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
HOST: Final = "127.0.0.1"
CONNECT_TIMEOUT, CALL_TIMEOUT = 0.1, 0.5
"""Seconds to wait for a connection, and for an answer."""


class RuntimeService:
    """The runtime's gRPC service. grpcio is loaded only once the port is open."""

    def __init__(self, port: int, level: Level = Level.BASIC) -> None:
        """`level`: highest level of metrics; only newer runtimes have metrics above basic."""
        self._port = port
        self._rows = {name: row for name, row in ROWS.items() if row.metric.level <= level}
        self._channel: Any = None

    def read(self, problems: list[str]) -> dict[str, Mapping[Any, Any]]:
        """Return name of a row -> answer; {} without a workload. Append errors to `problems`."""
        if self._channel is None and not self._listens():
            return {}
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else grpcio writes to standard error when a workload ends
        grpc = importlib.import_module("grpc")  # 22 MB, so only while a workload runs
        if self._channel is None:  # `close` drops old channels, which wait up to two minutes between attempts
            self._channel = grpc.insecure_channel(f"{HOST}:{self._port}", [("grpc.enable_http_proxy", 0)])
        call = self._channel.unary_unary(METHOD)
        answers: dict[str, Mapping[Any, Any]] = {}
        for name, row in self._rows.items():
            try:
                answers[name] = row.decode(call(encode(name), timeout=CALL_TIMEOUT))
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
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    @property
    def is_connected(self) -> bool:
        """True if a workload answered the last reading."""
        return self._channel is not None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(CONNECT_TIMEOUT)
            return probe.connect_ex((HOST, self._port)) == 0

    def __str__(self) -> str:
        return f"{HOST}:{self._port}"
