"""Which graphs a dashboard has, whatever the cloud: sections, titles, what stands in one graph, axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agent.commands.dashboard.sent import Sent
from agent.datapoint import Kind

LAST: Final = "The agent itself"
SECTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("cpu", "memory", "swap", "disk", "network", "pressure", "container"), "Host"),
    "process": "Watched processes",
    "gpu": "GPU",
    "neuron": "Neuron",
    "tpu": "TPU",
    "ipu": "IPU",
    "agent": LAST,
}
"""First word of a metric's name -> section, in the order of the page; any other stands before the last one."""
TOGETHER: Final[Mapping[str, tuple[str, ...]]] = {
    "Memory": ("memory.available", "memory.total", "memory.used"),
    "Container memory": ("container.memory.limit", "container.memory.used"),
    "Disk space": ("disk.available", "disk.used"),
    "Disk throughput": ("disk.read", "disk.written"),
    "Device throughput": ("disk.device.read", "disk.device.written"),
    "Network throughput": ("network.received", "network.sent"),
    "Interface throughput": ("network.interface.received", "network.interface.sent"),
    "Interface errors and drops": ("network.interface.drops", "network.interface.errors"),
    "Pressure": ("pressure.cpu", "pressure.io", "pressure.memory"),
    "Process I/O": ("process.io.read", "process.io.written"),
    "GPU memory": ("gpu.memory.total", "gpu.memory.used"),
    "GPU temperature": ("gpu.memory.temperature", "gpu.temperature"),
    "GPU power": ("gpu.power", "gpu.power.limit"),
    "GPU clocks": ("gpu.clock.graphics", "gpu.clock.memory", "gpu.clock.sm"),
    "GPU ECC errors": ("gpu.ecc.corrected", "gpu.ecc.uncorrected"),
    "GPU pipes": (
        "gpu.dram.active", "gpu.fp16.active", "gpu.fp32.active", "gpu.fp64.active", "gpu.sm.active", "gpu.sm.occupancy",
        "gpu.tensor.active",
    ),
    "GPU video": ("gpu.decoder.utilization", "gpu.encoder.utilization"),
    "PCIe throughput": ("gpu.pcie.received", "gpu.pcie.sent"),
    "NVLink throughput": ("gpu.nvlink.received", "gpu.nvlink.sent"),
    "TPU memory": ("tpu.memory.total", "tpu.memory.used"),
    "Neuron device memory": ("neuron.device.memory.total", "neuron.device.memory.used"),
    "IPU temperature": ("ipu.board.temperature", "ipu.die.temperature"),
    "IPU utilization": ("ipu.session.utilization", "ipu.utilization"),
    "Points": ("agent.sink.dropped", "agent.sink.rejected", "agent.sink.sent"),
    "Requests": ("agent.sink.refused", "agent.sink.retried"),
}  # fmt: skip
"""Title -> metrics of one unit and kind that belong into one graph; any other has a graph of its own."""
TITLES: Final = {name: title for title, names in TOGETHER.items() for name in names}
TAILS: Final = frozenset({
    "cpu.utilization", "memory.utilization", "gpu.utilization", "gpu.memory.utilization", "neuron.core.utilization",
    "tpu.duty_cycle", "agent.sink.seconds",
})  # fmt: skip
"""Gauges whose peaks matter as much as their mean."""
UNITS: Final[Mapping[str, str]] = {
    "%": "%", "By": "bytes", "MBy": "megabytes", "MiBy": "MiB", "GiBy": "GiB", "s": "seconds", "ms": "milliseconds",
    "W": "watts", "J": "joules", "Cel": "\N{DEGREE SIGN}C", "1": "", "{flop}/s": "FLOP/s",
}  # fmt: skip
RATES: Final[Mapping[str, str]] = {"By": "bytes/s", "J": "watts", "s": "seconds/s", "1": "1/s"}
RARE: Final = frozenset(
    {"{error}", "{event}", "{fault}", "{kill}", "{packet}", "{problem}", "{reading}", "{row}", "{tick}"}
)
"""What is counted one by one, and not as a rate."""
SHORT: Final[Mapping[str, str]] = {
    word.lower(): word for word in ("CPU", "ECC", "FLOPS", "GPU", "IPU", "OOM", "RSS", "TPU", "vCPU", "XID")
}


class Chart(NamedTuple):
    """A graph."""

    section: str
    title: str
    series: tuple[Sent, ...]
    label: str
    """Of its axis."""
    top: float | None
    """Where the axis ends; None: where the values do."""
    bottom: float | None
    """Where it begins."""


def charts(sent: Iterable[Sent], most: int) -> list[Chart]:
    """Return the graphs in the order of the page: by section, basic metrics first, by title; each of `most` lines."""
    groups: dict[tuple[str, str], list[Sent]] = {}
    for one in sent:
        word = one.metric.name.partition(".")[0]
        title = TITLES.get(one.metric.name) or title_of(one.metric.name)
        groups.setdefault((SECTIONS.get(word, word), title), []).append(one)
    whole = [_chart(section, title, group) for (section, title), group in groups.items()]
    return [part for chart in sorted(whole, key=_place) for part in _parts(chart, most)]


def _parts(chart: Chart, most: int) -> list[Chart]:
    """Return a graph as several, where it would have too many lines; a metric of TAILS has two."""
    step = max(1, most // (2 if any(one.metric.name in TAILS for one in chart.series) else 1))
    if len(chart.series) <= step:
        return [chart]
    cuts = [chart.series[at : at + step] for at in range(0, len(chart.series), step)]
    return [chart._replace(title=f"{chart.title} ({n})", series=cut) for n, cut in enumerate(cuts, 1)]


def _place(chart: Chart) -> tuple[int, str, int, str]:
    known = [section for section in dict.fromkeys(SECTIONS.values()) if section != LAST]
    rank = known.index(chart.section) if chart.section in known else len(known) + (chart.section == LAST)
    return rank, chart.section, min(one.metric.level for one in chart.series), chart.title


def title_of(name: str) -> str:
    """Return a metric's name as a title: `gpu.memory.used` -> `GPU memory used`."""
    text = " ".join(SHORT.get(word, word) for word in name.replace("_", ".").split("."))
    return text[:1].upper() + text[1:]


def is_rare(sent: Sent) -> bool:
    """Tell whether a counter is drawn by its increase, not by its rate."""
    return sent.metric.kind is Kind.COUNTER and sent.metric.unit in RARE


def _chart(section: str, title: str, series: list[Sent]) -> Chart:
    metric, sent = series[0].metric, series[0]
    counts = metric.kind is Kind.COUNTER
    thing = f"{sent.unit.strip('{}')}s" if sent.unit.startswith("{") else sent.unit
    label = (RATES if counts else UNITS).get(sent.unit, f"{thing}/s" if counts else thing)
    label = f"{thing} per dot" if is_rare(sent) else label
    top = 100 * sent.factor if metric.unit == "%" and not counts else None
    return Chart(section, title, tuple(series), label, top, None if metric.unit == "Cel" else 0)
