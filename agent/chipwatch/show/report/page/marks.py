"""Events of a recording: increases of error counters, lost devices, and probable checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import fmean, median
from typing import Final, NamedTuple

from chipwatch.base.redaction import one_line
from chipwatch.history.event import ENDED, WHY
from chipwatch.show.report.accelerators import LITTLE_TO_DO
from chipwatch.show.report.page.usage import CHOICES, ReportedRun

POWER: Final = "power"
"""Reason of throttling that any busy GPU has now and then."""
PAUSE: Final = 30 * 10**9
"""Time (ns) without an increase after which the next increase is a new event."""
MOST: Final = 1000
"""Most events of a recording on the page."""
KINDS: Final = {WHY: "odd", ENDED: "info"}
"""Cause of a recorded event -> its severity; others are bad."""
LONGEST: Final = 100
WRITES, STOPS = 4.0, 0.5
"""Signs of a checkpoint: writes of this many times their median, at a utilization below this share of its mean."""
AT_WORK: Final = 0.3
"""Busy share of a recording that an accelerator must exceed to count for checkpoints."""


class Mark(NamedTuple):
    """An event of a recording, from `at` to `until` (ns since the epoch)."""

    at: int
    until: int
    kind: str
    """Severity: bad, odd, info or quiet."""
    text: str


def marks(run: ReportedRun) -> list[Mark]:
    """Return the events of a recording in the order of time: recorded ones, and those that readings show."""
    own = (
        Mark(event.at, event.at, KINDS.get(event.cause, "bad"), one_line(event.text or event.cause, LONGEST))
        for event in run.recorded.events
    )
    return sorted([*own, *_rises(run), *_losses(run), *_checkpoints(run)])[:MOST]


def _rises(run: ReportedRun) -> Iterator[Mark]:
    for metric, (kind, form) in CHOICES["rises"].items():
        times: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        for curve in run.metrics.get(metric, ()):
            if curve.dims.get("reason") != LITTLE_TO_DO:
                text, gpu = form.format_map(defaultdict(lambda: "?", curve.dims)), curve.dims.get("gpu", "")
                is_quiet = curve.dims.get("reason") == POWER
                rises = ((at, gpu) for at, rise in zip(curve.times, curve.increases, strict=True) if rise > 0)
                times["quiet" if is_quiet else kind, text] += rises
        for (weight, text), moments in times.items():
            yield from _marks(weight, text, moments)


def _losses(run: ReportedRun) -> Iterator[Mark]:
    for curve in run.metrics.get("gpu.state", ()):
        gpu = curve.dims.get("gpu", "?")
        times = [(at, gpu) for at, state in zip(curve.times, curve.values, strict=True) if state == 0]
        yield from _marks("bad", "lost or failing", times)


def _marks(kind: str, text: str, moments: Iterable[tuple[int, str]]) -> Iterator[Mark]:
    """Yield an event for each group of moments without a pause of PAUSE; it names the GPUs."""
    groups: list[list[tuple[int, str]]] = []
    for moment in sorted(moments):
        if not groups or moment[0] - groups[-1][-1][0] > PAUSE:
            groups.append([])
        groups[-1].append(moment)
    for group in groups:
        gpus = sorted({gpu for _, gpu in group if gpu}, key=lambda gpu: (len(gpu), gpu))
        where = f" on GPU {', '.join(gpus)}" if gpus else ""
        yield Mark(group[0][0], group[-1][0], kind, one_line(f"{text}{where}", LONGEST))


def _checkpoints(run: ReportedRun) -> Iterator[Mark]:
    """Yield the times in which disks were written while the accelerators stood still."""
    load: defaultdict[int, list[float]] = defaultdict(list)
    for device in run.devices:
        if device.usage.time.used > AT_WORK * device.usage.time.total:
            for curve in device.curves.get("gpu.utilization", ()):
                for at, value in zip(curve.times, curve.values, strict=True):
                    load[at].append(value)
    loads = {at: fmean(values) for at, values in load.items()}
    still = STOPS * fmean(loads.values()) if loads else 0.0
    for written in run.metrics.get("disk.written", ())[:1] if loads else ():
        least = WRITES * median(written.values or [0.0])
        moments = [(at, "") for at, rate in zip(written.times, written.values, strict=True)
                   if rate > least > 0 and loads.get(at, still) < still]  # fmt: skip
        yield from _marks("info", "writes while the GPUs stand still: a checkpoint?", moments)
