"""`make golden`: writes the generated files: the page on metrics, messages, dimension names, dashboards."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

from tests.golden import helm, verdict
from tests.golden.messages import messages

from chipwatch.advisor.catalogue import catalogue, rows
from chipwatch.advisor.dashboard.make import make
from chipwatch.advisor.dashboard.options import BoardOptions as Options
from chipwatch.advisor.dashboard.sent import SentMetrics, find
from chipwatch.config.load import load
from chipwatch.config.options import Config
from chipwatch.datapoint import Kind
from chipwatch.identity.names import NAMES
from chipwatch.naming.profiles import profile
from chipwatch_sinks.google import GoogleSink
from chipwatch_sinks.google.rules import label_key, metric_type

ROOT = Path(__file__).parents[2]
MESSAGES = ROOT / "tests/golden/messages.txt"
DOCUMENT = ROOT / "docs/metrics.md"
OTEL_NAMES = ROOT / "docs/otel-names.md"
OPERATIONS = ROOT / "docs/operations.md"
NAMES_BEGIN, NAMES_END = "<!-- dimension names, by `make golden` -->\n", "<!-- end of dimension names -->\n"
DASHBOARDS = ROOT / "tests/golden/dashboards"
FAMILIES = ("host", "gpu", "neuron", "tpu", "health", "fabric")
DRAWN = (
    "cpu.utilization", "memory.available", "disk.available", "disk.read", "network.sent", "memory.errors",
    "gpu.utilization", "gpu.memory.utilization", "gpu.power", "gpu.xid", "rdma.received", "neuron.core.utilization",
)  # fmt: skip
"""Metrics of the dashboards in tests/golden: gauges, peaks, rates and increases, with alarms and without."""
FLAGS = {"common_dims": ["instance_id", "instance_type"], "region": "us-east-1"}
TERRAFORM_AWS = ROOT / "terraform/aws/modules"
AWS_FAMILIES = {
    "host": (("host",), []),
    "gpu": (("gpu",), []),
    "neuron": (("neuron",), []),
    "neuron-by-runtime": (("neuron",), ["neuron_runtime_tag"]),
    "health": (("health",), []),
    "fabric": (("fabric",), []),
}
"""What the modules may choose from: by the name of a file, families and words that are dimensions of points."""
LEVELS = ("basic", "detailed")
TERRAFORM_GOOGLE = ROOT / "terraform/google"
INSTALLER = ROOT / "terraform/aws/user-data.sh.tftpl"
SHARED = ("chipwatch.service", "uninstall.sh")
"""Files of terraform/aws/files that the modules for Google need too; each folder is published by itself."""
ON_GOOGLE = (
    ("on EC2: Amazon Linux 2023, Ubuntu 22.04 and 24.04, Deep Learning AMIs. See docs/ec2.md.",
     "on Compute Engine: Debian 12 and 13, Ubuntu 22.04 and 24.04, Rocky and Red Hat 9. See README.md."),
    (" EC2 takes 16 KiB: base64gzip().", " Metadata may have 256 KB, an OS policy's script 32."),
    ("Written by this instance's user-data.", "Written by the installer of terraform/google."),
    ("""aws_cli() {
  command -v aws > /dev/null || { command -v snap > /dev/null && snap install aws-cli --classic > /dev/null; } \\
    || die "$1: s3:// takes the AWS CLI, and aws is not on PATH"
}""", """gcloud_cli() {
  PATH=$PATH:/snap/bin  # where Ubuntu's images have it
  export CLOUDSDK_CONFIG=$work/gcloud CLOUDSDK_CORE_DISABLE_PROMPTS=1
  command -v gcloud > /dev/null || { command -v snap > /dev/null && snap install google-cloud-cli --classic > /dev/null; } \\
    || die "$1: gs:// takes the gcloud CLI, and gcloud is not on PATH"
}"""),
    ('aws_cli wheelhouse; retry aws s3 cp --recursive --only-show-errors "$from" "$folder" >&2',
     'gcloud_cli wheelhouse; mkdir -p "$folder"; retry gcloud storage rsync --recursive --no-user-output-enabled "$from" "$folder" >&2'),
    ('aws_cli constraints; retry aws s3 cp --only-show-errors "$from" "$to"',
     'gcloud_cli constraints; retry gcloud storage cp --no-user-output-enabled "$from" "$to"'),
    ("""report_failure() {  # to an alarm
  ! command -v aws > /dev/null || timeout 60 aws cloudwatch put-metric-data $${given[region]:+--region "$${given[region]}"} \\
    --namespace "$${given[namespace]:-Chipwatch}" --metric-name agent.install.failed --value 1 || true
}

