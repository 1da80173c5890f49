"""Devices that a scheduler gave to a job: mapping files of DCGM's convention, and the kubelet's pod resources."""

from __future__ import annotations

import importlib
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.contract.errors import os_text
from chipwatch.contract.owner import KUBERNETES, SLURM, Allocation, Owner
from chipwatch.host.job_numbers import mapping_folders
from chipwatch.host.procfs import read_small
from chipwatch.net.protobuf import messages, text_of

MAX_FILES: Final = 1024
"""Mapping files that are read, and devices of the kubelet that are taken."""
MAX_JOBS, MAX_MAPPING = 64, 1 << 14
"""Jobs of one mapping file, and its bytes."""
NAME: Final = re.compile(r"\d{1,4}([.-]\d{1,4})?|(GPU|MIG)-[0-9a-fA-F/-]{1,80}")
"""A mapping file: the GPU's index, or index and GPU instance, which a fork of dcgm-exporter joins by `-`; a UUID."""
JOB: Final = re.compile(r"[1-9]\w{0,63}")
"""A job in it; some prologs write 0 for none."""
_PCI: Final = r"([\da-f]{4})-([\da-f]{2})-([\da-f]{2})-([0-7])-0x[\da-f]{4}", r"\1:\2:\3.\4"
RESOURCES: Final = {
    "nvidia.com/": (
        (r"((GPU|MIG)-.+|\d+)", r"\1"),
        (r"nvidia(\d+)/gi(\d+)", r"\1.\2"),  # of Google's plugin: GPU and GPU instance
        (r"(nvidia\d+)", r"\1"),
    ),
    "gpu.nvidia.com": ((r"(gpu-\d+-mig)-.+-(\d+-\d+)", r"\1-\2"),),  # GPU, profile, its number, placement
    "amd.com/": ((r"([\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}\.[0-7]|amdgpu_xcp_\d+)", r"\1"),),
    "gpu.amd.com": ((r"gpu-(\d+)-\d+", r"card\1"),),  # of DRM: card, renderD
    "gpu.intel.com/": ((r"(card\d+)-\d+", r"\1"),),  # of a device that several pods share, its number
    "gpu.intel.com": (_PCI,),
    "aws.amazon.com/neuroncore": ((r"(\d+)", r"core\1"),),
    "aws.amazon.com/neuron": ((r"(\d+)", r"neuron\1"),),
    "neuron.aws.com": ((r"neuron-device-(\d+)", r"neuron\1"),),
    "google.com/tpu": ((r"(\d+)", r"tpu\1"),),
}
"""
Resources of device plugins and drivers of dynamic resource allocation: their names of devices, and ours.

A name of another form stays as it is; below a prefix with `/` it names a network card or a resource for monitoring.
Sources: CanonicalName in NVIDIA/k8s-dra-driver-gpu and ROCm/k8s-gpu-dra-driver,
DeviceUIDFromPCIinfo in intel/intel-resource-drivers-for-kubernetes, gpu_plugin.go in
intel/intel-device-plugins-for-kubernetes, Google's names in NVIDIA/dcgm-exporter's transformation/kubernetes.go,
AMD's in ROCm/k8s-device-plugin (internal/pkg/plugin, docs on resource names), ResourceSlices of EKS for neuron.aws.com.
"""
KEPT: Final = 60.0
"""Seconds for which the kubelet's last answer is used while the kubelet does not answer: only it gives devices."""
NO_GPUS: Final = ("amd.com/nic", "amd.com/vnic")
"""Resources below a prefix of RESOURCES whose devices have the names of GPUs: network cards, by PCI address."""
REPLICA: Final = re.compile(r"(::|/vgpu|-slice-)\d+$")
"""Of a device that several pods share by time or MPS: the plugins of NVIDIA, Google and AMD (timeslice.go)."""
CDI: Final = re.compile(r"(?:k8s\.)?([^/=]+)/([^=]+)=(?:[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}-)?(?!common$)(.+)")
"""
A device of the container's runtime: vendor, class, device, of which the driver's claims have the claim's uid before it.

Older kubelets name the devices of a claim in no other way. Source: GetClaimDeviceName in NVIDIA/k8s-dra-driver-gpu.
"""
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
                    if device_name := text_of(resource, 4):
                        yield PodDevice(*names, text_of(resource, 2), device_name)
                    else:
                        yield from (PodDevice(*names, *named) for named in _by_runtime(messages(resource, 1)))


