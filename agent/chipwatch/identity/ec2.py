"""
The identity document of an EC2 instance, from its metadata service, version 2 only.

Source: AWS, "Use the Instance Metadata Service to access instance metadata". Every request needs a token from a PUT.
The answer to the PUT crosses only as many hops as the instance allows; the default of one does not reach a container
behind a bridge.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from chipwatch.identity.dmi import DmiTables
from chipwatch.identity.names import places
from chipwatch.identity.source import RemoteSource, Word, values_of
from chipwatch.net.metadata_service import MetadataService, NoMetadata, NoService

DOCUMENT: Final = "/latest/dynamic/instance-identity/document"
ENDPOINT: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
MODE: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"
DISABLED: Final = "AWS_EC2_METADATA_DISABLED"
"""Variables of the AWS SDKs ("AWS SDKs and Tools Reference Guide", IMDS client)."""
LIFETIME: Final = 60
"""Seconds for which a token is valid."""
TOKEN: Final = re.compile(rb"[!-~]{1,1024}")


class Imds:
    """A client that gets a token and then reads metadata with it."""

    def __init__(self, env: Mapping[str, str], hardware: DmiTables) -> None:
        """Take the address from `env`, as the SDKs do; raise NoService if it is disabled or not allowed."""
        if env.get(DISABLED, "").lower() == "true":
            raise NoService(f"{DISABLED} is set")
        six = env.get(MODE, "").lower() == "ipv6"
        address = env.get(ENDPOINT) or ("http://[fd00:ec2::254]" if six else "http://169.254.169.254")
        self._service, self._hardware, self._token = MetadataService(address, ENDPOINT), hardware, ""
        self.url = self._service.url

    @property
    def has_token(self) -> bool:
        """True if the service returned a token, which only EC2 does."""
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
            raise NoMetadata(f"{self.url}{path} answers {status}")
        return body

    def _get(self, path: str) -> tuple[int, bytes]:
        self._token = self._token or self._new_token()
        return self._service.request("GET", path, {"X-aws-ec2-metadata-token": self._token})[:2]

    def _new_token(self) -> str:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(LIFETIME)}
        is_ec2, advice = self._hardware.is_ec2, ""
        try:
            status, body, _ = self._service.request("PUT", "/latest/api/token", lifetime)
        except NoMetadata as problem:
            if is_ec2:
                command = modify(self._hardware, "--http-put-response-hop-limit 2")
                advice = f", though this is EC2; if this is a container, its hop limit is too low: run `{command}`"
            raise NoMetadata(f"{problem}{advice}") from None
        if status != 200 or not TOKEN.fullmatch(body):
            if status == 403 and is_ec2:
                command = modify(self._hardware, "--http-endpoint enabled")
                advice = f": it is disabled, or the request was forwarded by a proxy; to enable it run `{command}`"
            raise NoMetadata(f"{self.url} gives no token ({status}){advice}")
        return body.decode()


class Ec2(RemoteSource):
    """Instance, type, image, location and account."""

    name = "EC2"

    def __init__(self, env: Mapping[str, str], hardware: DmiTables) -> None:
        self._env, self._hardware = env, hardware
        self._imds: Imds | None = None
        self.remote = not hardware.is_fargate

    def is_here(self) -> bool:
        return self._hardware.is_ec2 or (self._imds is not None and self._imds.has_token)

    def read(self, wanted: Collection[str]) -> tuple[Mapping[str, Word], str]:
        """Return all values of the document."""
        del wanted
        service = self.connect()
        return describe(service), f"{service.url}{DOCUMENT}"

    def connect(self) -> Imds:
        """Return a client; raise NoService, also on Google Cloud, whose service has the same address."""
        if self._hardware.is_fargate or self._hardware.is_google:
            raise NoService(self._hardware.why)
        self._imds = Imds(self._env, self._hardware)
        return self._imds


def describe(service: Imds) -> dict[str, Word]:
    """Return the values of the identity document; raise NoAnswer."""
    return values_of(service.get(DOCUMENT) or b"", places("EC2"), f"{service.url}{DOCUMENT}", "an identity document")


def modify(hardware: DmiTables, option: str) -> str:
    """Return the command that sets a metadata option of this instance."""
    instance = hardware.words["instance_id"].value if "instance_id" in hardware.words else "INSTANCE_ID"
    return f"aws ec2 modify-instance-metadata-options --instance-id {instance} {option}"
