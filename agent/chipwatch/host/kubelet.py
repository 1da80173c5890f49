"""The devices that the kubelet gave to containers, from its pod resources service: gRPC on a Unix socket."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.net.protobuf import messages, text_of

METHOD: Final = "/v1.PodResourcesLister/List"
"""https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto , since Kubernetes 1.20."""
TIMEOUT: Final = 1.0
"""Seconds; the kubelet answers from memory."""
MAX_BYTES: Final = 4 << 20
"""Of an answer; a node of 250 pods needs about 0.1 MB."""
MISSING: Final = "grpcio is not installed: install chipwatch with the extra 'kubernetes'"


class PodDevice(NamedTuple):
    """A device of a container."""

    namespace: str
    pod: str
    container: str
    resource: str
    """Such as nvidia.com/gpu; with dynamic resource allocation the name of the driver."""
    device: str
    """As the device plugin names it."""


class KubeletFailed(Exception):
    """The socket exists and gave no usable answer; the message says why."""


class Kubelet:
    """The service; grpcio (22 MB) is loaded only where the socket exists."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel: Any = None
        self.present = False
        """True if the socket existed at the last call."""

    def devices(self) -> Iterator[PodDevice]:
        """Yield the devices of all containers, none without a socket; raise KubeletFailed."""
        self.present = os.path.exists(self._socket)  # noqa: PTH110  # a Path raises PermissionError
        if not self.present:
            self.close()
            return
        try:
            yield from decode(self._list())
        except ValueError as problem:
            raise KubeletFailed(f"{self._socket}: {problem}") from None

    def close(self) -> None:
        """Close the channel; safe to call twice."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _list(self) -> bytes:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else it writes to standard error when the kubelet restarts
        try:
            grpc: Any = importlib.import_module("grpc")
        except ImportError:
            raise KubeletFailed(f"{self._socket}: {MISSING}") from None
        if self._channel is None:
            options = [("grpc.max_receive_message_length", MAX_BYTES), ("grpc.enable_http_proxy", 0)]
            self._channel = grpc.insecure_channel(f"unix:{self._socket}", options)
        try:
            answer: bytes = self._channel.unary_unary(METHOD)(b"", timeout=TIMEOUT)
        except grpc.RpcError as error:
            self.close()  # an old channel waits up to two minutes between attempts
            raise KubeletFailed(f"{self._socket}: {error.details()} [{error.code().name}]") from None
        return answer

    def __str__(self) -> str:
        return str(self._socket)


def decode(answer: bytes) -> Iterator[PodDevice]:
    """Yield the devices in a ListPodResourcesResponse; raise ValueError if it is malformed."""
    for pod in messages(answer, 1):
        for container in messages(pod, 3):
            names = text_of(pod, 2), text_of(pod, 1), text_of(container, 1)
            for devices in messages(container, 2):
                for device in messages(devices, 2):
                    yield PodDevice(*names, text_of(devices, 1), device.decode("utf-8"))
            for claim in messages(container, 5):  # dynamic resource allocation
                for resource in messages(claim, 4):
                    yield PodDevice(*names, text_of(resource, 2), text_of(resource, 4))
