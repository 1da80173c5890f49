"""Cloud Monitoring's rules for names, labels, times and monitored resources."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import HIDDEN, Dimensions
from chipwatch.contract.errors import Refused

MOST_LABELS: Final = 30
LONGEST_KEY: Final = 100
LONGEST_VALUE: Final = 1024
"""Most labels of a metric, and most characters of a label's key and value: cloud.google.com/monitoring/quotas."""
LONGEST_TYPE: Final = 200
"""Most characters of a metric type with its domain: a commonly cited limit that Google does not document."""
PAST: Final = 25 * 3600 * 10**9
AHEAD: Final = 5 * 60 * 10**9
"""Greatest distance of a point's time into the past and the future (ns): google.monitoring.v3.TimeInterval."""
DOMAINS: Final = ("custom.googleapis.com/", "workload.googleapis.com/", "external.googleapis.com/")
"""Beginnings of user-defined metric types: https://cloud.google.com/monitoring/api/v3/naming-conventions."""

FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_]")
SEPARATORS: Final = re.compile(r"[./]+")
NOT_LETTER: Final = re.compile(r"^(?![A-Za-z])")
TEMPLATES: Final = Path(__file__).with_name("resources.json").read_text(encoding="utf-8")
RESOURCES: Final[Mapping[str, list[dict[str, str]]]] = json.loads(TEMPLATES)
"""
Monitored resource -> sets of labels; the first one whose words are all known is used.

The words in braces are WORDS, `location` and `namespace`.

https://cloud.google.com/monitoring/api/resources; `global` is left out: all hosts would write the same series.
Google sets the project's label, as for its own exporter (GoogleCloudPlatform/opentelemetry-operations-go).
"""
FIELD: Final = re.compile(r"\{(\w+)\}")
WORDS: Final = tuple(sorted({"gcp_project", *FIELD.findall(TEMPLATES)} - {"location", "namespace"}))
"""Dimensions of the identity that select and fill the monitored resource."""
AUTO: Final = ("k8s_container", "k8s_node", "k8s_pod", "gce_instance", "aws_ec2_instance", "generic_node")
"""Order in which `auto` tries resources; generic_task comes first for ECS and Slurm, whose tasks share machines."""


def metric_type(prefix: str, name: str) -> str:
    """Return Google's name of a metric: its dots become slashes, forbidden characters underscores."""
    return prefix + "/".join(label_key(part) for part in SEPARATORS.split(name.strip("./")))


def label_key(text: str) -> str:
    """Replace forbidden characters by `_`; a key that begins without a letter gets `key_`, as in Google's exporters."""
    return NOT_LETTER.sub("key_", FORBIDDEN.sub("_", text))


def choose_resource(wanted: str, words: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the resource `wanted`, `auto` being the most specific one, and its labels; raise Refused."""
    choices = [(wanted, labels) for labels in RESOURCES.get(wanted, ())]
    if wanted == "auto":
        choices = [("generic_task", labels) for labels in RESOURCES["generic_task"][:2]]
        choices += [(kind, labels) for kind in AUTO for labels in RESOURCES[kind]]
    for kind, labels in choices:
        needed = [word for template in labels.values() for word in FIELD.findall(template)]
        if not (missing := [word for word in needed if not words.get(word)]):
            return kind, {label: template.format_map(words) for label, template in labels.items()}
    if wanted == "auto":
        raise Refused(
            "no host name is known to identify this machine: set hostname with --dim, or sinks.google.resource"
        )
    raise Refused(
        f"sinks.google.resource: {wanted} needs {', '.join(missing)}, and no value is known: set it with --dim, or"
        " choose another resource"
    )


def labels_of(dims: Dimensions) -> dict[str, str]:
    """Return the dimensions as labels; empty and hidden ones are left out."""
    return {label_key(key): value for key, value in dims.items_sorted if value and not key.startswith(HIDDEN)}


def series_fault(kind: str, dims: Dimensions) -> str | None:
    """Return why Cloud Monitoring rejects each point with this metric type and these dimensions, or None."""
    labels = labels_of(dims)
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
    wanted = sum(bool(value) and not key.startswith(HIDDEN) for key, value in dims.items_sorted)
    return "two dimensions become the same label" if len(labels) < wanted else None
