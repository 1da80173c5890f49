"""The ECS task metadata endpoint, version 4 (AWS, "Amazon ECS task metadata endpoint version 4")."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

import msgspec

from agent.identity.metadata import NoAnswer, NoService, Service
from agent.identity.source import Answer, Source, Word, fit

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


class Ecs(Source):
    """Cluster, service, task, family, container, location and account, on EC2, Fargate or elsewhere."""

    name = "ECS"
    words = (
        "ecs_cluster", "ecs_service", "ecs_task", "ecs_task_family", "ecs_container",
        "region", "availability_zone", "account_id",
    )  # fmt: skip

    def __init__(self, env: Mapping[str, str]) -> None:
        self._url = env.get(VARIABLE, "")
        self.remote = self._url != ""

    def is_here(self) -> bool:
        """Return whether the environment names an endpoint."""
        return self.remote

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return the values of the task, and its container's name if that is wanted."""
        if not self._url:
            return Answer(trouble=f"{VARIABLE} is not set")
        try:
            service = Service(self._url, VARIABLE)
            found = _of_task(_get(service, "/task", _Task), f"{service.url}/task")
            if "ecs_container" in wanted:
                found |= fit({"ecs_container": _get(service, "", _Container).name}, service.url)
        except NoService as problem:
            return Answer(trouble=str(problem))
        except NoAnswer as problem:
            return Answer(trouble=str(problem), retry=True)
        missing = [word for word in self.words if word in wanted and word not in found]
        return Answer(found, f"{service.url}/task lacks {', '.join(missing)}" if missing else "")


def _get(service: Service, path: str, shape: type[T]) -> T:
    status, body = service.request("GET", path, {})
    if status != 200:
        raise NoAnswer(f"{service.url}{path} answers {status}")
    try:
        return msgspec.json.decode(body, type=shape)
    except (ValueError, RecursionError):  # raised by msgspec for malformed and too deeply nested JSON
        raise NoAnswer(f"{service.url}{path} is not ECS metadata") from None


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
