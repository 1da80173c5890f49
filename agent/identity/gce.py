"""Google's metadata server, for Compute Engine instances and nodes of GKE."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from agent.identity.dmi import Hardware
from agent.identity.metadata import NoAnswer, NoService, Service
from agent.identity.source import Answer, Source, Word, fit

ROOT: Final = "/computeMetadata/v1"
DOCUMENT: Final = f"{ROOT}/?recursive=true"
FLAVOR: Final = {"Metadata-Flavor": "Google"}
"""Header of requests and of Google's answers; AWS uses the same address without it."""
ADDRESS: Final = "169.254.169.254"
NAME: Final = "metadata.google.internal"
"""Host name of that address; replaced by the address, because looking it up elsewhere may take long."""
HOSTS: Final = ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP")
"""Variables with another address and port; the first that is set counts (google.auth.environment_vars)."""
OFF: Final = "NO_GCE_CHECK"
"""If `true`, no request is made (google.auth.environment_vars)."""
MAX_BYTES: Final = 4 << 20
"""Size limit of the document: instance and project may have half a MB of attributes each, before JSON's escapes."""
STARTING: Final = 30.0
"""Seconds for which GKE's metadata server may not answer a new pod (https://github.com/r-lib/gargle/issues/186)."""
ELSEWHERE: Final = frozenset({"region", "instance_id", "instance_type", "ami_id"})
"""Dimensions that other platforms have too."""


class NotGoogle(NoAnswer):
    """The server is not Google's."""


class NoMetadata(NoAnswer):
    """Google's server returned no metadata."""


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


class Gce(Source):
    """Project, zone, region, instance, type, image, and in GKE the cluster and its location."""

    name = "GCE"
    words = (
        "gcp_project", "gcp_zone", "region", "instance_id", "instance_type", "ami_id", "k8s_cluster", "k8s_location",
    )  # fmt: skip

    def __init__(self, env: Mapping[str, str], hardware: Hardware, clock: Callable[[], float] = time.monotonic) -> None:
        self._env, self._hardware, self._clock = env, hardware, clock
        self._begun: float | None = None
        self.remote = not (hardware.is_fargate or env.get(OFF) == "true")

    def is_here(self) -> bool:
        """Return whether the hardware is a Google Cloud instance."""
        return self._hardware.is_google

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return all values of the document; on EC2 no request is made."""
        if not self.remote or self._hardware.is_ec2:
            return Answer(trouble=self._why_not())
        self._begun = self._clock() if self._begun is None else self._begun
        try:
            found, origin = _read(self._env)
        except NoService as problem:
            return Answer(trouble=str(problem))
        except (NotGoogle, NoMetadata) as problem:
            return Answer(trouble=str(problem), retry=self.is_here() or isinstance(problem, NoMetadata))
        except NoAnswer as problem:
            return Answer(trouble=f"{problem}{self._on_pods()}", retry=self.is_here() or self._may_be_starting(wanted))
        missing = [word for word in self.words if word in wanted and word not in found]
        return Answer(found, f"{origin} lacks {', '.join(missing)}" if missing else "")

    def _why_not(self) -> str:
        if self._hardware.is_fargate:
            return self._hardware.why
        return f"{OFF} is set" if not self.remote else "this is an EC2 instance"

    def _may_be_starting(self, wanted: Collection[str]) -> bool:
        """Return whether this may be a new GKE pod: a value that only Google has is wanted, the hardware is unknown."""
        assert self._begun is not None
        pod = "KUBERNETES_SERVICE_HOST" in self._env and self._hardware.is_hidden
        return pod and not {*wanted} <= ELSEWHERE and self._clock() - self._begun < STARTING

    def _on_pods(self) -> str:
        blocked = self.is_here() and "KUBERNETES_SERVICE_HOST" in self._env
        return ", though this is Google Cloud; a network policy may block it for pods" if blocked else ""


def _service(env: Mapping[str, str]) -> Service:
    """Return the server that `env` names, or the default one; raise NoService."""
    variable = next((name for name in HOSTS if env.get(name)), HOSTS[0])
    host = env.get(variable) or ADDRESS
    if host.partition(":")[0] == NAME:
        host = host.replace(NAME, ADDRESS, 1)
    return Service(f"http://{host}", variable)


def _read(env: Mapping[str, str]) -> tuple[dict[str, Word], str]:
    """Return the values of the document, and its address; raise NoService, NotGoogle, NoMetadata or NoAnswer."""
    service = _service(env)
    status, body, headers = service.ask("GET", DOCUMENT, FLAVOR, MAX_BYTES)
    if headers.get("Metadata-Flavor") != FLAVOR["Metadata-Flavor"]:
        raise NotGoogle(f"{service.url} is not Google's metadata server")
    origin = f"{service.url}{ROOT}"
    if status != 200:
        raise NoMetadata(f"{origin} answers {status}")
    try:
        return _words(msgspec.json.decode(body, type=_Document), origin), origin
    except (ValueError, RecursionError):  # raised by msgspec for malformed and too deeply nested JSON
        raise NoMetadata(f"{origin} is not metadata") from None


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
