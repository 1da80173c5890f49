"""A kubelet that tells which pods have which devices."""

from __future__ import annotations

import threading
from concurrent import futures

from chipwatch.net.protobuf import message


def field(number: int, *parts: bytes | str) -> bytes:
    """Encode messages or texts of one field."""
    return b"".join(message(number, part.encode() if isinstance(part, str) else part) for part in parts)


def pod(namespace: str, name: str, container: str, resource: str, *devices: str) -> bytes:
    """Encode a PodResources of one container with one resource."""
    topology = field(3, field(1, b"\x08\x00"))
    inner = field(1, container) + field(2, field(1, resource) + field(2, *devices) + topology)
    return field(1, field(1, name) + field(2, namespace) + field(3, inner))


class Server:
    """A gRPC server on a Unix socket that answers List like the kubelet."""

    def __init__(self, path, answer):
        import grpc

        self.answer, self.delay, self.calls = answer, threading.Event(), 0
        self.delay.set()
        handler = grpc.unary_unary_rpc_method_handler(self._list)
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})]
        )
        assert self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def _list(self, request, context):
        assert request == b""
        self.calls += 1
        self.delay.wait(20)
        return self.answer

    def stop(self):
        self.delay.set()
        self._server.stop(None).wait()
