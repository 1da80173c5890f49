"""The names of the dimensions that say what a machine is: everything that `--common-dims` takes, in one table."""

from __future__ import annotations

from typing import Final, NamedTuple


class Name(NamedTuple):
    """A dimension name."""

    name: str
    text: str
    """What it is, for the docs."""
    sources: tuple[str, ...] = ()
    """Who may know it; nobody where it differs from point to point: the collector that knows it adds it."""
    per_host: bool = False
    """No two hosts share a value: each host has series of its own."""
    passing: bool = False
    """The value is new at each start of what it names."""
    late: bool = False
    """It may take somebody's permission to find out: points wait for it for seconds, then go without."""


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
    Name("ecs_task", "id of the task", ("ECS",), per_host=True, passing=True),
    Name("ecs_task_family", "family of the task", ("ECS",)),
    Name("ecs_container", "name of the container", ("ECS",)),
    Name("k8s_cluster", "cluster", ("Kubernetes", "GCE")),
    Name("k8s_location", "region or zone of a GKE cluster", ("Kubernetes", "GCE")),
    Name("k8s_node", "name of the node", ("Kubernetes",), per_host=True),
    Name("k8s_namespace", "namespace of the pod", ("Kubernetes",)),
    Name("k8s_pod", "name of the pod", ("Kubernetes",), per_host=True, passing=True),
    Name("k8s_container", "name of the container", ("Kubernetes",)),
    Name("gcp_project", "Google Cloud project", ("GCE",)),
    Name("gcp_zone", "zone of Google Cloud", ("GCE",)),
    Name("slurm_job", "id of the job", ("Slurm",), passing=True),
    Name("slurm_rank", "rank of the process in the job", ("Slurm",), per_host=True),
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
