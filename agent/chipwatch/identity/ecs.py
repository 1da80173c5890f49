"""The ECS task metadata endpoint, version 4 (AWS, "Amazon ECS task metadata endpoint version 4")."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

import msgspec

from chipwatch.identity.metadata import RemoteSource
from chipwatch.identity.source import Word, fit
from chipwatch.net.metadata_service import MetadataService, NoMetadata, NoService, decode

VARIABLE: Final = "ECS_CONTAINER_METADATA_URI_V4"
T = TypeVar("T")


class _Task(msgspec.Struct, rename="pascal"):
    task_arn: str = msgspec.field(name="TaskARN")
    cluster: str | None = None
    service_name: str | None = None
    family: str | None = None
    availability_zone: str | None = None


class _Container(msgspec.Struct, rename="pascal"):
    name: str | None = None


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
        words = _of_task(_get(service, "/task", _Task), origin)
        if "ecs_container" in wanted:
            words |= fit({"ecs_container": _get(service, "", _Container).name}, service.url)
        return words, origin


def _get(service: MetadataService, path: str, shape: type[T]) -> T:
    status, body, _ = service.request("GET", path, {})
    if status != 200:
        raise NoMetadata(f"{service.url}{path} answers {status}")
    return decode(body, shape, f"{service.url}{path} is not ECS metadata")


def _of_task(task: _Task, origin: str) -> dict[str, Word]:
    """Return the values of a task; its ARN is arn:aws:ecs:REGION:ACCOUNT:task/CLUSTER/ID, formerly without CLUSTER."""
    _, _, _, region, account, resource = (*task.task_arn.split(":", 5), *[""] * 6)[:6]
    values = {
        "ecs_cluster": (task.cluster or "").rpartition("/")[2],  # a name or an ARN
        "ecs_service": task.service_name,
        "ecs_task": resource.rpartition("/")[2],
        "ecs_task_family": task.family,
        "region": region,
        "availability_zone": task.availability_zone,
        "account_id": account,
    }
    return fit(values, origin)
