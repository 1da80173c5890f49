"""The address of Google's metadata server, and the header of its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chipwatch.net.metadata_service import MetadataService

ROOT: Final = "/computeMetadata/v1"
FLAVOR: Final = {"Metadata-Flavor": "Google"}
"""Header of requests and of Google's answers; AWS uses the same address without it."""
ADDRESS: Final = "169.254.169.254"
NAME: Final = "metadata.google.internal"
"""Host name of that address; replaced by the address, since a DNS lookup may take long outside Google Cloud."""
HOSTS: Final = ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP")
"""Variables with another address and port; the first that is set counts (google.auth.environment_vars)."""
OFF: Final = "NO_GCE_CHECK"
"""If `true`, no request is made (google.auth.environment_vars)."""


def google_service(env: Mapping[str, str]) -> MetadataService:
    """Return the server that `env` names, or the default one; raise NoService."""
    variable = next((name for name in HOSTS if env.get(name)), HOSTS[0])
    host = env.get(variable) or ADDRESS
    return MetadataService(
        f"http://{host.replace(NAME, ADDRESS, 1) if host.partition(':')[0] == NAME else host}", variable
    )
