"""AWS Trainium and Inferentia, from the records of neuron-monitor and from sysfs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from agent.collector import Collector
from agent.collectors.neuron import metrics
from agent.collectors.neuron.problems import Problems
from agent.datapoint import Datapoint, Level
from agent.errors import InputEnded, PartlyCollected, Unavailable
from agent.host.procfs import boot_time
from agent.host.supervised_process import find_program

if TYPE_CHECKING:
    from agent.collectors.neuron.monitor import Input, Monitor
    from agent.collectors.neuron.records import Records
    from agent.collectors.neuron.sysfs import Devices

MOMENT: Final = 1000
"""Nanoseconds before the first tick at which all counts were zero, so that the first record counts, too."""
PROGRAM: Final = "neuron-monitor"
INSTALLED: Final = Path("/opt/aws/neuron/bin") / PROGRAM
"""Where the package aws-neuronx-tools puts it; only a login shell of the Deep Learning AMI has it in PATH."""


class NeuronCollector(Collector):
    """
    Runs neuron-monitor and reads its records, or reads them from standard input.

    Records have counts by period: these are added up, over runtimes and restarts of the monitor. Everything else is
    as of the last record, and absent once that is three periods old.
    """

    metrics = metrics.declared(tagged=False)

    @dataclass(frozen=True, slots=True)
    class Config:
        """What may be set under [collectors.neuron]."""

        path: Path | None = None
        """The program neuron-monitor; looked for in PATH and in /opt/aws/neuron/bin unless set."""
        ecc: Literal["cumulative", "per_period"] = "cumulative"
        """Whether the monitor's ECC counts are since the driver was loaded, as in sysfs, or by period."""
        neuron_runtime_tag: bool = False
        """Separate series of runtimes by tag (NEURON_PROCESS_TAG); filled from --common-dims."""
        interval: float = 5.0
        """Seconds between two ticks, from --interval; the monitor's period is as many whole seconds."""
        stdin: bool = False
        """Read records from standard input, from --stdin neuron, instead of running the monitor."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted."""

    def __init__(self, config: Config, *, stdin: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the file descriptor of standard input, and a monotonic clock (s)."""
        self._config, self._stdin, self._clock = config, stdin, clock
        if config.neuron_runtime_tag:
            self.metrics = metrics.declared(tagged=True)  # the dimensions depend on the Config
        self._problems = Problems()
        self._source: Monitor | Input | None = None
        self._records: Records | None = None
        self._devices: Devices | None = None
        self._last: int | None = None
        self._end: InputEnded | None = None

    def open(self) -> None:
        """Start the monitor, or take standard input; raise Unavailable."""
        self.close()
        if sys.platform == "win32":
            raise Unavailable("neuron-monitor runs on Linux only")
        self._source = self._open_source()
        from agent.collectors.neuron.records import Records  # noqa: PLC0415  # 0.5 MB, and only where there is Neuron
        from agent.collectors.neuron.sysfs import Devices  # noqa: PLC0415

        config, self._last, self._end = self._config, None, None
        boot = boot_time(config.proc)
        self._records = Records(
            self._problems,
            self.level,
            interval=max(1.0, config.interval),
            tagged=config.neuron_runtime_tag,
            ecc_per_period=config.ecc == "per_period",
            boot=boot,
        )
        self._devices = Devices(config.sys, boot, self._problems) if self.level >= Level.DETAILED else None

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield the values as of the last record; from the end of standard input on raise InputEnded."""
        if self._end:
            raise self._end
        source, records = self._source, self._records
        if source is None or records is None:
            return
        now = self._clock()
        start_time = at - MOMENT if self._last is None else self._last
        self._last = at
        whole = True
        for line in source.read(now):
            if whole := records.take(line, now, at, start_time):
                source.note_lines(now)
        yield from records.points(at, now)
        if self._devices:
            yield from self._devices.points(at)
        if end := source.finish(now, whole=whole):
            records.report_left_out()
            self._end, end.problems = end, self._problems.take()
            raise end
        if problems := [*self._problems.take(), *source.problems()]:
            raise PartlyCollected(problems)

    def identity(self) -> Mapping[str, str]:
        """Return this instance's dimensions from the records; later records may add some."""
        return self._records.machine.identity if self._records else {}

    def describe(self) -> str:
        """Say where the records come from, and how many devices there are."""
        devices = self._records.machine.devices if self._records else None
        source = self._source.describe() if self._source else ""
        return f"{source}, {'no record yet' if devices is None else f'{devices} devices'}"

    def close(self) -> None:
        """End the monitor and close the files."""
        if self._source:
            self._source.close()
        if self._devices:
            self._devices.close()
        self._source = self._devices = None

    def _open_source(self) -> Monitor | Input:
        config = self._config
        path = None if config.stdin else _find(config.path)
        from agent.collectors.neuron.monitor import Input, Monitor  # noqa: PLC0415  # as in `open`

        if path is None:
            return Input(self._stdin, self._problems)
        monitor = Monitor(path, max(1, int(config.interval)), self._problems)
        monitor.open(self._clock())
        return monitor


def _find(path: Path | None) -> Path:
    try:
        return find_program(PROGRAM, path, INSTALLED)
    except Unavailable as error:
        hint = "collectors.neuron.path" if path else "package aws-neuronx-tools"
        raise Unavailable(f"{error} ({hint})") from None
