"""The table of the dimensions that identify a machine: all values of `--common-dims`."""

from __future__ import annotations

from typing import Final, NamedTuple


class Name(NamedTuple):
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
    Name("instance_id", "id of the machine", MACHINE, per_host=True),
    Name("instance_type", "instance or machine type", MACHINE),
    Name("ami_id", "image that it was started from", ("EC2", "GCE", "records")),
    Name("neuron_runtime_tag", "tag of the Neuron runtime that a point is about"),
    Name("region", "cloud region", (*AWS, "GCE")),
    Name("availability_zone", "availability zone of AWS", AWS),
    Name("account_id", "account of AWS", ("EC2", "ECS")),
    Name("autoscaling_group", "Auto Scaling group of EC2", ("Auto Scaling",), late=True),
    Name("hostname", "name of the host", ("this machine",), per_host=True),
    Name("ecs_cluster", "cluster", ("ECS",)),
    Name("ecs_service", "service", ("ECS",)),
    Name("ecs_task", "id of the task", ("process", "ECS"), per_host=True, passing=True),
    Name("ecs_task_family", "family of the task", ("ECS",)),
    Name("ecs_container", "name of the container", ("ECS",)),
    Name("k8s_cluster", "cluster", ("Kubernetes", "GCE")),
    Name("k8s_location", "region or zone of a GKE cluster", ("Kubernetes", "GCE")),
    Name("k8s_node", "name of the node", ("Kubernetes",), per_host=True),
    Name("k8s_namespace", "namespace of the pod", ("process", "Kubernetes")),
    Name("k8s_pod", "name of the pod", ("process", "Kubernetes"), per_host=True, passing=True),
    Name("k8s_container", "name of the container", ("process", "Kubernetes")),
    Name("gcp_project", "Google Cloud project", ("GCE",)),
    Name("gcp_zone", "zone of Google Cloud", ("GCE",)),
    Name("slurm_job", "id of the job", ("process", "Slurm"), passing=True),
    Name("slurm_step", "step of the job", ("process", "Slurm"), passing=True),
    Name("slurm_partition", "partition of the job", ("process", "Slurm")),
    Name("slurm_rank", "rank of the process in the job", ("Slurm",), per_host=True),
    Name("user", "user of the job or of the watched process", ("process", "Slurm")),
    Name("run_id", "drawn at each start of the agent", ("this machine",), per_host=True, passing=True),
)
"""In the order in which they are listed."""
WORDS: Final = tuple(name.name for name in NAMES)
OF_POINTS: Final = frozenset(name.name for name in NAMES if not name.sources)
LATE: Final = frozenset(name.name for name in NAMES if name.late)
PER_HOST: Final = frozenset(name.name for name in NAMES if name.per_host)
PASSING: Final = frozenset(name.name for name in NAMES if name.passing)


def known_by(source: str) -> tuple[str, ...]:
    """Return the names whose values the source may know."""
    return tuple(name.name for name in NAMES if source in name.sources)
