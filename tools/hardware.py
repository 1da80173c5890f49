"""Makes docs/hardware.md: what is read of which accelerator, and on what that was tried, from hardware.txt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/hardware.md"
DATA = ROOT / "tools/hardware.txt"
TRIED = {
    "real": "such a machine, by us",
    "capture": "numbers of such a machine that others published",
    "mock": "the maker's own stand-in for its library",
    "library": "the maker's library, on a machine without the device",
    "made": "files and structs as the maker documents them; the numbers are ours",
}
"""Ways of trying -> their meaning, the best first."""

HEAD = """# Hardware

To see whether your accelerator is supported, find its model below. If it is not there, or its cells do not say `real`, send us what it answers:

```console
$ chipwatch check --level all --capture machine.json
```

The file has the raw answers of NVIDIA's library, the files of /sys that the collectors read, and /proc/driver and /proc/meminfo. UUIDs, serial numbers, hardware addresses and names of hosts
and users are replaced, equal ones by equal ones; there are no command lines and nothing of processes but the numbers and bytes that NVIDIA's library lists. Read it before you send it: it is
JSON, a line for each call and each file. Output of the makers' programs (amd-smi, neuron-monitor, xpu-smi, hl-smi) and answers over gRPC (TPU) are not in it: add these as text.
`tests/doubles/nvml/replay.py` plays the file, so that a test of ours gets the points that your machine gave.

This page is made from tools/hardware.txt by `make golden`. How a signal was tried:

| word | tried on |
|---|---|
"""
TAIL = """Not read: CPER records and AFID of AMD (root only), the repair state of Trainium's HBM (only by an ioctl of the driver), licences and hosts of NVIDIA's vGPU.

## What nvidia-smi -q prints and has no metric here

By the groups of its output; docs/nvidia.md has the calls and fields.

| group | no metric | why |
|---|---|---|
| identity | serial and part numbers, VBIOS, InfoROM, GSP, architecture, brand, board, PCI ids, minor number | constant; the dimensions uuid, model and driver identify a GPU |
| modes | persistence, compute, accounting, display, virtualization, confidential computing, MIG, driver model | settings; of ECC only "off against the maker's default" is a fault |
| PCI | throughput in KB/s, device and host generations | each direction of the throughput takes 20 ms (nvml.h), and there are counters; the generation and width in use are read |
| clocks | application, default, maximal, requested and supported clocks; voltage | constants and settings; the clocks in use and the reasons of low clocks are read |
| power | default, minimal, maximal and requested limits; smoothing, profiles, EDPp | constants and settings; power, energy and the enforced limit are read |
| temperature | T.limit of each sensor as a constant | the margins are read |
| memory | BAR1, protected memory | of no use for training and inference so far |
| utilization | JPEG, OFA, encoder statistics, FBC | the same |
| ECC | counts by L1, L2, registers, textures | the sums are read, of SRAM the units in gpu.ecc.lifetime |
| retired pages, rows | addresses | lists of text; the counts are read |
| processes | names | command lines are private; jobs have metrics of their use |
"""


class Row(NamedTuple):
    """A signal of some models of one vendor."""

    vendor: str
    models: tuple[str, ...]
    signal: str
    metrics: tuple[str, ...]
    tried: str


def rows() -> list[Row]:
    """Return the lines of DATA."""
    lines = [line.split("|") for line in DATA.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")]
    return [
        Row(vendor, tuple(models.split(", ")), signal, tuple(metrics.split(", ")), tried)
        for vendor, models, signal, metrics, tried in lines
    ]


def page() -> str:
    """Return the page."""
    head = HEAD + "".join(f"| {word} | {text}{': nothing yet' * (word == 'real')} |\n" for word, text in TRIED.items())
    all_rows = rows()
    vendors = dict.fromkeys(row.vendor for row in all_rows)
    return "\n".join([head, *(part for vendor in vendors for part in _vendor(vendor, all_rows)), TAIL])


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
