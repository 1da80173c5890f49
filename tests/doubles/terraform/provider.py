"""
Stand-ins for Terraform's providers, for all schemas of a folder: names, types and what is required are the real ones.

A process serves them until its standard input ends, and prints first what TF_REATTACH_PROVIDERS is to be. It plans as
providers do (what the provider computes is unknown until it is applied), makes values up when it applies, and asks
nobody. It does not know what excludes what, which words a string may hold, or what a change replaces.

It runs in the checkers' environment: PyPI's `tf` has the messages of the protocol, version 6.
"""

# ruff: noqa: N802  # the methods are the protocol's

import json
import os
import sys
import tempfile
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import msgpack
from tf.gen import grpc_controller_pb2, grpc_controller_pb2_grpc, grpc_stdio_pb2_grpc, tfplugin_pb2_grpc
from tf.gen import tfplugin_pb2 as pb

UNKNOWN = msgpack.ExtType(0, b"\x00")
NESTING = {"single": 1, "list": 2, "set": 3, "map": 4, "group": 5}
DOCUMENTS = ("assume_role_policy", "container_definitions", "dashboard_body", "dashboard_json", "policy")
"""Strings that have to be JSON, wherever a resource has them."""
ACCOUNT = "123456789012"
POLICY = "aws_iam_policy_document"
ANSWERS = {
    "aws_caller_identity": {"account_id": ACCOUNT, "arn": f"arn:aws:iam::{ACCOUNT}:user/someone"},
    "aws_partition": {"partition": "aws", "dns_suffix": "amazonaws.com"},
    "aws_region": {"region": "us-east-1", "name": "us-east-1"},
    "google_project": {"project_id": "some-project", "number": ACCOUNT},
}
"""Values of data sources."""
ARNS = {("aws_iam_instance_profile", "arn"): f"arn:aws:iam::{ACCOUNT}:instance-profile/stub"}
"""Invented values whose form a module checks, by type and attribute."""


# -- the schema, as the protocol has it --------------------------------------------------------------------------


def block(of: dict) -> Any:
    made = pb.Schema.Block()
    for name, attribute in sorted(of["attributes"].items()):
        flags = {key: attribute.get(key, False) for key in ("required", "optional", "computed", "sensitive")}
        made.attributes.add(name=name, type=json.dumps(attribute["type"]).encode(), **flags)
    for name, nested in sorted(of.get("block_types", {}).items()):
        least, most = nested.get("min_items", 0), nested.get("max_items", 0)
        inner = made.block_types.add(
            type_name=name, nesting=NESTING[nested["nesting_mode"]], min_items=least, max_items=most
        )
        inner.block.CopyFrom(block(nested["block"]))
    return made


def schema(of: dict) -> Any:
    return pb.Schema(version=of.get("version", 0), block=block(of["block"]))


_DLAMI = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
PARAMETERS = {
    _DLAMI.format("x86_64"): "ami-0000000000000064a",
    _DLAMI.format("arm64"): "ami-0000000000000064b",
    "/aws/service/neuron/dlami/multi-framework/ubuntu-24.04/latest/image_id": "ami-00000000000000640",
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64": "ami-0000000000000a64a",
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64": "ami-0000000000000a64b",
    "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id": "ami-00000000000000ec5",
}
"""Public parameters of SSM that exist; docs.aws.amazon.com/dlami, awsdocs-neuron.readthedocs-hosted.com and others name them."""


# -- values ------------------------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    return pb.DynamicValue(msgpack=msgpack.packb(value))


def decode(value: Any) -> Any:
    if value.msgpack:
        return msgpack.unpackb(value.msgpack, raw=False, strict_map_key=False)
    return json.loads(value.json) if value.json else None


def is_open(value: Any) -> bool:
    """Tell whether nobody has said it yet."""
    return value is None or isinstance(value, msgpack.ExtType)


def filled(of: dict, value: Any, fill: Any) -> Any:
    """Return an object of a block with what the provider computes; `fill` gives it by name and attribute."""
    if is_open(value):
        return value
    made = {}
    for name, attribute in of["attributes"].items():
        given = value.get(name)
        made[name] = fill(name, attribute, given) if attribute.get("computed") and is_open(given) else given
    for name, nested in of.get("block_types", {}).items():
        given, inner = value.get(name), nested["block"]
        if isinstance(given, list):
            given = [filled(inner, one, fill) for one in given]
        elif isinstance(given, dict) and nested["nesting_mode"] == "map":
            given = {key: filled(inner, one, fill) for key, one in given.items()}
        elif isinstance(given, dict):
            given = filled(inner, given, fill)
        made[name] = given
    return made


def invented(name: str, attribute: dict, _given: Any) -> Any:
    kind = attribute["type"]
    if kind == "string" and name.endswith("arn"):
        return f"arn:aws:stub:us-east-1:{ACCOUNT}:{name}"
    return f"stub-{name}" if kind == "string" else nothing(kind)


def nothing(kind: Any) -> Any:
    if isinstance(kind, str):
        return {"string": "stub", "number": 0, "bool": False}.get(kind)
    if kind[0] == "object":
        return {key: nothing(one) for key, one in kind[1].items()}
    return {} if kind[0] == "map" else []


