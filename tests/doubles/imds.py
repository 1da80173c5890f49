"""
EC2's instance metadata service on loopback, version 2 only, as strict as the real one and as moody.

What it refuses, it refuses as AWS's user guide says: 401 without a token or with an old one, 400 for a lifetime out of
bounds, 403 where the service is switched off or the request came through a proxy.
"""

import json
import secrets
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.doubles.web import WebDouble, give, reset

DOCUMENT: dict[str, Any] = {
    "accountId": "123456789012",
    "architecture": "x86_64",
    "availabilityZone": "us-west-2b",
    "billingProducts": None,
    "devpayProductCodes": None,
    "marketplaceProductCodes": None,
    "imageId": "ami-5fb8c835",
    "instanceId": "i-1234567890abcdef0",
    "instanceType": "trn1.32xlarge",
    "kernelId": None,
    "pendingTime": "2026-11-19T16:32:19Z",
    "privateIp": "10.158.112.84",
    "ramdiskId": None,
    "region": "us-west-2",
    "version": "2017-09-30",
}
"""The shape is that of AWS's user guide, "Instance identity documents"."""
ROOT = "/latest/meta-data"


class Imds(WebDouble):
    """
    A metadata service; every setting may be changed while it runs.

    `hops` too few: the answer to the PUT does not arrive ("hang"), or the connection is cut ("reset"). `silent_until`
    (monotonic seconds): until then no request is answered at all. `tags` None: not shown.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.document: Any = dict(DOCUMENT)
        self.tags: dict[str, str] | None = None
        self.enabled = True
        self.hops = ""
        self.silent_until = 0.0
        self.delay = 0.0
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        """By path, instead of the ordinary ones: status, headers, body."""
        self.requests: list[str] = []
        """Method and path of each request, in the order in which they came."""
        self._tokens: dict[str, float] = {}
        super().__init__(host)

    def forget(self) -> None:
        """Let every token be old."""
        self._tokens.clear()

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        self.requests.append(f"{http.command} {http.path}")
        if time.monotonic() < self.silent_until:
            self.closed.wait(5)
            http.close_connection = True
            return
        self.closed.wait(self.delay)
        if http.command == "PUT" and self.hops:
            self._lose(http)
            return
        status, headers, body = self.answers.get(http.path) or self._answer(http)
        give(http, status, body, **headers)

    def _lose(self, http: BaseHTTPRequestHandler) -> None:
        http.close_connection = True
        if self.hops == "hang":
            self.closed.wait(5)
        else:
            reset(http)

    def _answer(self, http: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        if not self.enabled or "X-Forwarded-For" in http.headers:
            return 403, {}, b""
        if http.command == "PUT":
            return self._new_token(http)
        if self._tokens.get(http.headers.get("X-aws-ec2-metadata-token", ""), 0) < time.monotonic():
            return 401, {}, b""
        found = self._tree().get(http.path)
        return (404, {}, b"") if found is None else (200, {"Content-Type": "text/plain"}, found.encode())

    def _new_token(self, http: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        lifetime = http.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if http.path != "/latest/api/token" or not (lifetime.isdecimal() and 1 <= int(lifetime) <= 21600):
            return 400, {}, b""
        token = secrets.token_urlsafe(42)
        self._tokens[token] = time.monotonic() + int(lifetime)
        return 200, {"X-aws-ec2-metadata-token-ttl-seconds": lifetime}, token.encode()

    def _tree(self) -> dict[str, str]:
        document = self.document if isinstance(self.document, str) else json.dumps(self.document, indent=2)
        tree = {"/latest/dynamic/instance-identity/document": document, f"{ROOT}/services/domain": "amazonaws.com"}
        if self.tags is not None:
            tree[f"{ROOT}/tags/instance"] = "\n".join(self.tags)
            tree |= {f"{ROOT}/tags/instance/{key}": value for key, value in self.tags.items()}
        return tree

    def tokens(self) -> list[str]:
        """Return the tokens that are good now."""
        return list(self._tokens)
