"""The ECS task metadata endpoint, version 4 (AWS, "Amazon ECS task metadata endpoint version 4")."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from chipwatch.identity.names import places
from chipwatch.identity.source import RemoteSource, Word, fit, values_of
from chipwatch.net.metadata_service import MetadataService, NoMetadata, NoService, decode

VARIABLE: Final = "ECS_CONTAINER_METADATA_URI_V4"


class _Task(msgspec.Struct):
    arn: str = msgspec.field(name="TaskARN")
    """arn:aws:ecs:REGION:ACCOUNT:task/CLUSTER/ID, formerly without CLUSTER."""


class Ecs(RemoteSource):
    """Cluster, service, task, family, container, location and account, on EC2, Fargate or elsewhere."""

    name = "ECS"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._url = env.get(VARIABLE, "")
        self.remote = self._url != ""

    def is_here(self) -> bool:
        return self.remote

    def read(self, wanted: Collection[str]) -> tuple[dict[str, Word], str]:
        """Return the values of the task, and its container's name if that is wanted."""
        if not self._url:
            raise NoService(f"{VARIABLE} is not set")
        service = MetadataService(self._url, VARIABLE)
        origin = f"{service.url}/task"
        body, what = _get(service, "/task"), "ECS metadata"
        arn = decode(body, _Task, f"{origin} is not {what}").arn
        _, _, _, region, account, resource = (*arn.split(":", 5), *[""] * 6)[:6]
        words = values_of(body, places("ECS"), origin, what)
        words |= fit({"ecs_task": resource.rpartition("/")[2], "region": region, "account_id": account}, origin)
        if "ecs_container" in wanted:
            words |= values_of(_get(service, ""), {"ecs_container": "Name"}, service.url, what)
        return words, origin


def _get(service: MetadataService, path: str) -> bytes:
    status, body, _ = service.request("GET", path, {})
    if status != 200:
        raise NoMetadata(f"{service.url}{path} answers {status}")
    return body
