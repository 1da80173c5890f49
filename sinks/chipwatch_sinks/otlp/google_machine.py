"""Google's access token from the machine's metadata server, without the library google-auth."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.net import metadata_service

PROJECT: Final = f"{metadata_service.ROOT}/project/project-id"
TOKEN: Final = f"{metadata_service.ROOT}/instance/service-accounts/default/token?scopes=https://www.googleapis.com/auth/cloud-platform"
"""Where a token is fetched: docs.cloud.google.com/compute/docs/access/authenticate-workloads#applications."""
MARGIN: Final = 225.0
"""Seconds before its end at which a token is replaced, as google-auth does (REFRESH_THRESHOLD)."""
OTHERS: Final = re.compile(
    "GOOGLE_(APPLICATION|API|AUTH|CLOUD_QUOTA)_.*|GCE_METADATA_MTLS_MODE|CLOUDSDK_CONTEXT_.*|APPENGINE_RUNTIME"
)
"""Variables with which google-auth finds another token, or asks in another way: google.auth.environment_vars."""
WORKLOAD: Final = Path("/var/run/secrets/workload-spiffe-credentials")
"""Folder of certificates to which google-auth binds tokens: google.auth.transport._mtls_helper."""
FILES: Final = ("application_default_credentials.json", "certificate_config.json")
"""Files in gcloud's folder: a login by `gcloud auth application-default login`, and the use of certificates."""


class TokenGrant(msgspec.Struct):
    """The metadata server's answer: a token, and the seconds until its end."""

    access_token: Annotated[str, msgspec.Meta(pattern=r"\A[ -~]+\Z")]  # what a header can carry
    expires_in: float


class MachineToken:
    """The token of this machine's or pod's service account; it is fetched again shortly before its end."""

    _token, _until = "", 0.0

    def __init__(self, service: metadata_service.MetadataService, project: str) -> None:
        """Take the metadata server, and the project."""
        self._service, self.project = service, project

    def headers(self, url: str) -> dict[str, str]:
        """Return the header with the token; raise Refused or Retryable."""
        asked = time.monotonic()
        if asked >= self._until:
            wrong = f"{self._service.url} gives no token"
            try:  # the seconds may be a text
                grant = metadata_service.parse_json(_get(self._service, TOKEN), TokenGrant, wrong, strict=False)
            except _NoAccount as problem:
                raise Refused(f"Google credentials: {problem}; attach a service account to this machine") from None
            except metadata_service.NoMetadata as problem:
                raise Retryable(f"Google credentials: {problem}") from None
            self._token, self._until = grant.access_token, asked + grant.expires_in - MARGIN
        return {"authorization": f"Bearer {self._token}"}

    def expire(self) -> None:
        """Have the next request fetch another token."""
        self._until = 0.0


class _NoAccount(metadata_service.NoMetadata):
    """This machine has no service account, or the account has no token."""


def machine_token(env: Mapping[str, str] = os.environ) -> MachineToken | None:
    """
    Return this machine's token if google-auth would use it too; None if google-auth should be asked.

    google-auth prefers a file that a variable names, then gcloud's login, then the metadata server:
    cloud.google.com/docs/authentication/application-default-credentials.
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
    """Return True if no variable, gcloud file or certificate makes google-auth act differently from MachineToken."""
    gcloud = env.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")  # noqa: PTH111  # Path may raise
    try:
        others = any(env[name] for name in env if OTHERS.fullmatch(name))
        return not others and not any(path.exists() for path in (WORKLOAD, *(Path(gcloud, name) for name in FILES)))
    except OSError:
        return False


def _get(service: metadata_service.MetadataService, path: str) -> bytes:
    """Return the metadata server's answer; raise NoMetadata."""
    status, body, headers = service.request("GET", path, metadata_service.FLAVOR)
    if headers.get("metadata-flavor") != metadata_service.FLAVOR["Metadata-Flavor"]:
        raise metadata_service.NoMetadata(f"{service.url} is not Google's metadata server")
    if status != 200:
        kind = _NoAccount if status in (403, 404) else metadata_service.NoMetadata
        raise kind(f"{service.url}{path.partition('?')[0]} answers {status}")
    return body
