"""A kubelet that tells which pods have which devices."""

from __future__ import annotations

import threading
from concurrent import futures
from pathlib import Path

import yaml
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

FILE = Path(__file__).parents[1] / "fixtures/kubelet.yaml"
API = DescriptorPool()
API.Add(ParseDict(yaml.safe_load(FILE.read_text()), FileDescriptorProto()))
ANSWER = GetMessageClass(API.FindMessageTypeByName("v1.ListPodResourcesResponse"))


def containers(namespace: str, name: str, *parts: dict, **more) -> bytes:
    """Encode an answer with one pod; answers that follow one another are one."""
    own = {"namespace": namespace, "name": name, "containers": parts}
    return ANSWER(pod_resources=[own | more]).SerializeToString()


def pod(namespace: str, name: str, container: str, resource: str, *devices: str) -> bytes:
    """Encode an answer with one pod of one container with one resource."""
    given = {"resource_name": resource, "device_ids": devices, "topology": {"nodes": [{"ID": 0}]}}
    return containers(namespace, name, {"name": container, "devices": [given]})


def claim(container: str, *resources: dict) -> dict:
    """Return a container with a claim, CPUs and memory."""
    claims = [{"class_name": "class", "claim_name": "mine", "claim_namespace": "team", "claim_resources": resources}]
    memory = [{"memory_type": "memory", "size": 1 << 40, "topology": {"nodes": [{"ID": 1}]}}]
    return {"name": container, "cpu_ids": [0, 3000], "memory": memory, "dynamic_resources": claims}


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
