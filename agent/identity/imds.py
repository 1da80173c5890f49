"""
EC2's instance metadata service, version 2 only.

Source: AWS, "Use the Instance Metadata Service to access instance metadata". Every request needs a token from a PUT.
The answer to the PUT crosses only as many hops as the instance allows; the default of one does not reach a container
behind a bridge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from agent.identity.dmi import Hardware
from agent.identity.metadata import NoAnswer, NoService, Service

DOCUMENT: Final = "/latest/dynamic/instance-identity/document"
TAGS: Final = "/latest/meta-data/tags/instance"
DOMAIN: Final = "/latest/meta-data/services/domain"

ENDPOINT: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
MODE: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"
DISABLED: Final = "AWS_EC2_METADATA_DISABLED"
"""Variables of the AWS SDKs ("AWS SDKs and Tools Reference Guide", IMDS client)."""
LIFETIME: Final = 60
"""Seconds for which a token is valid."""
TOKEN: Final = re.compile(rb"[!-~]{1,1024}")


class Imds:
    """A client that gets a token and then reads metadata with it."""

    def __init__(self, env: Mapping[str, str], hardware: Hardware) -> None:
        """Take the address from `env`, as the SDKs do; raise NoService if it is disabled or not allowed."""
        if env.get(DISABLED, "").lower() == "true":
            raise NoService(f"{DISABLED} is set")
        six = env.get(MODE, "").lower() == "ipv6"
        address = env.get(ENDPOINT) or ("http://[fd00:ec2::254]" if six else "http://169.254.169.254")
        self._service, self._hardware, self._token = Service(address, ENDPOINT), hardware, ""
        self.url = self._service.url

    @property
    def has_token(self) -> bool:
        """Whether the service returned a token, which only EC2 does."""
        return self._token != ""

    def get(self, path: str) -> bytes | None:
        """Return the value at `path`, or None if there is none; raise NoAnswer. An expired token is renewed once."""
        status, body = self._get(path)
        if status == 401:
            self._token = ""
            status, body = self._get(path)
        if status == 404:
            return None
        if status != 200:
            raise NoAnswer(f"{self.url}{path} answers {status}")
        return body

    def _get(self, path: str) -> tuple[int, bytes]:
        self._token = self._token or self._new_token()
        return self._service.request("GET", path, {"X-aws-ec2-metadata-token": self._token})

    def _new_token(self) -> str:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(LIFETIME)}
        try:
            status, body = self._service.request("PUT", "/latest/api/token", lifetime)
        except NoAnswer as problem:
            raise NoAnswer(f"{problem}{self._hop_limit_advice()}") from None
        if status == 403:
            raise NoAnswer(f"{self.url} gives no token (403){self._disabled_advice()}")
        if status != 200 or not TOKEN.fullmatch(body):
            raise NoAnswer(f"{self.url} gives no token ({status})")
        return body.decode()

    def _hop_limit_advice(self) -> str:
        if not self._hardware.is_ec2:
            return ""
        command = modify(self._hardware, "--http-put-response-hop-limit 2")
        return f", though this is EC2; if this is a container, its hop limit is too low: run `{command}`"

    def _disabled_advice(self) -> str:
        if not self._hardware.is_ec2:
            return ""
        command = modify(self._hardware, "--http-endpoint enabled")
        return f": it is disabled, or the request was forwarded by a proxy; to enable it run `{command}`"


def modify(hardware: Hardware, option: str) -> str:
    """Return the command that sets a metadata option of this instance."""
    instance = hardware.words["instance_id"].value if "instance_id" in hardware.words else "INSTANCE_ID"
    return f"aws ec2 modify-instance-metadata-options --instance-id {instance} {option}"
