"""What Cloud Monitoring takes: names, labels, times, and the monitored resources that it knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from agent.datapoint import HIDDEN, Dimensions

MOST_LABELS: Final = 30
LONGEST_KEY: Final = 100
LONGEST_VALUE: Final = 1024
"""Labels a metric, characters of a label's key and value: https://cloud.google.com/monitoring/quotas."""
LONGEST_TYPE: Final = 200
"""Characters of a metric's type with its domain: the figure that is commonly given; Google documents none."""
PAST: Final = 25 * 3600 * 10**9
AHEAD: Final = 5 * 60 * 10**9
"""Nanoseconds that a point may lie back or ahead: google.monitoring.v3.TimeInterval."""
DOMAINS: Final = ("custom.googleapis.com/", "workload.googleapis.com/", "external.googleapis.com/")
"""Where users may write: https://cloud.google.com/monitoring/api/v3/naming-conventions."""

FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_]")
UNTIDY: Final = re.compile(r"[./]+")
NOT_LETTER: Final = re.compile(r"^(?![A-Za-z])")

WORDS: Final = (
    "gcp_project", "gcp_zone", "instance_id", "region", "account_id", "hostname",
    "k8s_cluster", "k8s_location", "k8s_node", "k8s_namespace", "k8s_pod", "k8s_container",
    "ecs_cluster", "ecs_task_family", "ecs_task", "slurm_job", "slurm_rank",
)  # fmt: skip
"""What must be known of the machine to choose its monitored resource."""
_CLUSTER: Final = {"location": "{k8s_location}", "cluster_name": "{k8s_cluster}"}
_POD: Final = {**_CLUSTER, "namespace_name": "{k8s_namespace}", "pod_name": "{k8s_pod}"}
_TASK: Final = {"location": "{location}", "namespace": "{namespace}"}
RESOURCES: Final[Mapping[str, tuple[Mapping[str, str], ...]]] = {
    "k8s_container": ({**_POD, "container_name": "{k8s_container}"},),
    "k8s_node": ({**_CLUSTER, "node_name": "{k8s_node}"},),
    "k8s_pod": (_POD,),
    "generic_task": (
        {"location": "{location}", "namespace": "{ecs_cluster}", "job": "{ecs_task_family}", "task_id": "{ecs_task}"},
        {**_TASK, "job": "{slurm_job}", "task_id": "{slurm_rank}"},
        {**_TASK, "job": "chipwatch", "task_id": "{hostname}"},
    ),
    "gce_instance": ({"instance_id": "{instance_id}", "zone": "{gcp_zone}"},),
    "aws_ec2_instance": ({"instance_id": "{instance_id}", "region": "aws:{region}", "aws_account": "{account_id}"},),
    "generic_node": ({**_TASK, "node_id": "{instance_id}"}, {**_TASK, "node_id": "{hostname}"}),
}
"""
Monitored resources, each with the ways to fill its labels from the words of WORDS, `location` and `namespace`.

https://cloud.google.com/monitoring/api/resources; `global` is left out, since every host would write the same series.
The project's label is left to Google, as its own exporter does (GoogleCloudPlatform/opentelemetry-operations-go).
"""
AUTO: Final = ("k8s_container", "k8s_node", "k8s_pod", "gce_instance", "aws_ec2_instance", "generic_node")
"""The order in which they are tried; a task of ECS or Slurm comes before the machines that it may share."""


class Unfit(Exception):
    """The words that are known do not make the monitored resource that is wanted; the message says what is missing."""


def metric_type(prefix: str, name: str) -> str:
    """Return the metric's type: dots become slashes, what is not allowed an underscore."""
    return prefix + "/".join(_tidy(part) for part in UNTIDY.split(name.strip("./")))


def label_key(key: str) -> str:
    """Return a dimension's key as a label's."""
    return _tidy(key)


def _tidy(text: str) -> str:
    """Return `text` as Google's own exporters write it: `_` for what is not allowed, `key_` before no letter."""
    return NOT_LETTER.sub("key_", FORBIDDEN.sub("_", text))


def choose_resource(wanted: str, words: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the type and the labels of the monitored resource `wanted`, or with `auto` of the best; raise Unfit."""
    if wanted != "auto":
        for ways in RESOURCES[wanted]:
            if not (missing := _missing(ways, words)):
                return wanted, _fill(ways, words)
        raise Unfit(f"the monitored resource {wanted} needs {', '.join(missing)}, which nothing here knows")
    for ways in RESOURCES["generic_task"][:2]:
        if not _missing(ways, words):
            return "generic_task", _fill(ways, words)
    for kind in AUTO:
        for ways in RESOURCES[kind]:
            if not _missing(ways, words):
                return kind, _fill(ways, words)
    raise Unfit("no monitored resource can be named: not even the host's name is known")


def _missing(ways: Mapping[str, str], words: Mapping[str, str]) -> list[str]:
    wanted = [word for way in ways.values() for word in re.findall(r"\{(\w+)\}", way)]
    return [word for word in wanted if not words.get(word)]


def _fill(ways: Mapping[str, str], words: Mapping[str, str]) -> dict[str, str]:
    return {label: way.format_map(words) for label, way in ways.items()}


def labels_of(dims: Dimensions) -> dict[str, str]:
    """Return the labels that dimensions make; an empty one is none, and hidden ones are not for the metric."""
    return {label_key(key): value for key, value in dims.items_sorted if value and not key.startswith(HIDDEN)}


def series_fault(kind: str, dims: Dimensions) -> str | None:
    """Return why Cloud Monitoring will never take a series of this metric type and these dimensions, or None."""
    labels = labels_of(dims)
    if fault := labels_fault(kind, labels):
        return fault
    wanted = sum(bool(value) and not key.startswith(HIDDEN) for key, value in dims.items_sorted)
    return "two dimensions become the same label" if len(labels) < wanted else None


def labels_fault(kind: str, labels: Mapping[str, str]) -> str | None:
    """Return why Cloud Monitoring will never take a series of this metric type and these labels, or None."""
    if len(kind) > LONGEST_TYPE:
        return "metric name too long"
    if len(labels) > MOST_LABELS:
        return "more than 30 labels"
    if any(len(key) > LONGEST_KEY for key in labels):
        return "label key longer than 100 characters"
    if any(len(value) > LONGEST_VALUE for value in labels.values()):
        return "label value longer than 1024 characters"
    try:
        "".join(labels.values()).encode()
    except UnicodeEncodeError:
        return "label value is not UTF-8"
    return None
