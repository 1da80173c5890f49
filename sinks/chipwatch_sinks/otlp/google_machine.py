"""A token of Google for each request, from the metadata server of the machine, without google-auth."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.net import metadata_service
from chipwatch.net.faults import is_printable

PROJECT: Final = f"{metadata_service.ROOT}/project/project-id"
TOKEN: Final = f"{metadata_service.ROOT}/instance/service-accounts/default/token?scopes=https://www.googleapis.com/auth/cloud-platform"
"""docs.cloud.google.com/compute/docs/access/authenticate-workloads#applications"""
MARGIN: Final = 225.0
"""Seconds before its end at which a token is replaced: REFRESH_THRESHOLD of google-auth; there is a new one by then."""
OTHERS: Final = re.compile(
    "GOOGLE_(APPLICATION|API|AUTH|CLOUD_QUOTA)_.*|GCE_METADATA_MTLS_MODE|CLOUDSDK_CONTEXT_.*|APPENGINE_RUNTIME"
)
"""Variables that make google-auth fetch another token, or in another way: google.auth.environment_vars."""
WORKLOAD: Final = Path("/var/run/secrets/workload-spiffe-credentials")
"""Certificates to which google-auth binds tokens: google.auth.transport._mtls_helper."""
FILES: Final = ("application_default_credentials.json", "certificate_config.json")
"""Files of gcloud's folder: a login by `gcloud auth application-default login`, and certificates as above."""


class TokenGrant(msgspec.Struct):
    """A token, and the seconds until its end."""

    access_token: str
    expires_in: float


def grant_of(body: bytes) -> TokenGrant | None:
    """Return the token of an answer, None if it has none that HTTP allows."""
    try:
        grant = msgspec.json.decode(body, type=TokenGrant, strict=False)  # seconds may be a text
    except (ValueError, RecursionError):
        return None
    return grant if grant.access_token and is_printable(grant.access_token) else None


class MachineToken:
    """The token of the service account of this machine, or of this pod; fetched again shortly before its end."""

    _token, _until = "", 0.0

    def __init__(self, service: metadata_service.MetadataService, project: str) -> None:
        """Take the server, and the project."""
        self._service, self.project = service, project

    def headers(self, url: str) -> dict[str, str]:
        """Return the token; raise Refused or Retryable."""
        if (asked := time.monotonic()) >= self._until:
            grant = self._fetch()
            self._token, self._until = grant.access_token, asked + grant.expires_in - MARGIN
        return {"authorization": f"Bearer {self._token}"}

    def expire(self) -> None:
        """Fetch another token for the next request."""
        self._until = 0.0

    def _fetch(self) -> TokenGrant:
        try:
            grant = grant_of(_get(self._service, TOKEN))
        except _NoAccount as problem:
            raise Refused(f"Google credentials: {problem}; attach a service account to this machine") from None
        except metadata_service.NoMetadata as problem:
            raise Retryable(f"Google credentials: {problem}") from None
        if grant is None:
            raise Retryable(f"Google credentials: {self._service.url} gives no token")
        return grant


class _NoAccount(metadata_service.NoMetadata):
    """The machine has no service account, or may not use it."""


def find(env: Mapping[str, str] = os.environ) -> MachineToken | None:
    """
    Return this machine's token if google-auth would use it too, None if google-auth should find another one.

    The order is that of cloud.google.com/docs/authentication/application-default-credentials: a file of the
    environment, a login of gcloud, the metadata server.
    """
    if sys.platform != "linux" or env.get(metadata_service.OFF) == "true" or not is_plain(env):
        return None
    try:
        service = metadata_service.google_service(env)
        project = _get(service, PROJECT).decode()
    except (metadata_service.NoService, metadata_service.NoMetadata, OSError, UnicodeDecodeError):
        return None
    return MachineToken(service, env.get("GOOGLE_CLOUD_PROJECT") or env.get("GCLOUD_PROJECT") or project)


def is_plain(env: Mapping[str, str]) -> bool:
    """Return whether no variable, no file of gcloud's and no certificate makes google-auth ask otherwise."""
    gcloud = env.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")  # noqa: PTH111  # Path may raise
    try:
        others = any(env[name] for name in env if OTHERS.fullmatch(name))
        return not others and not any(path.exists() for path in (WORKLOAD, *(Path(gcloud, name) for name in FILES)))
    except OSError:
        return False


def _get(service: metadata_service.MetadataService, path: str) -> bytes:
    """Return the body of an answer; raise NoMetadata."""
    status, body, headers = service.request("GET", path, metadata_service.FLAVOR)
    if headers.get("Metadata-Flavor") != metadata_service.FLAVOR["Metadata-Flavor"]:
        raise metadata_service.NoMetadata(f"{service.url} is not Google's metadata server")
    if status != 200:
        kind = _NoAccount if status in (403, 404) else metadata_service.NoMetadata
        raise kind(f"{service.url}{path.partition('?')[0]} answers {status}")
    return body
