"""Finds which devices a scheduler gave to which job: in Slurm by mapping files, in Kubernetes by the kubelet."""

from __future__ import annotations

import importlib
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.errors import get_extra, os_text
from chipwatch.contract.owner import KUBERNETES, SLURM, Allocation, Owner
from chipwatch.host.job_numbers import mapping_folders
from chipwatch.host.procfs import close_all, read_small
from chipwatch.net.protobuf import messages, text_in

MAX_FILES: Final = 1024
"""Most mapping files that are read, and most devices that are taken from the kubelet."""
MAX_JOBS, MAX_MAPPING = 64, 1 << 14
"""Most jobs in one mapping file, and most bytes of it that are read."""
NAME: Final = re.compile(r"\d{1,4}([.-]\d{1,4})?|(GPU|MIG)-[0-9a-fA-F/-]{1,80}")
"""Name of a mapping file: a GPU's index, an index and a GPU instance (some tools join them by `-`), or a UUID."""
JOB: Final = re.compile(r"[1-9]\w{0,63}")
"""A job in a mapping file; some prologs write 0 if there is none."""
_PCI: Final = r"([\da-f]{4})-([\da-f]{2})-([\da-f]{2})-([0-7])-0x[\da-f]{4}", r"\1:\2:\3.\4"
RESOURCES: Final = {
    "nvidia.com/": (
        (r"((GPU|MIG)-.+|\d+)", r"\1"),
        (r"nvidia(\d+)/gi(\d+)", r"\1.\2"),  # Google's plugin: GPU and GPU instance
        (r"(nvidia\d+)", r"\1"),
    ),
    "gpu.nvidia.com": ((r"(gpu-\d+-mig)-.+-(\d+-\d+)", r"\1-\2"),),  # GPU, profile, its number, placement
    "amd.com/": ((r"([\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}\.[0-7]|amdgpu_xcp_\d+)", r"\1"),),
    "gpu.amd.com": ((r"gpu-(\d+)-\d+", r"card\1"),),  # DRM: the card, and its renderD
    "gpu.intel.com/": ((r"(card\d+)-\d+", r"\1"),),  # a card, and a number if several pods share it
    "gpu.intel.com": (_PCI,),
    "aws.amazon.com/neuroncore": ((r"(\d+)", r"core\1"),),
    "aws.amazon.com/neuron": ((r"(\d+)", r"neuron\1"),),
    "neuron.aws.com": ((r"neuron-device-(\d+)", r"neuron\1"),),
    "google.com/tpu": ((r"(\d+)", r"tpu\1"),),
}
"""
The names that device plugins, and drivers of dynamic resource allocation, give to devices; and our names for these.

The keys are prefixes of resources. For a prefix with `/`, a name of another form is not an accelerator: a network card,
or a resource for monitoring. For other prefixes, such a name stays as it is.
Sources: CanonicalName in NVIDIA/k8s-dra-driver-gpu and ROCm/k8s-gpu-dra-driver,
DeviceUIDFromPCIinfo in intel/intel-resource-drivers-for-kubernetes, gpu_plugin.go in
intel/intel-device-plugins-for-kubernetes, Google's names in NVIDIA/dcgm-exporter's transformation/kubernetes.go,
AMD's in ROCm/k8s-device-plugin (internal/pkg/plugin, docs on resource names), ResourceSlices of EKS for neuron.aws.com.
"""
KEPT: Final = 60.0
"""Seconds for which the kubelet's last answer is used while the kubelet does not answer."""
NO_GPUS: Final = ("amd.com/nic", "amd.com/vnic")
"""Resources whose devices look like GPUs and are network cards, named by PCI address."""
REPLICA: Final = re.compile(r"(::|/vgpu|-slice-)\d+$")
"""End of the name of a device that several pods share: the plugins of NVIDIA, Google and AMD (timeslice.go)."""
CDI: Final = re.compile(r"(?:k8s\.)?([^/=]+)/([^=]+)=(?:[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}-)?(?!common$)(.+)")
"""
The name of a device for the container's runtime: vendor, class and device, which may have a claim's uid before it.

Older kubelets name the devices of a claim only in this way. Source: GetClaimDeviceName in NVIDIA/k8s-dra-driver-gpu.
"""
METHOD: Final = "/v1.PodResourcesLister/List"
"""https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto , since Kubernetes 1.20."""
TIMEOUT: Final = 1.0
"""Seconds to wait for an answer of the kubelet, which has it in memory."""
MAX_BYTES: Final = 16 << 20
"""Most bytes of an answer, as in Kubernetes' own client. 250 pods have 0.1 MB; a plugin with a device a MiB, over 4."""


class KubeletFailed(Exception):
    """The kubelet's socket exists, and no usable answer came; the message says why."""


