"""Google's metadata server, for Compute Engine instances and nodes of GKE."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from chipwatch.identity.dmi import DmiTables
from chipwatch.identity.metadata import RemoteSource
from chipwatch.identity.source import Word, fit
from chipwatch.net.google_metadata import FLAVOR, OFF, ROOT, google_service
from chipwatch.net.metadata_service import NoMetadata, NoService, decode

DOCUMENT: Final = f"{ROOT}/?recursive=true"
MAX_BYTES: Final = 4 << 20
"""Size limit of the document: instance and project may have half a MB of attributes each, before JSON's escapes."""
STARTING: Final = 30.0
"""Seconds for which GKE's metadata server may not answer a new pod (https://github.com/r-lib/gargle/issues/186)."""
ELSEWHERE: Final = frozenset({"region", "instance_id", "instance_type", "ami_id"})
"""Dimensions that other platforms have too."""


class _Attributes(msgspec.Struct, rename="kebab"):
    """Two attributes of a GKE node; others are ignored, since they may be secret."""

    cluster_name: str | None = None
    cluster_location: str | None = None


class _Instance(msgspec.Struct, rename="camel"):
    id: int | str | None = None
    zone: str | None = None
    machine_type: str | None = None
    image: str | None = None
    attributes: _Attributes | None = None


class _Project(msgspec.Struct, rename="camel"):
    project_id: str | None = None


class _Document(msgspec.Struct):
    """
    The needed part of the metadata; in GKE any of it may be missing.

    Source: https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys
    """

    instance: _Instance = msgspec.field(default_factory=_Instance)
    project: _Project = msgspec.field(default_factory=_Project)


class Gce(RemoteSource):
    """Project, zone, region, instance, type, image, and in GKE the cluster and its location."""

    name = "GCE"

    def __init__(
        self, env: Mapping[str, str], hardware: DmiTables, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._env, self._hardware, self._clock = env, hardware, clock
        self._first_request: float | None = None
        self._has_answered = False
        self.remote = not (hardware.is_fargate or env.get(OFF) == "true")

    def is_here(self) -> bool:
        return self._hardware.is_google or self._has_answered

    def read(self, wanted: Collection[str]) -> tuple[dict[str, Word], str]:
        """Return all values of the document; on EC2, whose service has the same address, no request is made."""
        if self._hardware.is_fargate:
            raise NoService(self._hardware.why)
        if not self.remote or self._hardware.is_ec2:
            raise NoService("this is an EC2 instance" if self.remote else f"{OFF} is set")
        self._first_request = self._clock() if self._first_request is None else self._first_request
        service = google_service(self._env)
        try:
            status, body, headers = service.request("GET", DOCUMENT, FLAVOR, MAX_BYTES)
        except NoMetadata as problem:
            is_pod = "KUBERNETES_SERVICE_HOST" in self._env
            policy = ", though this is Google Cloud; a network policy may block it for pods"
            why = f"{problem}{policy if is_pod and self.is_here() else ''}"
            # A new GKE pod, if the hardware is hidden and a value is wanted that only Google has.
            may_start = is_pod and self._hardware.is_hidden and not {*wanted} <= ELSEWHERE
            raise NoMetadata(why, retry=may_start and self._clock() - self._first_request < STARTING) from None
        if headers.get("Metadata-Flavor") != FLAVOR["Metadata-Flavor"]:
            raise NoMetadata(f"{service.url} is not Google's metadata server")
        self._has_answered = True
        origin = f"{service.url}{ROOT}"
        if status != 200:
            raise NoMetadata(f"{origin} answers {status}")
        return _words(decode(body, _Document, f"{origin} is not metadata"), origin), origin


def _words(document: _Document, origin: str) -> dict[str, Word]:
    """Return the values of the document; some are paths (projects/NUMBER/zones/ZONE), of which the last part counts."""
    instance, attributes = document.instance, document.instance.attributes or _Attributes()
    zone = _last(instance.zone)
    values = {
        "gcp_project": document.project.project_id,
        "gcp_zone": zone,
        "region": zone.rpartition("-")[0],
        "instance_id": None if instance.id is None else str(instance.id),
        "instance_type": _last(instance.machine_type),
        "ami_id": _last(instance.image),
        "k8s_cluster": attributes.cluster_name,
        "k8s_location": attributes.cluster_location,
    }
    return fit(values, origin)


def _last(path: str | None) -> str:
    return (path or "").rpartition("/")[2]