def _by_runtime(devices: Iterable[bytes]) -> dict[tuple[str, str], None]:
    """Return the driver and the device in each name of the container's runtime, once."""
    named: dict[tuple[str, str], None] = {}
    for device in devices:
        if match := CDI.fullmatch(text_of(device, 1)):
            vendor, kind, name = match.groups()
            named[(vendor if vendor in RESOURCES else f"{kind}.{vendor}"), name] = None
    return named


class Allocations:
    """Reads the first source that exists: the mapping folder, then the kubelet."""

    def __init__(
        self, root: Path, mapping: Path | None, kubelet: Path | None, environ: Mapping[str, str] = os.environ
    ) -> None:
        """
        `root`: the host's /; `mapping`: a mapping folder to use instead of the known ones; `kubelet`: its socket.

        None: the first known mapping folder that exists; the socket below `root`.
        """
        self._folders = mapping_folders(root, mapping, environ)
        self._kubelet = Kubelet(kubelet or root / "var/lib/kubelet/pod-resources/kubelet.sock")
        self.source = ""
        """Where the allocations of the last reading are from; "" if there is none."""
        self.missing: dict[str, str] = {}
        """Sources that could not be read, and why."""
        self._answer: list[Allocation] = []
        """Of the kubelet."""
        self._answered = -math.inf
        """When that came (monotonic seconds)."""

    def read(self) -> list[Allocation]:
        """Return the devices that are allocated now, none without a source."""
        self.missing.clear()
        self.source = ""
        for folder in self._folders:
            try:
                allocations = list(_mapped(folder))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as problem:
                self.missing["mapping"] = f"{folder}: {os_text(problem)}"
                break
            self.source = folder
            if allocations:
                return allocations
            break  # no job has a device, or nothing writes there
        try:
            allocations = list(islice(_granted(self._kubelet.devices()), MAX_FILES))
            if self._kubelet.present:
                self._answer, self._answered = allocations, time.monotonic()
        except KubeletFailed as failure:
            self.missing["kubelet"] = str(failure)
        if time.monotonic() - self._answered > KEPT:
            return []
        self.source = str(self._kubelet)
        return self._answer

    def close(self) -> None:
        """Close the connection to the kubelet."""
        self._kubelet.close()


def _mapped(folder: str) -> Iterator[Allocation]:
    """Yield the jobs of each device in a mapping folder; raise OSError without one."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, MAX_FILES) if NAME.fullmatch(entry.name))
    for name in names:
        device = name if name[0].isalpha() else name.replace("-", ".")
        try:
            words = read_small(f"{folder}/{name}", MAX_MAPPING).decode("ascii", "replace").split()
        except (FileNotFoundError, IsADirectoryError):
            continue  # its job has ended
        for job in filter(JOB.fullmatch, words[:MAX_JOBS]):
            yield Allocation(device, Owner(SLURM, job), "mapping")


def _granted(devices: Iterable[PodDevice]) -> Iterator[Allocation]:
    """Yield the accelerators among the devices of containers, named as `Collector.names` does."""
    for namespace, pod, container, resource, device in devices:
        prefix = next((prefix for prefix in RESOURCES if resource.startswith(prefix)), None)
        if prefix is None or resource in NO_GPUS:
            continue
        name = REPLICA.sub("", device)
        forms = ((re.fullmatch(pattern, name), ours) for pattern, ours in RESOURCES[prefix])
        if ours := next((match.expand(ours) for match, ours in forms if match), "" if prefix.endswith("/") else name):
            owner = Owner(KUBERNETES, pod, namespace=namespace, pod=pod, container=container)
            yield Allocation(ours, owner, "kubelet")