class Kubelet:
    """A client of the kubelet's service for pod resources. grpcio (22 MB) is loaded only if the socket exists."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._channel: Any = None
        self.present = False
        """True if the socket existed at the last call."""

    def devices(self) -> Iterator[Allocation]:
        """Yield the accelerators of all containers, none if there is no socket; raise KubeletFailed."""
        self.present = os.path.exists(self.socket)  # noqa: PTH110  # a Path raises PermissionError
        if not self.present:
            self.close()
            return
        try:
            yield from pod_devices(self._list())
        except ValueError as problem:
            raise KubeletFailed(f"{self.socket}: {problem}") from None

    def close(self) -> None:
        """Close the channel; safe to call twice."""
        close_all(self._channel)
        self._channel = None

    def _list(self) -> bytes:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else it writes to standard error when the kubelet restarts
        try:
            grpc: Any = importlib.import_module("grpc")
        except ImportError:
            raise KubeletFailed(f"{self.socket}: grpcio is not installed: {get_extra('kubernetes')}") from None
        if self._channel is None:
            options = [("grpc.max_receive_message_length", MAX_BYTES), ("grpc.enable_http_proxy", 0)]
            self._channel = grpc.insecure_channel(f"unix:{self.socket}", options)
        try:
            return bytes(self._channel.unary_unary(METHOD)(b"", timeout=TIMEOUT))
        except grpc.RpcError as error:
            self.close()  # a channel that failed waits up to two minutes
            raise KubeletFailed(f"{self.socket}: {error.details()} [{error.code().name}]") from None


def pod_devices(answer: bytes) -> Iterator[Allocation]:
    """Yield the accelerators in a ListPodResourcesResponse, by our names; raise ValueError if it is malformed."""
    for pod in messages(answer, 1):
        name, namespace = text_in(pod, 1), text_in(pod, 2)
        for container in messages(pod, 3):
            owner = Owner(KUBERNETES, name, namespace=namespace, pod=name, container=text_in(container, 1))
            for resource, device in _given(container):
                if ours := _our_name(resource, device):
                    yield Allocation(ours, owner, "kubelet")


def _given(container: bytes) -> Iterator[tuple[str, str]]:
    """Yield each device of a container: its resource (of a claim, the driver), and the plugin's name for it."""
    for devices in messages(container, 2):
        if _prefix(resource := text_in(devices, 1)):  # others are not read: a plugin may have a device for each MiB
            yield from ((resource, device.decode("utf-8")) for device in messages(devices, 2))
    for claim in messages(container, 5):  # dynamic resource allocation
        for resource_of in messages(claim, 4):
            if device_name := text_in(resource_of, 4):
                yield text_in(resource_of, 2), device_name
            else:
                yield from _by_runtime(messages(resource_of, 1))


def _by_runtime(devices: Iterable[bytes]) -> dict[tuple[str, str], None]:
    """Return the driver and the device in names for the container's runtime, each pair once."""
    named: dict[tuple[str, str], None] = {}
    for device in devices:
        if match := CDI.fullmatch(text_in(device, 1)):
            vendor, kind, name = match.groups()
            named[(vendor if vendor in RESOURCES else f"{kind}.{vendor}"), name] = None
    return named


class Allocations:
    """Reads the allocations of devices to jobs from the first source that exists: a mapping folder, or the kubelet."""

    def __init__(
        self, root: Path, mapping: Path | None, kubelet: Path | None, environ: Mapping[str, str] = os.environ
    ) -> None:
        """
        Take the host's /, and perhaps the only mapping folder to use, and the kubelet's socket.

        Without `mapping`, the first known folder that exists is used; without `kubelet`, the usual socket below `root`.
        """
        self._folders = mapping_folders(root, mapping, environ)
        self._kubelet = Kubelet(kubelet or root / "var/lib/kubelet/pod-resources/kubelet.sock")
        self.source = ""
        """The source of the last reading: a folder or a socket; "" if there is none."""
        self.missing: dict[str, str] = {}
        """The reason for each source that could not be read."""
        self._answer: list[Allocation] = []
        """The last answer of the kubelet."""
        self._answered = -math.inf
        """Time of the last answer (monotonic seconds)."""

    def read(self) -> list[Allocation]:
        """Return the devices that are allocated now, none if there is no source."""
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
            break  # no job has a device, or nothing writes there: ask the kubelet
        try:
            allocations = list(islice(self._kubelet.devices(), MAX_FILES))
            if self._kubelet.present:
                self._answer, self._answered = allocations, time.monotonic()
        except KubeletFailed as failure:
            self.missing["kubelet"] = str(failure)
        if time.monotonic() - self._answered > KEPT:
            return []
        self.source = f"{self._kubelet.socket}"
        return self._answer

    def close(self) -> None:
        """Close the connection to the kubelet."""
        self._kubelet.close()


def _mapped(folder: str) -> Iterator[Allocation]:
    """Yield the jobs of each device in a mapping folder; raise OSError if there is no such folder."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, MAX_FILES) if NAME.fullmatch(entry.name))
    for name in names:
        device = name if name[0].isalpha() else name.replace("-", ".")
        try:
            words = read_small(f"{folder}/{name}", MAX_MAPPING).decode("ascii", "replace").split()
        except (FileNotFoundError, IsADirectoryError):
            continue  # the device's job has ended
        for job in filter(JOB.fullmatch, words[:MAX_JOBS]):
            yield Allocation(device, Owner(SLURM, job), "mapping")


def _prefix(resource: str) -> str:
    """Return the key of RESOURCES for a resource; "" if its devices are not accelerators."""
    return "" if resource in NO_GPUS else next((prefix for prefix in RESOURCES if resource.startswith(prefix)), "")


def _our_name(resource: str, device: str) -> str:
    """Return our name for a plugin's device; "" if it is not an accelerator."""
    prefix, name = _prefix(resource), REPLICA.sub("", device)
    forms = ((re.fullmatch(pattern, name), ours) for pattern, ours in RESOURCES.get(prefix, ()))
    return next((match.expand(ours) for match, ours in forms if match), name if prefix and prefix[-1] != "/" else "")
