"""
The sources of identity that ask a platform's metadata service: ECS, EC2, and Google Compute Engine with GKE.

ECS: AWS, "Amazon ECS task metadata endpoint version 4". EC2: "Use the Instance Metadata Service to access instance
metadata", version 2 only. Every request needs a token from a PUT. The answer to the PUT crosses only as many hops as
the instance allows; the default of one does not reach a container behind a bridge.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from chipwatch.config.identity.dmi import DmiTables
from chipwatch.config.identity.names import places
from chipwatch.config.identity.source import RemoteSource, Word, fit, values_in
from chipwatch.net.metadata_service import (
    FLAVOR,
    OFF,
    ROOT,
    MetadataService,
    NoMetadata,
    NoService,
    google_service,
    parse_json,
)

VARIABLE: Final = "ECS_CONTAINER_METADATA_URI_V4"
DOCUMENT: Final = "/latest/dynamic/instance-identity/document"
ENDPOINT: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
MODE: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"
DISABLED: Final = "AWS_EC2_METADATA_DISABLED"
"""Variables of the AWS SDKs ("AWS SDKs and Tools Reference Guide", IMDS client)."""
LIFETIME: Final = 60
"""Seconds for which a token is valid."""
TOKEN: Final = re.compile(rb"[!-~]{1,1024}")
GOOGLE_DOCUMENT: Final = f"{ROOT}/?recursive=true"
MAX_DOCUMENT: Final = 4 << 20
"""Most bytes of the document: an instance and a project may have half a MB of attributes each, before escapes."""
STARTING: Final = 30.0
"""Seconds in which GKE's metadata server may not answer a new pod yet (github.com/r-lib/gargle/issues/186)."""
ELSEWHERE: Final = frozenset({"region", "instance_id", "instance_type", "ami_id"})
"""Dimensions that other platforms also have."""


class _Task(msgspec.Struct):
    arn: str = msgspec.field(name="TaskARN")
    """arn:aws:ecs:REGION:ACCOUNT:task/CLUSTER/ID; in older accounts, CLUSTER is missing."""


class Ecs(RemoteSource):
    """The source for ECS, on any launch type: cluster, service, task, family, container, location and account."""

    name = "ECS"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._url = env.get(VARIABLE, "")
        self.remote = self._url != ""

    def is_here(self) -> bool:
        return self.remote

    def read(self, wanted: Collection[str]) -> tuple[dict[str, Word], str]:
        """Return the values of the task, and on demand the name of this container."""
        if not self._url:
            raise NoService(f"{VARIABLE} is not set")
        service = MetadataService(self._url, VARIABLE)
        origin = f"{service.url}/task"
        body, what = _get(service, "/task"), "ECS metadata"
        arn = parse_json(body, _Task, f"{origin} is not {what}").arn
        _, _, _, region, account, resource = (*arn.split(":", 5), *[""] * 6)[:6]
        words = values_in(body, places("ECS"), origin, what)
        words |= fit({"ecs_task": resource.rpartition("/")[2], "region": region, "account_id": account}, origin)
        if "ecs_container" in wanted:
            words |= values_in(_get(service, ""), {"ecs_container": "Name"}, service.url, what)
        return words, origin


def _get(service: MetadataService, path: str) -> bytes:
    status, body, _ = service.request("GET", path, {})
    if status != 200:
        raise NoMetadata(f"{service.url}{path} answers {status}")
    return body


