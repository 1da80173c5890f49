"""`make golden`: writes anew what is made of what the collectors declare: their list, their page, the dashboards."""

from __future__ import annotations

from pathlib import Path

from agent.config import load
from agent.dashboard.make import make
from agent.dashboard.options import Wishes
from agent.report import catalogue, rows

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/metrics.txt"
DOCUMENT = ROOT / "docs/metrics.md"
DASHBOARDS = ROOT / "tests/golden/dashboards"
FAMILIES = ("host", "gpu", "neuron", "tpu")
FLAGS = {"common_dims": ["instance_id", "instance_type"], "region": "us-east-1"}
TERRAFORM_AWS = ROOT / "terraform/aws/modules"
AWS_FAMILIES = {
    "host": (("host",), []),
    "gpu": (("gpu",), []),
    "neuron": (("neuron",), []),
    "neuron-by-runtime": (("neuron",), ["neuron_runtime_tag"]),
}
"""What the modules may choose from: by the name of a file, families and words that are dimensions of points."""
LEVELS = ("basic", "detailed")

INTRO = """# The metrics

Every metric of every collector. This page is written by `make golden`; `agent list` prints the same of what is installed.

A *gauge* is a reading now. A *counter* is cumulative and monotonic since a known moment. A value that could not be had
is not sent: absent is not zero. Units are UCUM words: `%` is 0 to 100, `By` bytes, `s` seconds, `Cel` degrees Celsius,
`1` a plain number, and words in braces say what is counted.

The level `basic` is sent unless more is asked for with `--level detailed` or `--level all`: every series costs money in
a cloud. The dimensions named here are a metric's own; those of `--common-dims` and `--dim` come on top.
"""


def golden() -> str:
    """Return name, kind, unit, level and dimensions of every metric, sorted by name."""
    table = sorted((name, kind, unit, level, dims or "-") for name, kind, unit, level, dims, _, _ in rows(catalogue()))
    return "".join(f"{' '.join(row)}\n" for row in table)  # not aligned: a new name changes one line


def document() -> str:
    """Return the page on the metrics, grouped by collector."""
    parts = [INTRO]
    for collector, metrics in catalogue().items():
        if not metrics:
            parts.append(
                f"## {collector}\n\nThe names and labels that the endpoints give, and the dimension `endpoint`.\n"
            )
            continue
        parts.append(
            f"## {collector}\n\n| name | kind | unit | level | dimensions | what it is |\n|---|---|---|---|---|---|"
        )
        for name, kind, unit, level, dims, _, text in rows({collector: metrics}):
            parts.append(f"| `{name}` | {kind} | `{unit}` | {level} | {dims.replace(',', ', ')} | {text} |")
        parts.append("")
    return "\n".join(parts)


def dashboards() -> dict[Path, str]:
    """Return the dashboard and the alarms of each cloud, by file."""
    made = {}
    for cloud in ("cloudwatch", "google"):
        for alarms in (False, True):
            wishes = Wishes(cloud=cloud, alarms=alarms, families=FAMILIES)
            path = DASHBOARDS / f"{cloud}{'-alarms' if alarms else ''}.json"
            made[path] = f"{make(load(None, FLAGS, {}), wishes).text}\n"
    return made


def terraform_aws() -> dict[Path, str]:
    """Return the templates of dashboards and alarms that the modules for AWS put together, by file."""
    made = {}
    for level in LEVELS:
        for name, (families, words) in AWS_FAMILIES.items():
            flags = {"level": level, "common_dims": words, "region": "${region}", "namespace": "${namespace}"}
            wishes = Wishes(cloud="cloudwatch", families=families, dims_as="${dims}", prefix="${prefix}")
            for kind, alarms in (("dashboards", False), ("alarms", True)):
                path = TERRAFORM_AWS / kind / "generated" / level / f"{name}.json.tftpl"
                made[path] = f"{make(load(None, flags, {}), wishes._replace(alarms=alarms)).text}\n"
    return made


def main() -> None:
    """Write all files."""
    for path, text in {GOLDEN: golden(), DOCUMENT: document(), **dashboards(), **terraform_aws()}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
