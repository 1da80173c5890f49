"""What Google's metadata server knows of an instance, which may be a node of GKE: one document has it all."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from agent.identity.dmi import Hardware
from agent.identity.metadata import NoService, Service, Silent
from agent.identity.names import known_by
from agent.identity.source import Answer, Source, Word, fit

ROOT: Final = "/computeMetadata/v1"
DOCUMENT: Final = f"{ROOT}/?recursive=true"
FLAVOR: Final = {"Metadata-Flavor": "Google"}
"""Asked with it, Google answers with it; AWS answers at the same address, and without it."""
ADDRESS: Final = "169.254.169.254"
NAME: Final = "metadata.google.internal"
"""The name of that address on Google's machines, where it is given; the look-up of it elsewhere may take long."""
HOSTS: Final = ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP")
"""Another address, with its port: the first that is set (google.auth.environment_vars)."""
OFF: Final = "NO_GCE_CHECK"
"""If it is `true`, nobody is asked (google.auth.environment_vars)."""
MOST: Final = 4 << 20
"""Bytes of the document: an instance and its project may have half a MB of attributes each, and JSON adds to that."""
STARTING: Final = 30.0
"""Seconds in which GKE's metadata server may not answer a new pod yet (https://github.com/r-lib/gargle/issues/186)."""
ELSEWHERE: Final = frozenset({"region", "instance_id", "instance_type", "ami_id"})
"""Words that other platforms have, too."""


class Stranger(Silent):
    """Who answers is not Google's server."""


class Unready(Silent):
    """It is Google's server, and has no metadata to give."""


class _Attributes(msgspec.Struct, rename="kebab"):
    """Two attributes of a node of GKE; the others may be anything, secrets too, and are not looked at."""

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
    All metadata, as far as it is of use.

    Source: https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys; all of it may be missing in GKE.
    """

    instance: _Instance = msgspec.field(default_factory=_Instance)
    project: _Project = msgspec.field(default_factory=_Project)


class Gce(Source):
    """Project, zone and region, instance, type and image, and in GKE the cluster and where it is."""

    name = "GCE"
    words = known_by(name)

    def __init__(self, env: Mapping[str, str], hardware: Hardware, clock: Callable[[], float] = time.monotonic) -> None:
        """Ask the server that `env` names; `hardware` shows whether there should be one."""
        self._env, self._hardware, self._clock = env, hardware, clock
        self._begun: float | None = None
        self.remote = not (hardware.is_fargate or env.get(OFF) == "true")

    def is_here(self) -> bool:
        """Tell whether the hardware says Google."""
        return self._hardware.is_google

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return all that the document says; an EC2 instance is not asked for it."""
        if not self.remote or self._hardware.is_ec2:
            return Answer(trouble=self._why_not())
        self._begun = self._clock() if self._begun is None else self._begun
        try:
            found, origin = _look(self._env)
        except NoService as problem:
            return Answer(trouble=str(problem))
        except (Stranger, Unready) as problem:
            return Answer(trouble=str(problem), retry=self.is_here() or isinstance(problem, Unready))
        except Silent as problem:
            return Answer(trouble=f"{problem}{self._on_pods()}", retry=self.is_here() or self._may_be_starting(wanted))
        missing = [word for word in self.words if word in wanted and word not in found]
        return Answer(found, f"{origin} does not say {', '.join(missing)}" if missing else "")

    def _why_not(self) -> str:
        if self._hardware.is_fargate:
            return self._hardware.why
        return f"{OFF} is set" if not self.remote else "this is an EC2 instance"

    def _may_be_starting(self, wanted: Collection[str]) -> bool:
        """Tell whether this may be a new pod of GKE's: somebody asks for what only Google has, and no table says no."""
        assert self._begun is not None
        pod = "KUBERNETES_SERVICE_HOST" in self._env and self._hardware.is_hidden
        return pod and not {*wanted} <= ELSEWHERE and self._clock() - self._begun < STARTING

    def _on_pods(self) -> str:
        blocked = self.is_here() and "KUBERNETES_SERVICE_HOST" in self._env
        return ", though this is Google's cloud; a network policy may keep pods from it" if blocked else ""


def _service(env: Mapping[str, str]) -> Service:
    """Return the server that `env` names, or the usual one; raise NoService."""
    variable = next((name for name in HOSTS if env.get(name)), HOSTS[0])
    host = env.get(variable) or ADDRESS
    if host.partition(":")[0] == NAME:
        host = host.replace(NAME, ADDRESS, 1)
    return Service(f"http://{host}", variable)


def _look(env: Mapping[str, str]) -> tuple[dict[str, Word], str]:
    """Return what the document says, and where it is; raise NoService, Stranger, Unready or Silent."""
    service = _service(env)
    status, body, headers = service.ask("GET", DOCUMENT, FLAVOR, MOST)
    if headers.get("Metadata-Flavor") != FLAVOR["Metadata-Flavor"]:
        raise Stranger(f"{service.url} is not Google's metadata server")
    origin = f"{service.url}{ROOT}"
    if status != 200:
        raise Unready(f"{origin} answers {status}")
    try:
        return _words(msgspec.json.decode(body, type=_Document), origin), origin
    except (ValueError, RecursionError):  # of msgspec, for what is malformed and for what is nested without end
        raise Unready(f"{origin} is no metadata") from None


def _words(document: _Document, origin: str) -> dict[str, Word]:
    """Return the words of the document; what is named by its path (projects/NUMBER/zones/ZONE) ends with its name."""
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
