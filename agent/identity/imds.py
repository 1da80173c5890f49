"""
EC2's instance metadata service, version 2 only.

Source: AWS, "Use the Instance Metadata Service to access instance metadata". Every request carries a token, which a
PUT gets. The answer to that PUT crosses as many hops as the instance allows: one by default, so that it never reaches
a container behind a bridge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from agent.identity.dmi import Hardware
from agent.identity.metadata import NoService, Service, Silent

DOCUMENT: Final = "/latest/dynamic/instance-identity/document"
TAGS: Final = "/latest/meta-data/tags/instance"
DOMAIN: Final = "/latest/meta-data/services/domain"

ENDPOINT: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
MODE: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"
DISABLED: Final = "AWS_EC2_METADATA_DISABLED"
"""As the AWS SDKs have it ("AWS SDKs and Tools Reference Guide", IMDS client)."""
LIFETIME: Final = 60
"""Seconds of a token: one look is all that it is for."""
TOKEN: Final = re.compile(rb"[!-~]{1,1024}")


class Imds:
    """One session: a token and what is got with it."""

    def __init__(self, env: Mapping[str, str], hardware: Hardware) -> None:
        """Take the address from `env`, as the SDKs do; raise NoService where it is switched off or refused."""
        if env.get(DISABLED, "").lower() == "true":
            raise NoService(f"{DISABLED} is set")
        six = env.get(MODE, "").lower() == "ipv6"
        address = env.get(ENDPOINT) or ("http://[fd00:ec2::254]" if six else "http://169.254.169.254")
        self._service, self._hardware, self._token = Service(address, ENDPOINT), hardware, ""
        self.url = self._service.url

    @property
    def spoke(self) -> bool:
        """Whether it gave a token, as only EC2 does."""
        return self._token != ""

    def get(self, path: str) -> bytes | None:
        """Return what is at `path`, None if nothing is; raise Silent with what to do. An old token is renewed once."""
        status, body = self._get(path)
        if status == 401:
            self._token = ""
            status, body = self._get(path)
        if status == 404:
            return None
        if status != 200:
            raise Silent(f"{self.url}{path} answers {status}")
        return body

    def _get(self, path: str) -> tuple[int, bytes]:
        self._token = self._token or self._new_token()
        return self._service.request("GET", path, {"X-aws-ec2-metadata-token": self._token})

    def _new_token(self) -> str:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(LIFETIME)}
        try:
            status, body = self._service.request("PUT", "/latest/api/token", lifetime)
        except Silent as problem:
            raise Silent(f"{problem}{self._on_hops()}") from None
        if status == 403:
            raise Silent(f"{self.url} gives no token (403){self._on_switch()}")
        if status != 200 or not TOKEN.fullmatch(body):
            raise Silent(f"{self.url} gives no token ({status})")
        return body.decode()

    def _on_hops(self) -> str:
        if not self._hardware.is_ec2:
            return ""
        mend = modify(self._hardware, "--http-put-response-hop-limit 2")
        return f", though this is EC2; if this is a container, its answers stop one hop short, and `{mend}` mends that"

    def _on_switch(self) -> str:
        if not self._hardware.is_ec2:
            return ""
        mend = modify(self._hardware, "--http-endpoint enabled")
        return f": it is switched off, and `{mend}` switches it on, or something on the way forwards requests"


def modify(hardware: Hardware, option: str) -> str:
    """Return the command that gives an instance another metadata option."""
    instance = hardware.words["instance_id"].value if "instance_id" in hardware.words else "INSTANCE_ID"
    return f"aws ec2 modify-instance-metadata-options --instance-id {instance} {option}"