""", ""),
    ("trap 'code=$?; ", "trap '"), ("; [ \"$code\" = 0 ] || report_failure' EXIT", "' EXIT"),
    ("s3='s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "gs='gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
    ("|$s3", "|$gs"),
    ("s3://", "gs://"),
)  # fmt: skip
"""What is another word in the installer of Compute Engine than in EC2's."""

INTRO = """# The metrics

Every metric of every collector. This page is written by `make golden`; `agent list` prints the same of what is installed.

A *gauge* is a reading now. A *counter* is cumulative and monotonic since a known moment. A value that could not be had
is not sent: absent is not zero. A single counter of the kernel that is there when the agent starts has the boot
as its start. A sum over members that come and go, such as `network.sent` or `disk.read`, is 0 at the agent's first
reading, which is its start, and does not fall when a member goes. Units are UCUM words: `%` is 0 to 100, `By` bytes, `s` seconds, `Cel` degrees Celsius,
`1` a plain number, and words in braces say what is counted.

The level `basic` is sent unless more is asked for with `--level detailed` or `--level all`: every series costs money in
a cloud. The dimensions named here are a metric's own; those of `--common-dims` and `--dim` come on top.
"""


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


OTEL_INTRO = """# The names of OpenTelemetry

`--names otel` sends these names of OpenTelemetry's [semantic conventions](https://github.com/open-telemetry/semantic-conventions),
release {version}. This page is written by `make golden`. There all `hw.*` and `system.*` are in Development, so another release may have
other names. A metric that is not here keeps our name, since there is no convention: activity of multiprocessors and tensor cores,
clocks, throttling, Xid, NVLink, TPU, Neuron, jobs and idle time, TCP's retransmissions, timeouts and refused connections, the allowances
of a cloud's network, congestion, waits and operations of RDMA. `rdma.errors` and `memory.errors` keep our names too: they are sums of what
`hw.errors` has.

- Where the convention has an UpDownCounter, ours is a gauge: the mean of a window is no sum.
- `system.disk.io` and `system.network.io` have the whole machine in the series without a device, at every level, and each device at `--level all`:
  do not add these.
- `hw.id` is the index of the GPU on this machine, `DEVICE/PORT` of RDMA, or `CONTROLLER/DIMM` of a memory module.
- Counters keep what was counted before the agent began, but for sums over interfaces or disks, which begin with the agent.

| ours | theirs | unit | scale | attributes in place of our dimensions |
|---|---|---|---|---|
"""


def otel_names() -> str:
    """Return the page on the names of OpenTelemetry."""
    declared = {metric.name: metric for metrics in catalogue().values() for metric in metrics}
    rows = []
    for ours, name in profile("otel").names.items():
        scale = f"x {name.factor:g}" if name.factor != 1 else ""
        dims = ", ".join(f"`{key}={value}`" for key, value in name.dims.items())
        rows.append(f"| `{ours}` | `{name.template}` | `{name.unit or declared[ours].unit}` | {scale} | {dims} |\n")
    return OTEL_INTRO.format(version=profile("otel").version) + "".join(rows)


def names() -> str:
    """Return docs/operations.md with its table of the dimension names."""
    page = OPERATIONS.read_text(encoding="utf-8")
    head, mark, rest = page.partition(NAMES_BEGIN)
    _, end, tail = rest.partition(NAMES_END)
    if not (mark and end):
        raise LookupError(f"{OPERATIONS.name} has no longer: {NAMES_BEGIN} and {NAMES_END}")
    rows = "".join(
        f"| {name.name} | {name.text} | {', '.join(name.sources) or 'its collector'} |"
        f" {'each host its own' if name.per_host else 'point by point' if not name.sources else 'shared'}"
        f"{', new at each start' if name.passing else ''}{', may come late' if name.late else ''} |\n"
        for name in NAMES
    )
    return f"{head}{mark}| name | what it is | known by | value |\n|---|---|---|---|\n{rows}{end}{tail}"


