"""Makes docs/hardware.md from hardware.txt (what is read of which accelerator, tried on what) and nvidia_smi.txt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/hardware.md"
DATA = ROOT / "tools/hardware.txt"
SMI = ROOT / "tools/nvidia_smi.txt"
TRIED = {
    "real": "such a machine, by us",
    "capture": "numbers of such a machine that others published",
    "mock": "the maker's own stand-in for its library",
    "library": "the maker's library, on a machine without the device",
    "made": "files and structs as the maker documents them; the numbers are ours",
}
"""Ways of trying -> their meaning, the best first."""

HEAD = """# Hardware

To see whether your accelerator is supported, look here. No real accelerator and no cloud account was available so far. The last column says what each collector and sink was tried on instead.

| hardware | read by | tried on |
|---|---|---|
| host: CPU, memory, disks, network, pressure, containers, process trees | `/proc`, cgroups | Linux, on virtual machines and in containers; captures of larger ones |
| [the fabric, storage, sensors, memory and PCIe errors](node-health.md) | `/sys`, `/proc`, the ioctl of ethtool | published captures; node_exporter on the same files |
| CPU, memory, disks, network and process trees on macOS | psutil | Linux without what macOS lacks; no Mac |
| [NVIDIA](nvidia.md) | NVML | a fake driver in C with captured values of H100 (also MIG), RTX 4080 SUPER, T4 |
| [AMD](amd.md) | sysfs | trees of files with values of captures of MI210, MI300X and a Radeon |
| [Intel](intel.md) | sysfs; xpu-smi | trees of files; one capture |
| [Apple](apple.md) | macmon; ioreg | one capture of each |
| [Trainium, Inferentia](neuron.md) | neuron-monitor, sysfs | one published record of an inf1.xlarge; invented ones |
| Google TPU | libtpu's metric service; SDK | a server and a module of ours |
| Intel Gaudi | hl-smi | captured rows of a Gaudi 3 |
| Graphcore IPU | gcipuinfo | documented attributes |
| [any OpenMetrics or Prometheus endpoint](openmetrics.md) | HTTP | servers of ours; pages of other exporters |
| CloudWatch | PutMetricData | moto; a strict server of ours |
| [Google Cloud Monitoring](google.md) | its own client | a strict server of ours |
| [Prometheus](prometheus.md) | its text formats | a real Prometheus; promtool; W&B's scraper |
| [OpenTelemetry](otlp.md) | OTLP over HTTP | a real receiver (rotel); OpenTelemetry's own protobuf |
| [MLflow](experiments.md) | its REST API | a real MLflow server |

## Signals by model

To see what is read of your accelerator, find its model below. If it is not there, or its cells do not say `real`, send us what the machine answers:

```console
$ chipwatch check --level all --bundle new-gpu.tar.gz
```

The file has the lines of the check and what the maker's programs print (nvidia-smi, amd-smi, xpu-smi, hl-smi, neuron-ls, tpu-info), without names, addresses, serial numbers and secrets ([support](support.md)). Read it before you send it.

This page is made from tools/hardware.txt and tools/nvidia_smi.txt by `make golden`. How a signal was tried:

| word | tried on |
|---|---|
"""
TAIL = """Not read: CPER records and AFID of AMD (root only), the repair state of Trainium's HBM (only by an ioctl of the driver).

## What nvidia-smi -q prints

Of the {all:,} values that nvidia-smi 550.163.01 prints of 52 GPUs of NVIDIA's mock (profiles t4, a100, l40s, h100, b200, gb200 and gb300), {read:,} have a metric and {rest:,} have none.
Names without a value on all profiles are left out. Newer names are in [nvidia](nvidia.md#fields-and-functions-that-are-not-read), by field.

| group | name | values | metric |
|---|---|---|---|
{metrics}

| group | no metric | values | why |
|---|---|---|---|
{reasons}
"""


class Row(NamedTuple):
    """A signal of some models of one vendor."""

    vendor: str
    models: tuple[str, ...]
    signal: str
    metrics: tuple[str, ...]
    tried: str


class Printed(NamedTuple):
    """Values that nvidia-smi prints: a name with a metric, or names and why they have none."""

    group: str
    names: tuple[str, ...]
    values: int
    metric: str
    further: str
    """A further dimension and its value, or the reason."""


def _lines(file: Path) -> list[list[str]]:
    return [line.split("|") for line in file.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")]


def rows() -> list[Row]:
    """Return the lines of DATA."""
    return [
        Row(vendor, tuple(models.split(", ")), signal, tuple(metrics.split(", ")), tried)
        for vendor, models, signal, metrics, tried in _lines(DATA)
    ]


def printed() -> list[Printed]:
    """Return the lines of SMI."""
    return [
        Printed(group, tuple(names.split(", ")), int(values), metric, further)
        for group, names, values, metric, further in _lines(SMI)
    ]


def _tail() -> str:
    """Return the end of the page, with what nvidia-smi prints."""
    every = printed()
    counts = {has: sum(row.values for row in every if bool(row.metric) is has) for has in (True, False)}
    metrics = (
        f"| {row.group} | {row.names[0]} | {row.values} | `{row.metric}{f'{{{row.further}}}' * bool(row.further)}` |"
        for row in every
        if row.metric
    )
    reasons = (
        f"| {row.group} | {', '.join(row.names)} | {row.values} | {row.further} |" for row in every if not row.metric
    )
    return TAIL.format(
        all=sum(counts.values()), read=counts[True], rest=counts[False],
        metrics="\n".join(metrics), reasons="\n".join(reasons),
    )  # fmt: skip


def page() -> str:
    """Return the page."""
    head = HEAD + "".join(f"| {word} | {text}{': nothing yet' * (word == 'real')} |\n" for word, text in TRIED.items())
    all_rows = rows()
    vendors = dict.fromkeys(row.vendor for row in all_rows)
    return "\n".join([head, *(part for vendor in vendors for part in _vendor(vendor, all_rows)), _tail()])


def _vendor(vendor: str, all_rows: list[Row]) -> Iterator[str]:
    """Yield the table of a vendor: a line for each model, a column for each signal; then the signals' metrics."""
    here = [row for row in all_rows if row.vendor == vendor]
    signals = dict.fromkeys(row.signal for row in here)
    yield f"## {vendor}\n"
    yield f"| model | {' | '.join(signals)} |\n|---|{'---|' * len(signals)}"
    for model in dict.fromkeys(model for row in here for model in row.models):
        tried = {row.signal: row.tried for row in here if model in row.models}
        yield f"| {model} | {' | '.join(tried.get(signal, '-') for signal in signals)} |"
    yield "\n| signal | metrics |\n|---|---|"
    for signal in signals:
        metrics = dict.fromkeys(metric for row in here if row.signal == signal for metric in row.metrics)
        yield f"| {signal} | {', '.join(f'`{metric}`' for metric in metrics)} |"
    yield ""
