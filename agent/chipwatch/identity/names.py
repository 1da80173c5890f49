"""The table of the dimensions that identify a machine: all values of `--common-dims`."""

from __future__ import annotations

from typing import Final, NamedTuple


class DimensionName(NamedTuple):
    """A dimension name."""

    name: str
    text: str
    """A description for the docs."""
    sources: tuple[str, ...] = ()
    """Sources that may have the value; none if a collector adds it to its own points."""
    per_host: bool = False
    """Each host has another value, and so its own series."""
    passing: bool = False
    """Each start of a task, pod, job or agent has a new value."""
    late: bool = False
    """Reading it may need a permission: points wait a few seconds for the value, then are sent without it."""


AWS: Final = ("EC2", "ECS", "records")
MACHINE: Final = ("DMI", "EC2", "GCE", "records")
NAMES: Final = (
    DimensionName("instance_id", "id of the machine", MACHINE, per_host=True),
    DimensionName("instance_type", "instance or machine type", MACHINE),
    DimensionName("ami_id", "image that it was started from", ("EC2", "GCE", "records")),
    DimensionName("neuron_runtime_tag", "tag of the Neuron runtime that a point is about"),
    DimensionName("region", "cloud region", (*AWS, "GCE")),
    DimensionName("availability_zone", "availability zone of AWS", AWS),
    DimensionName("account_id", "account of AWS", ("EC2", "ECS")),
    DimensionName("autoscaling_group", "Auto Scaling group of EC2", ("Auto Scaling",), late=True),
    DimensionName("hostname", "name of the host", ("this machine",), per_host=True),
    DimensionName("ecs_cluster", "cluster", ("ECS",)),
    DimensionName("ecs_service", "service", ("ECS",)),
    DimensionName("ecs_task", "id of the task", ("process", "ECS"), per_host=True, passing=True),
    DimensionName("ecs_task_family", "family of the task", ("ECS",)),
    DimensionName("ecs_container", "name of the container", ("ECS",)),
    DimensionName("k8s_cluster", "cluster", ("Kubernetes", "GCE")),
    DimensionName("k8s_location", "region or zone of a GKE cluster", ("Kubernetes", "GCE")),
    DimensionName("k8s_node", "name of the node", ("Kubernetes",), per_host=True),
    DimensionName("k8s_namespace", "namespace of the pod", ("process", "Kubernetes")),
    DimensionName("k8s_pod", "name of the pod", ("process", "Kubernetes"), per_host=True, passing=True),
    DimensionName("k8s_container", "name of the container", ("process", "Kubernetes")),
    DimensionName("gcp_project", "Google Cloud project", ("GCE",)),
    DimensionName("gcp_zone", "zone of Google Cloud", ("GCE",)),
    DimensionName("slurm_job", "id of the job", ("process", "Slurm"), passing=True),
    DimensionName("slurm_step", "step of the job", ("process", "Slurm"), passing=True),
    DimensionName("slurm_partition", "partition of the job", ("process", "Slurm")),
    DimensionName("slurm_rank", "rank of the process in the job", ("Slurm",), per_host=True),
    DimensionName("user", "user of the job or of the watched process", ("process", "Slurm")),
    DimensionName("run_id", "drawn at each start of the agent", ("this machine",), per_host=True, passing=True),
)
"""Listed in this order."""
WORDS: Final = tuple(name.name for name in NAMES)
OF_POINTS: Final = frozenset(name.name for name in NAMES if not name.sources)
LATE: Final = frozenset(name.name for name in NAMES if name.late)
PER_HOST: Final = frozenset(name.name for name in NAMES if name.per_host)
PASSING: Final = frozenset(name.name for name in NAMES if name.passing)


def known_by(source: str) -> tuple[str, ...]:
    """Return the names whose values the source may know."""
    return tuple(name.name for name in NAMES if source in name.sources)
