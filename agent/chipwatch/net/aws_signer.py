"""
Signs requests by AWS Signature Version 4 (IAM's User Guide, "Create a signed AWS API request").

botocore finds the keys in a separate process, which ends with its answer: in the agent it would take 10 MB.
"""

from __future__ import annotations

import hmac
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from chipwatch.contract.errors import Refused, Retryable, os_text

LIMIT: Final = 60
"""Most seconds for all sources of credentials together."""
STAMP: Final = "%Y%m%dT%H%M%SZ"
"""Form of a time (UTC) in signatures; as texts, times in it sort by time."""
UNSIGNED: Final = frozenset({"user-agent", "expect", "transfer-encoding"})
"""Headers that are not signed, since a proxy may change them."""
PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.readline()); from chipwatch.net.aws_login import main; main()"
)


class Login(NamedTuple):
    """The options for an identity at AWS; None leaves the choice to botocore: environment, profile, machine."""

    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None


class AwsAccess(NamedTuple):
    """The AWS region, keys and settings that botocore found in the environment, the shared files or metadata."""

    region: str
    access_key: str
    secret_key: str
    token: str
    """The session token, or ""."""
    renew_at: str
    """Time to find the keys again (STAMP), or "" if they never end."""
    endpoint: str | None = None
    """The address that environment or profile set for CloudWatch."""
    use_fips: bool | None = None
    use_dualstack: bool | None = None
    ca_bundle: str | None = None
    uncompressed: bool | None = None


def ask(login: Login) -> AwsAccess:
    """Return the access that botocore finds for `login`; raise Refused or Retryable, ImportError without botocore."""
    if find_spec("botocore") is None:
        raise ModuleNotFoundError("No module named 'botocore'")
    request = f"{json.dumps(sys.path)}\n{json.dumps(login)}".encode()
    command = [sys.executable, "-I", "-c", PROGRAM]
    try:  # in a separate session, since Ctrl-C is for the agent, and no terminal is asked for a password
        done = subprocess.run(  # noqa: S603  # a program of ours
            command, input=request, capture_output=True, start_new_session=True, timeout=LIMIT + 5, check=False
        )
        kind, *answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as problem:
        why = os_text(problem) if isinstance(problem, OSError) else f"no answer in {LIMIT} s, or a broken one"
        raise Retryable(f"AWS credentials: {sys.executable}: {why}") from None
    if kind == "access":
        return AwsAccess(*answer)
    raise (Refused if kind == "Refused" else Retryable)(*answer)


class Signer:
    """Signs requests to one service of AWS; credentials are found again before they expire."""

    def __init__(self, login: Login, service: str = "monitoring") -> None:
        """Take the service's name in signatures; CloudWatch's is `monitoring`."""
        self._login, self._service, self._renewed = login, service, False
        self._access: AwsAccess | None = None

    def open(self) -> AwsAccess:
        """Find region and credentials, with a configured role the role's; raise Refused or Retryable."""
        self._access = ask(self._login)
        return self._access

    def sign(self, url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """Return `headers` with the signature of this POST added; raise Retryable or Refused without credentials."""
        now, access = time.strftime(STAMP, time.gmtime()), self._access
        if access is None or "" < access.renew_at <= now:
            access = self.open()
        return {**headers, **signature(url, body, headers, access, self._service, now)}

    def worked(self) -> None:
        """Note that the service has accepted a signature."""
        self._renewed = False

    def expired(self, why: str) -> Exception:
        """Drop the credentials, which the service calls expired or unknown; return the exception to raise."""
        self._access = None
        if self._renewed:
            return Refused(
                "the AWS credentials are expired or unknown, and no valid ones are found; log in again"
                f" (`aws sso login`), or set new keys ({why})"
            )
        self._renewed = True
        return Retryable(f"the AWS credentials are read again ({why})")


def signature(  # noqa: PLR0917  # in the order in which they are signed
    url: str, body: bytes, headers: Mapping[str, str], keys: AwsAccess, service: str, now: str
) -> dict[str, str]:
    """Return the headers that sign a POST of `body` to a service at the time `now` (STAMP)."""
    parts, own = urlsplit(url), {"X-Amz-Date": now, **({"X-Amz-Security-Token": keys.token} if keys.token else {})}
    host = parts.netloc.rpartition("@")[2].removesuffix(":443" if parts.scheme == "https" else ":80")
    signed = {name.lower(): " ".join(text.split()) for name, text in {**headers, **own, "Host": host}.items()}
    lines = [f"{name}:{signed[name]}" for name in sorted(signed.keys() - UNSIGNED)]
    names, query = ";".join(line.partition(":")[0] for line in lines), "&".join(sorted(parts.query.split("&")))
    request = ["POST", quote(parts.path or "/", safe="/~"), query, *lines, "", names, sha256(body).hexdigest()]
    scope = f"{now[:8]}/{keys.region}/{service}/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", now, scope, sha256("\n".join(request).encode()).hexdigest()))
    seal = f"AWS4{keys.secret_key}".encode()
    for word in (*scope.split("/"), text):
        seal = hmac.digest(seal, word.encode(), "sha256")
    who = f"Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={seal.hex()}"
    return {**own, "Authorization": f"AWS4-HMAC-SHA256 {who}"}
