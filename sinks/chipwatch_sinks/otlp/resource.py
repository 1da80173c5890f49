"""Describes the machine as an OTLP resource, by OpenTelemetry's semantic conventions."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from chipwatch.base.version import __version__
from chipwatch.contract.datapoint import HIDDEN

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
"""Version of the conventions: https://github.com/open-telemetry/semantic-conventions."""
ATTRIBUTES: Final[Mapping[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
"""
Dimension of the machine -> the convention's attribute; a dimension that is not listed keeps its name.

The conventions have no attribute for `location`, which Google reads, for ECS clusters and services, or for Slurm.
"""
WORDS: Final = tuple(ATTRIBUTES)
"""Dimensions that the sink wants to know of the machine."""
INSTANCES: Final = ("aws.ecs.task.id", "k8s.node.name", "k8s.pod.name", "host.id", "host.name")
"""Attributes that may serve as service.instance.id; the first that is known does."""


def attribute_of(word: str) -> str:
    """Return the attribute's name for a dimension of the machine."""
    return ATTRIBUTES.get(word, word)


def resource_of(machine: Iterable[tuple[str, str]], given: Mapping[str, str]) -> dict[str, str]:
    """Return the resource attributes of a machine with these dimensions; the user's `given` ones win."""
    words = {key.removeprefix(HIDDEN): value for key, value in machine if value}
    attributes = {attribute_of(word): value for word, value in words.items()}
    attributes |= _cloud(words) | _arns(words) | dict(given)
    instance = next((attributes[name] for name in INSTANCES if attributes.get(name)), platform.node()) or "unknown"
    defaults = {"service.name": "chipwatch", "service.version": __version__, "service.instance.id": instance}
    return dict(sorted((defaults | {key: value for key, value in attributes.items() if value}).items()))


def _cloud(words: Mapping[str, str]) -> dict[str, str]:
    if words.get("gcp_project") or words.get("gcp_zone"):
        kind = "gcp_kubernetes_engine" if words.get("k8s_cluster") else "gcp_compute_engine"
        zone = words.get("gcp_zone", "")
        region = {"cloud.region": zone.rpartition("-")[0]} if zone else {}
        project = {"gcp.project_id": words["gcp_project"]} if words.get("gcp_project") else {}
        return {"cloud.provider": "gcp", "cloud.platform": kind, **region, **project}
    if words.get("account_id") and words.get("region"):
        kind = "aws_ecs" if words.get("ecs_task") else "aws_eks" if words.get("k8s_pod") else "aws_ec2"
        return {"cloud.provider": "aws", "cloud.platform": kind}
    return {}


def _arns(words: Mapping[str, str]) -> dict[str, str]:
    """Return the ARNs of the ECS cluster and task, built by AWS's documented format if all parts are known."""
    region, account, cluster, task = map(words.get, ("region", "account_id", "ecs_cluster", "ecs_task"))
    if not (region and account and cluster):
        return {}
    partition = "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"
    start = f"arn:{partition}:ecs:{region}:{account}"
    arns = {"aws.ecs.cluster.arn": f"{start}:cluster/{cluster}"}
    return arns | ({"aws.ecs.task.arn": f"{start}:task/{cluster}/{task}"} if task else {})