class Imds:
    """A client for EC2's metadata service, which gets a token first and then reads with it."""

    def __init__(self, env: Mapping[str, str], hardware: DmiTables) -> None:
        """Take the address from `env`, as the SDKs do; raise NoService if the service is disabled or not allowed."""
        if env.get(DISABLED, "").lower() == "true":
            raise NoService(f"{DISABLED} is set")
        six = env.get(MODE, "").lower() == "ipv6"
        address = env.get(ENDPOINT) or ("http://[fd00:ec2::254]" if six else "http://169.254.169.254")
        self._service, self._hardware, self.token = MetadataService(address, ENDPOINT), hardware, ""
        """The token; "" until the service has returned one, which only EC2 does."""
        self.url = self._service.url

    def get(self, path: str) -> bytes | None:
        """Return the value at `path`, or None if there is none; renew an expired token once. Raise NoMetadata."""
        status, body = self._get(path)
        if status == 401:
            self.token = ""
            status, body = self._get(path)
        if status == 404:
            return None
        if status != 200:
            raise NoMetadata(f"{self.url}{path} answers {status}")
        return body

    def _get(self, path: str) -> tuple[int, bytes]:
        self.token = self.token or self._new_token()
        return self._service.request("GET", path, {"X-aws-ec2-metadata-token": self.token})[:2]

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
    """The source for EC2: instance, type, image, location and account."""

    name = "EC2"

    def __init__(self, env: Mapping[str, str], hardware: DmiTables) -> None:
        self._env, self._hardware = env, hardware
        self._imds: Imds | None = None
        self.remote = not hardware.is_fargate

    def is_here(self) -> bool:
        return self._hardware.is_ec2 or (self._imds is not None and self._imds.token != "")

    def read(self, wanted: Collection[str]) -> tuple[Mapping[str, Word], str]:
        """Return all values in the identity document."""
        service = self.connect()
        return describe(service), f"{service.url}{DOCUMENT}"

    def connect(self) -> Imds:
        """Return a client; raise NoService, also on Google Cloud, where another service has the same address."""
        if self._hardware.is_fargate or self._hardware.is_google:
            raise NoService(self._hardware.why)
        self._imds = Imds(self._env, self._hardware)
        return self._imds


def describe(service: Imds) -> dict[str, Word]:
    """Return the values in the identity document of this instance; raise NoMetadata."""
    return values_in(service.get(DOCUMENT) or b"", places("EC2"), f"{service.url}{DOCUMENT}", "an identity document")


def modify(hardware: DmiTables, option: str) -> str:
    """Return the command with which a user sets a metadata option of this instance."""
    instance = hardware.found["instance_id"].value if "instance_id" in hardware.found else "INSTANCE_ID"
    return f"aws ec2 modify-instance-metadata-options --instance-id {instance} {option}"


class Gce(RemoteSource):
    """The source for Google Cloud: project, zone, region, instance, type, image, and the cluster of GKE."""

    name = "GCE"

    def __init__(
        self, env: Mapping[str, str], hardware: DmiTables, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._env, self._hardware, self._clock = env, hardware, clock
        self._first_request: float | None = None
        self._has_answered = False
        self.remote = not (hardware.is_fargate or env.get(OFF) == "true")

    def is_here(self) -> bool:
        return self._hardware.is_google or self._has_answered

    def read(self, wanted: Collection[str]) -> tuple[dict[str, Word], str]:
        """Return all values in the document; make no request on EC2, where another service has the same address."""
        if self._hardware.is_fargate:
            raise NoService(self._hardware.why)
        if not self.remote or self._hardware.is_ec2:
            raise NoService("this is an EC2 instance" if self.remote else f"{OFF} is set")
        self._first_request = self._clock() if self._first_request is None else self._first_request
        service = google_service(self._env)
        try:
            status, body, headers = service.request("GET", GOOGLE_DOCUMENT, FLAVOR, MAX_DOCUMENT)
        except NoMetadata as problem:
            is_pod = "KUBERNETES_SERVICE_HOST" in self._env
            policy = ", though this is Google Cloud; a network policy may block it for pods"
            why = f"{problem}{policy if is_pod and self.is_here() else ''}"
            # This may be a new pod in GKE, whose server does not answer yet: the DMI tables do not tell, and a value
            # is wanted that only Google has.
            may_start = is_pod and self._hardware.is_hidden and not {*wanted} <= ELSEWHERE
            raise NoMetadata(why, retry=may_start and self._clock() - self._first_request < STARTING) from None
        if headers.get("metadata-flavor") != FLAVOR["Metadata-Flavor"]:
            raise NoMetadata(f"{service.url} is not Google's metadata server")
        self._has_answered = True
        origin = f"{service.url}{ROOT}"
        if status != 200:
            raise NoMetadata(f"{origin} answers {status}")
        return _words(body, origin), origin


def _words(body: bytes, origin: str) -> dict[str, Word]:
    words = values_in(body, places("GCE"), origin, "metadata")
    zone = words["gcp_zone"].value if "gcp_zone" in words else ""
    return words | fit({"region": zone.rpartition("-")[0]}, origin)
