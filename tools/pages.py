"""Pages and listings that follow from the collectors: metrics, names of OpenTelemetry, names of dimensions."""

from __future__ import annotations

from pathlib import Path

from chipwatch.advisor.catalogue import catalogue, rows
from chipwatch.config.identity.names import NAMES
from chipwatch.config.naming.profiles import profile

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/metrics.md"
OTEL_NAMES = ROOT / "docs/otel-names.md"
IDENTITY = ROOT / "docs/identity.md"
NAMES_BEGIN, NAMES_END = "<!-- dimension names, by `make golden` -->\n", "<!-- end of dimension names -->\n"

INTRO = """# The metrics

To know what a metric means, find its name here, or type `chipwatch list NAME`.

Every metric of every collector. This page is written by `make golden`; `chipwatch list` prints the same of what is installed.

A *gauge* is a reading now. A *counter* is cumulative and monotonic since a known moment. A value that could not be had
is not sent: absent is not zero. A single counter of the kernel that is there when the agent starts has the boot
as its start. A sum over members that come and go, such as `network.sent` or `disk.read`, is 0 at the agent's first
reading, which is its start, and does not fall when a member goes. Units are UCUM words: `%` is 0 to 100, `By` bytes, `s` seconds, `Cel` degrees Celsius,
`1` a plain number, and words in braces say what is counted.

The level `basic` is sent unless more is asked for with `--level detailed` or `--level all`: every series costs money in
a cloud. The dimensions named here are a metric's own; `--common-dims` and `--dim` add further ones.
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

To send the names of OpenTelemetry, run `chipwatch --names otel`. It sends these names of OpenTelemetry's [semantic conventions](https://github.com/open-telemetry/semantic-conventions),
release {version}. This page is written by `make golden`. There all `hw.*` and `system.*` are in Development, so another release may have
other names. A metric that is not here keeps our name, since there is no convention: activity of multiprocessors and tensor cores,
clocks, throttling, Xid, NVLink, TPU, Neuron, jobs and idle time, TCP's retransmissions, timeouts and refused connections, the allowances
of a cloud's network, congestion, pauses, waits and operations of RDMA. `rdma.errors` and `memory.errors` keep our names too: they are sums of what
`hw.errors` has.

- Where the convention has an UpDownCounter, ours is a gauge: the mean of a window is not a sum.
- `system.disk.io` and `system.network.io` have the whole machine in the series without a device, at every level, and each device at `--level all`:
  do not add these.
- `hw.id` is the UUID of the GPU or MIG instance, as NVIDIA's driver gives it, on every metric with a GPU, and `hw.name` the GPU's index on this
  machine. For AMD it is the id that `rocminfo` prints (`GPU-` and `unique_id`), for a card without one and for Intel the PCI address. It is
  the index for other makers, for cards that only a tool lists, and with `dimensions` without `uuid`. It is `DEVICE/PORT` of RDMA, or
  `CONTROLLER/DIMM` of a memory module.
- Metrics of jobs keep their names. A job that is a pod has `k8s.pod.name`, `k8s.namespace.name` and, where its container is known,
  `k8s.container.name`, beside `job`; `user` becomes `user.name`. There is no convention for Slurm: `job` and `partition` stay.
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
        dims = ", ".join(f"`{key}={value.replace('|', ' or ')}`" for key, value in name.dims.items())
        rows.append(f"| `{ours}` | `{name.template}` | `{name.unit or declared[ours].unit}` | {scale} | {dims} |\n")
    return OTEL_INTRO.format(version=profile("otel").version) + "".join(rows)


def names() -> str:
    """Return docs/identity.md with its table of the dimension names."""
    page = IDENTITY.read_text(encoding="utf-8")
    head, mark, rest = page.partition(NAMES_BEGIN)
    _, end, tail = rest.partition(NAMES_END)
    if not (mark and end):
        raise LookupError(f"{IDENTITY.name} has no longer: {NAMES_BEGIN} and {NAMES_END}")
    rows = "".join(
        f"| {name.name} | {name.text} | {', '.join(name.sources) or 'its collector'} |"
        f" {'each host its own' if name.per_host else 'point by point' if not name.sources else 'shared'}"
        f"{', new at each start' if name.passing else ''}{', may come late' if name.late else ''} |\n"
        for name in NAMES
    )
    return f"{head}{mark}| name | what it is | known by | value |\n|---|---|---|---|\n{rows}{end}{tail}"