def dashboards() -> dict[Path, str]:
    """Return the dashboard and the alarms of each cloud, by file: graphs of a few metrics, so that a new one changes none."""
    made = {}
    for cloud in ("cloudwatch", "google", "grafana"):
        for alarms in (False, True):
            options = Options(cloud=cloud, alarms=alarms, families=FAMILIES, hosts=10)
            path = DASHBOARDS / f"{cloud}{'-alarms' if alarms else ''}.json"
            sink = "prometheus" if cloud == "grafana" else cloud
            flags = FLAGS if alarms else {**FLAGS, "sink": [sink], "sinks": {sink: {"include": DRAWN}}}
            made[path] = f"{make(load(None, flags, {}), options).text}\n"
    return made


def terraform_aws() -> dict[Path, str]:
    """Return the templates of dashboards and alarms that the modules for AWS put together, by file."""
    made = {}
    for level in LEVELS:
        for name, (families, words) in AWS_FAMILIES.items():
            flags = {"level": level, "common_dims": words, "region": "${region}", "namespace": "${namespace}"}
            options = Options(cloud="cloudwatch", families=families, dims_as="${dims}", prefix="${prefix}", hosts=1)
            for kind, alarms in (("dashboards", False), ("alarms", True)):
                path = TERRAFORM_AWS / kind / "generated" / level / f"{name}.json.tftpl"
                config = without_jobs(load(None, flags, {}), name if not alarms else "gpu")
                made[path] = f"{make(config, replace(options, alarms=alarms)).text}\n"
    return made


def without_jobs(config: Config, family: str) -> Config:
    """Return the configuration without jobs but for GPUs, as a dashboard of several families has them once."""
    return config if family == "gpu" else replace(config, no_processor=("jobs",))


def terraform_google() -> dict[Path, str]:
    """Return the templates of dashboards and alert policies of the modules for Google, by file."""
    made = {}
    for level, family in product(LEVELS, FAMILIES):
        config = load(None, {"level": level}, {})
        options = Options(cloud="google", families=(family,), prefix="${prefix}", resources=("${resource}",))
        for kind, alarms in (("dashboards", False), ("alert-policies", True)):
            text = make(config if alarms else without_jobs(config, family), replace(options, alarms=alarms)).text
            path = TERRAFORM_GOOGLE / "modules" / kind / "generated" / level / f"{family}.json.tftpl"
            made[path] = f"{text.replace(GoogleSink.Config().prefix, '${metric_prefix}')}\n"
        path = TERRAFORM_GOOGLE / "modules/alert-policies/generated" / level / f"{family}-metrics.json"
        made[path] = f"{json.dumps(_named_by(text, find(config, 'google', options, by_name=True)), indent=1)}\n"
    return made


def _named_by(policies: str, found: SentMetrics) -> dict[str, dict[str, object]]:
    """Return the descriptors of the metrics that alert policies name, by the end of their type."""
    prefix = GoogleSink.Config().prefix
    named = {
        metric_type("", one.name): one for one in found.metrics if f'{metric_type(prefix, one.name)}\\"' in policies
    }
    return {
        name: {
            "kind": "GAUGE" if one.metric.kind is Kind.GAUGE else "CUMULATIVE",
            "unit": one.unit,
            "description": one.metric.help,
            "labels": [label_key(key) for key in one.dims],
        }
        for name, one in sorted(named.items())
    }


def installer_on_google() -> dict[Path, str]:
    """Return what installs the agent on Compute Engine, by file: what does it on EC2, in Google's words."""
    folder = TERRAFORM_GOOGLE / "files"
    made = {folder / name: (INSTALLER.parent / "files" / name).read_text(encoding="utf-8") for name in SHARED}
    text = INSTALLER.read_text(encoding="utf-8")
    for theirs, ours in ON_GOOGLE:
        if theirs not in text:
            raise LookupError(f"{INSTALLER.name} has no longer: {theirs}")
        text = text.replace(theirs, ours)
    return {**made, folder / "install.sh.tftpl": text}


def generated() -> dict[Path, str]:
    """Return the content of every file that the catalogue of metrics may change."""
    return {
        DOCUMENT: document(),
        OPERATIONS: names(),
        OTEL_NAMES: otel_names(),
        helm.SCHEMA: helm.schema(),
        **dashboards(),
        **terraform_aws(),
        **terraform_google(),
    }


def main() -> None:
    """Write all files."""
    others = {
        MESSAGES: messages(),
        verdict.PAGE: verdict.page(),
        verdict.situations.TABLE: verdict.table(),
        **installer_on_google(),
    }
    for path, text in {**generated(), **others}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
