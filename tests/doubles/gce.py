"""
Google's metadata server on loopback: that of a virtual machine, and the one that GKE puts before it for pods.

It refuses what the real one does: 403 without `Metadata-Flavor: Google`, or with `X-Forwarded-For`. All that it answers
has that header. The shapes come from answers that people on virtual machines and in pods of GKE have published, keys as
in Google's "Predefined metadata keys"; the values are invented.
"""

import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.doubles.web import WebDouble, give, reset

SECRET = "s3cr3t-of-somebody"
VM: dict[str, Any] = {
    "instance": {
        "attributes": {"ssh-keys": f"me:ssh-rsa {SECRET}", "startup-script": f"#! /bin/bash\nexport TOKEN={SECRET}\n"},
        "cpuPlatform": "Intel Sapphire Rapids",
        "description": "",
        "disks": [{"deviceName": "boot", "index": 0, "interface": "NVME", "mode": "READ_WRITE", "type": "PERSISTENT"}],
        "hostname": "trainer-7.us-central1-a.c.ml-research-417.internal",
        "id": 7857118082129425417,
        "image": "projects/ml-images/global/images/common-cu124-debian-12-v20260901",
        "licenses": [{"id": "4324324324234234234"}],
        "machineType": "projects/518549494526/machineTypes/a3-highgpu-8g",
        "maintenanceEvent": "NONE",
        "name": "trainer-7",
        "preempted": "FALSE",
        "serviceAccounts": {"default": {"aliases": ["default"], "email": "agent@x.iam.gserviceaccount.com"}},
        "tags": ["trainers"],
        "zone": "projects/518549494526/zones/us-central1-a",
    },
    "oslogin": {"authenticate": {"sessions": {}}},
    "project": {
        "attributes": {"windows-keys": SECRET},
        "numericProjectId": 518549494526,
        "projectId": "ml-research-417",
    },
}
"""Of a virtual machine."""
POD: dict[str, Any] = {
    "instance": {
        "attributes": {"cluster-location": "us-central1", "cluster-name": "gpu-1", "cluster-uid": "c94d71e8"},
        "hostname": "gke-gpu-1-a3-cb28af13-024g.us-central1-f.c.ml-research-417.internal",
        "id": 3459945890685455413,
        "serviceAccounts": {"default": {"aliases": ["default"], "email": "ml-research-417.svc.id.goog"}},
        "zone": "projects/518549494526/zones/us-central1-f",
    },
    "project": {"numericProjectId": 518549494526, "projectId": "ml-research-417"},
}
"""For a pod of GKE with Workload Identity: less, and the cluster."""


class Gce(WebDouble):
    """
    A metadata server; every setting may be changed while it runs.

    `trouble`: what becomes of each request instead of an answer: "hang", "reset" (as where nobody listens yet) or a status,
    until `trouble_until` (monotonic seconds).
    """

    def __init__(self, document: Any = None) -> None:
        self.document: Any = VM if document is None else document
        self.flavor = "Google"
        """The header of its answers; empty: none, as at the same address on AWS."""
        self.trouble: str | int = ""
        self.trouble_until = float("inf")
        self.token: Any = {"expires_in": 3599, "token_type": "Bearer"}
        """The answer of the attached service account, if it is not a text with a numbered `access_token`; None: no account."""
        self.given = 0
        """Tokens that were given."""
        self.requests: list[str] = []
        """Method and path of each request, in the order in which they came."""
        self.headers: list[dict[str, str]] = []
        super().__init__()
        self.host = f"127.0.0.1:{self.port}"
        """As GCE_METADATA_HOST has it."""

    def starts_in(self, seconds: float, trouble: str | int = "reset") -> None:
        """Be in `trouble` for that many seconds from now on."""
        self.trouble, self.trouble_until = trouble, time.monotonic() + seconds

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        self.requests.append(f"{http.command} {http.path}")
        self.headers.append(dict(http.headers))
        trouble = self.trouble if time.monotonic() < self.trouble_until else ""
        if trouble == "hang":
            self.closed.wait(5)
            http.close_connection = True
            return
        if trouble == "reset":
            reset(http)
            return
        status, body = (int(trouble), b"") if trouble else self._answer(http)
        flavor = {"Metadata_Flavor": self.flavor} if self.flavor else {}
        kind = "application/json" if body.startswith(b"{") else "application/text"
        give(http, status, body, Content_Type=kind, **flavor)

    def _answer(self, http: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        if http.headers.get("Metadata-Flavor") != "Google" or "X-Forwarded-For" in http.headers:
            return 403, b"Forbidden"
        if http.command != "GET":
            return 405, b"Method Not Allowed"
        url = urlsplit(http.path)
        found = self._find(url.path)
        if url.path == "/computeMetadata/v1/instance/service-accounts/default/token":
            found = self._token()
        if found is None:
            return 404, b"Not Found"
        if isinstance(found, bytes):
            return 200, found
        if parse_qs(url.query).get("recursive") == ["true"]:
            return 200, json.dumps(found).encode()
        if isinstance(found, dict):
            found = "\n".join(f"{key}/" if isinstance(of, dict) else key for key, of in found.items())
        return 200, str(found).encode()

    def _token(self) -> bytes | None:
        if not isinstance(self.token, dict):
            return self.token
        self.given += 1
        return json.dumps({"access_token": f"ya29.{self.given}", **self.token}).encode()

    def _find(self, path: str) -> Any:
        """Return what is at a path, whose keys have hyphens where the document's have capitals."""
        found: Any = {"computeMetadata": {"v1": self.document}}
        for key in filter(None, path.split("/")):
            first, *rest = key.split("-")
            camel = first + "".join(word.title() for word in rest)
            found = found.get(key, found.get(camel)) if isinstance(found, dict) else None
        return found
