"""Google's metadata server, for Compute Engine instances and nodes of GKE."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from chipwatch.identity.dmi import DmiTables
from chipwatch.identity.names import places
from chipwatch.identity.source import RemoteSource, Word, fit, values_of
from chipwatch.net.metadata_service import FLAVOR, OFF, ROOT, NoMetadata, NoService, google_service

DOCUMENT: Final = f"{ROOT}/?recursive=true"
MAX_BYTES: Final = 4 << 20
"""Size limit of the document: instance and project may have half a MB of attributes each, before JSON's escapes."""
STARTING: Final = 30.0
"""Seconds for which GKE's metadata server may not answer a new pod (https://github.com/r-lib/gargle/issues/186)."""
ELSEWHERE: Final = frozenset({"region", "instance_id", "instance_type", "ami_id"})
"""Dimensions that other platforms have too."""


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
        return _words(body, origin), origin


def _words(body: bytes, origin: str) -> dict[str, Word]:
    words = values_of(body, places("GCE"), origin, "metadata")
    zone = words["gcp_zone"].value if "gcp_zone" in words else ""
    return words | fit({"region": zone.rpartition("-")[0]}, origin)
