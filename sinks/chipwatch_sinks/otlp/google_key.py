"""A token of Google for each request, by the key file of a service account, without google-auth; see decision 0061."""

from __future__ import annotations

import hashlib
import os
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.net.faults import url_fault
from chipwatch.net.http_client import ClientTls, HttpClient, retry_after
from chipwatch_sinks.otlp.google_machine import CachedToken, TokenGrant, grant_of, is_plain

VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
AUDIENCE: Final = "https://oauth2.googleapis.com/token"
GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
"""developers.google.com/identity/protocols/oauth2/service-account#authorizingrequests"""
HOUR: Final = 3600
TIMEOUT: Final = 10.0
"""Seconds for the server of tokens to answer."""
MAX_BYTES: Final = 1 << 20
"""Size limit of the file, and of an answer with a token."""
SHA256: Final = bytes.fromhex("3031300d060960864801650304020105000420")
"""DigestInfo of SHA-256, before the hash: RFC 8017, section 9.2."""
MAX_BITS: Final = 8192
"""Size limit of a key's integers, so that signing takes less than a second; Google's own keys have 2048 bits."""
FORMS: Final = ("PRIVATE KEY", "RSA PRIVATE KEY")
"""Labels of a key in PEM: PKCS #8, and PKCS #1 alone."""


class _File(msgspec.Struct):
    type: Literal["service_account"]
    client_email: str
    private_key: str
    token_uri: str
    private_key_id: str = ""
    project_id: str = ""
    universe_domain: Literal["googleapis.com"] = "googleapis.com"


class RsaKey(NamedTuple):
    """The integers of a private key: RFC 8017, appendix A.1.2."""

    version: int
    n: int
    e: int
    d: int
    p: int
    q: int
    dp: int
    dq: int
    inverse: int

    def sign(self, text: bytes) -> bytes:
        """Return the signature RSASSA-PKCS1-v1_5 with SHA-256; raise ValueError if the key is inconsistent."""
        if max(self).bit_length() > MAX_BITS:
            raise ValueError("too large")
        size, tail = (self.n.bit_length() + 7) // 8, SHA256 + hashlib.sha256(text).digest()
        block = int.from_bytes(b"\0\1" + b"\xff" * (size - 3 - len(tail)) + b"\0" + tail)
        low = pow(block, self.dq, self.q)
        signature = low + self.q * (self.inverse * (pow(block, self.dp, self.p) - low) % self.p)
        if self.version or size < 128 or pow(signature, self.e, self.n) != block:
            raise ValueError("not an RSA key with two primes")
        return signature.to_bytes(size)


def parse_key(pem: str) -> RsaKey:
    """Return the key in a text; raise ValueError or IndexError."""
    _, begin, rest = pem.partition("-----BEGIN ")
    label, _, rest = rest.partition("-----")
    if not begin or label not in FORMS:
        raise ValueError("not a key in PEM")
    parts = _parts(_parts(b64decode(rest.partition("-----")[0]))[0])
    if label == FORMS[0]:
        parts = _parts(_parts(parts[2])[0])
    return RsaKey(*(int.from_bytes(part) for part in parts))


def _parts(der: bytes) -> list[bytes]:
    """Return the contents of a sequence of values in DER."""
    parts = []
    while der:
        size, start = der[1], 2
        if size > 0x80:
            start += size - 0x80
            size = int.from_bytes(der[2:start])
        if len(der) < start + size:
            raise ValueError("the key is cut off")
        parts.append(der[start : start + size])
        der = der[start + size :]
    return parts


class KeyToken(CachedToken):
    """The token of a service account, exchanged for a signed assertion each hour."""

    def __init__(self, file: _File, env: Mapping[str, str]) -> None:
        """Take the content of the file; raise ValueError, IndexError or TypeError if the key has another form."""
        self._file, self._key = file, parse_key(file.private_key)
        self._key.sign(b"")  # proves that it can
        authority = env.get("REQUESTS_CA_BUNDLE")  # which google-auth's own transport obeys
        self._tls = ClientTls(ca_file=Path(authority) if authority else None, ca_option="REQUESTS_CA_BUNDLE")
        self.project = env.get("GOOGLE_CLOUD_PROJECT") or env.get("GCLOUD_PROJECT") or file.project_id

    def assertion(self, now: int) -> str:
        """Return the signed request for a token at `now` (s since the epoch): RFC 7523."""
        head = {"typ": "JWT", "alg": "RS256", "kid": self._file.private_key_id}
        claims = {"iat": now, "exp": now + HOUR, "iss": self._file.client_email, "aud": AUDIENCE, "scope": SCOPE}
        text = b".".join(map(_encoded, map(msgspec.json.encode, (head, claims))))
        return (text + b"." + _encoded(self._key.sign(text))).decode()

    def _fetch(self) -> TokenGrant:
        client = HttpClient(self._file.token_uri, timeout=TIMEOUT, max_bytes=MAX_BYTES, tls=self._tls)
        form = urlencode({"assertion": self.assertion(int(time.time())), "grant_type": GRANT}).encode()
        try:
            answer = client.post(form, {"content-type": "application/x-www-form-urlencoded"})
        except (Refused, Retryable) as problem:
            raise type(problem)(f"Google credentials: {problem}") from None
        finally:
            client.close()
        status = answer.status
        if status == 200 and (grant := grant_of(answer.body)):
            return grant
        words = answer.says(f"{status} {answer.body.decode(errors='replace')}").strip()
        text = f"Google credentials: {self._file.token_uri} gives no token ({words})"
        if status in (408, 429) or not 400 <= status < 500:
            raise Retryable(text, after=retry_after(answer.headers))
        raise Refused(f"{text}; check the account, its key and the clock of this machine")


def find(env: Mapping[str, str] = os.environ) -> KeyToken | None:
    """Return the token of a usual key file that the environment names; None where google-auth is to judge."""
    path = env.get(VARIABLE)
    if not path or not is_plain({name: text for name, text in env.items() if name != VARIABLE}):
        return None
    try:
        with Path(path).open("rb") as opened:
            file = msgspec.json.decode(opened.read(MAX_BYTES), type=_File)
        return None if url_fault(file.token_uri) else KeyToken(file, env)
    except (OSError, ValueError, IndexError, TypeError, ZeroDivisionError, RecursionError):
        return None


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