def policy(given: dict) -> str:
    """Return the JSON of a policy document, which the real provider also computes without asking anybody."""

    def short(values: list) -> Any:
        return values[0] if len(values) == 1 else values

    def who(principals: list) -> Any:
        if any(one["type"] == "*" for one in principals):
            return "*"
        return {one["type"]: short(sorted(one["identifiers"])) for one in principals}

    statements = []
    for said in given.get("statement") or []:
        made = {"Sid": said.get("sid"), "Effect": said.get("effect") or "Allow"}
        for key, word in (("actions", "Action"), ("resources", "Resource")):
            if said.get(key):
                made[word] = short(sorted(said[key]))
        if said.get("principals"):
            made["Principal"] = who(said["principals"])
        for condition in said.get("condition") or []:
            tests = made.setdefault("Condition", {}).setdefault(condition["test"], {})
            tests[condition["variable"]] = short(condition["values"])
        statements.append({key: value for key, value in made.items() if value is not None})
    return json.dumps({"Version": given.get("version") or "2012-10-17", "Statement": statements})


# -- the protocol ------------------------------------------------------------------------------------------------


class Provider(tfplugin_pb2_grpc.ProviderServicer):
    """One provider; requests and responses are the protocol's."""

    def __init__(self, of: dict) -> None:
        """Have the schemas of `terraform providers schema -json` for one provider."""
        self._resources, self._data = of["resource_schemas"], of["data_source_schemas"]
        self._whole = pb.GetProviderSchema.Response(provider=schema(of["provider"]))
        for name, one in self._resources.items():
            self._whole.resource_schemas[name].CopyFrom(schema(one))
        for name, one in self._data.items():
            self._whole.data_source_schemas[name].CopyFrom(schema(one))

    def _block(self, name: str) -> dict:
        return self._resources[name]["block"]

    def GetMetadata(self, request, context):
        said = pb.GetMetadata.Response()
        for name in self._resources:
            said.resources.add(type_name=name)
        for name in self._data:
            said.data_sources.add(type_name=name)
        return said

    def GetProviderSchema(self, request, context):
        return self._whole

    def ValidateProviderConfig(self, request, context):
        return pb.ValidateProviderConfig.Response()

    def ConfigureProvider(self, request, context):
        return pb.ConfigureProvider.Response()

    def StopProvider(self, request, context):
        return pb.StopProvider.Response()

    def ValidateDataResourceConfig(self, request, context):
        return pb.ValidateDataResourceConfig.Response()

    def ValidateResourceConfig(self, request, context):
        said, given = pb.ValidateResourceConfig.Response(), decode(request.config) or {}
        for name in DOCUMENTS:
            if isinstance(text := given.get(name), str):
                try:
                    json.loads(text)
                except ValueError as problem:
                    said.diagnostics.add(severity=1, summary=f"{name} is no JSON", detail=str(problem))
        return said

    def UpgradeResourceState(self, request, context):
        state = json.loads(request.raw_state.json)
        state = filled(self._block(request.type_name), state, lambda name, attribute, given: given)
        return pb.UpgradeResourceState.Response(upgraded_state=encode(state))

    def ReadResource(self, request, context):
        return pb.ReadResource.Response(new_state=request.current_state, private=request.private)

    def PlanResourceChange(self, request, context):
        before, wanted = decode(request.prior_state), decode(request.proposed_new_state)
        fill = (lambda name, *_: UNKNOWN) if before is None else (lambda name, *_: before.get(name))
        planned = filled(self._block(request.type_name), wanted, fill)
        return pb.PlanResourceChange.Response(planned_state=encode(planned))

    def ApplyResourceChange(self, request, context):
        def fill(name: str, attribute: dict, given: Any) -> Any:
            return ARNS.get((request.type_name, name)) or invented(name, attribute, given)

        state = filled(self._block(request.type_name), decode(request.planned_state), fill)
        return pb.ApplyResourceChange.Response(new_state=encode(state))

    def ReadDataSource(self, request, context):
        name, given = request.type_name, decode(request.config)
        answers = {"json": policy(given), "minified_json": policy(given)} if name == POLICY else ANSWERS.get(name, {})

        if name == "aws_ssm_parameter":
            answers = {"value": PARAMETERS.get(given["name"], "no such parameter")}

        def fill(key: str, attribute: dict, value: Any) -> Any:
            return answers[key] if key in answers else invented(key, attribute, value)

        return pb.ReadDataSource.Response(state=encode(filled(self._data[name]["block"], given, fill)))


class Controller(grpc_controller_pb2_grpc.GRPCControllerServicer):
    """Terraform says good-bye here, and the next one is served."""

    def Shutdown(self, request, context):
        return grpc_controller_pb2.Empty()


class Stdio(grpc_stdio_pb2_grpc.GRPCStdioServicer):
    """Nothing is logged."""

    def StreamStdio(self, request, context):
        return iter(())


def serve(of: dict, socket: Path) -> grpc.Server:
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(8), options=options)
    tfplugin_pb2_grpc.add_ProviderServicer_to_server(Provider(of), server)
    grpc_controller_pb2_grpc.add_GRPCControllerServicer_to_server(Controller(), server)
    grpc_stdio_pb2_grpc.add_GRPCStdioServicer_to_server(Stdio(), server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def main(folder: Path) -> None:
    """Serve all schemas of `folder`, until the standard input ends."""
    with tempfile.TemporaryDirectory() as sockets:
        said, servers = {}, []
        for file in sorted(folder.glob("*.json")):
            [(source, of)] = json.loads(file.read_text())["provider_schemas"].items()
            socket = Path(sockets) / file.stem
            servers.append(serve(of, socket))
            address = {"Network": "unix", "String": str(socket)}
            said[source] = {
                "Protocol": "grpc", "ProtocolVersion": 6, "Pid": os.getpid(), "Test": True, "Addr": address,
            }  # fmt: skip
        sys.stdout.write(f"{json.dumps(said)}\n")
        sys.stdout.flush()
        sys.stdin.read()
        for server in servers:
            server.stop(0.2).wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
