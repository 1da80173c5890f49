"""Collects metrics of AWS Trainium and Inferentia, from the records of neuron-monitor and from sysfs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from chipwatch.collectors.neuron import metrics
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.errors import InputEnded, PartlyCollected, Unavailable
from chipwatch.contract.facts import Device, DeviceProcess, MachineIdentity, Unlisted
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.last_values import LastValues
from chipwatch.host.procfs import close_all
from chipwatch.host.supervised_process import find_program

if TYPE_CHECKING:
    from chipwatch.collectors.neuron.monitor import Input, NeuronMonitor
    from chipwatch.collectors.neuron.records import NeuronRecords
    from chipwatch.collectors.neuron.sysfs import Devices

MOMENT: Final = 1000
"""Nanoseconds before the first tick that counters get as their start, so that the first record also counts."""
PROGRAM: Final = "neuron-monitor"
INSTALLED: Final = Path("/opt/aws/neuron/bin") / PROGRAM
"""Where the package aws-neuronx-tools installs it. A Deep Learning AMI has it in PATH only in a login shell."""


class NeuronCollector(Collector):
    """
    Runs neuron-monitor and reads its records, or reads records from standard input.

    Counts are added up over runtimes and restarts of the monitor. Gauges have the values of the last record, and are
    left out once that is three periods old.
    """

    metrics = metrics.declared(tagged=False)
    needs = Needs(level=True, state=True)
    knows = (MachineIdentity, Device, DeviceProcess)

    @dataclass(frozen=True, slots=True)
    class Config:
        """The options of [collectors.neuron]."""

        path: Path | None = None
        """The program neuron-monitor; unless set, the first one in PATH and /opt/aws/neuron/bin."""
        ecc: Literal["cumulative", "per_period"] = "cumulative"
        """The monitor's ECC counts are cumulative since the driver was loaded, as in sysfs, or per period."""
        neuron_runtime_tag: bool = False
        """Separate series of runtimes by tag (NEURON_PROCESS_TAG); filled from --common-dims."""
        interval: float = 5.0
        """Seconds between two ticks, from --interval; the monitor's period is the same in whole seconds."""
        stdin: bool = False
        """Read records from standard input, from --stdin neuron, instead of running the monitor."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted."""

    def __init__(self, config: Config, *, stdin: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """`stdin`: file descriptor of standard input; `clock`: returns monotonic seconds."""
        self._config, self._stdin, self._clock = config, stdin, clock
        if config.neuron_runtime_tag:
            self.metrics = metrics.declared(tagged=True)  # the dimensions depend on the Config
        self._source: NeuronMonitor | Input | None = None
        self._records: NeuronRecords | None = None
        self._devices: Devices | None = None
        self._last: int | None = None
        self._end: InputEnded | None = None
        self._kept: LastValues | None = None

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        config, clock = self._config, self._clock
        path = None if config.stdin else _find(config.path)
        from chipwatch.collectors.neuron.monitor import Input, NeuronMonitor
        from chipwatch.collectors.neuron.records import NeuronRecords
        from chipwatch.collectors.neuron.sysfs import Devices

        kept = self._kept = LastValues(given.state, "neuron", config.proc)
        self._records, self._last, self._end = NeuronRecords(config, self._level, kept), None, None
        report = self._records.reader.report
        if path is None:
            self._source = Input(self._stdin, report)
        else:
            self._source = NeuronMonitor(path, max(1, int(config.interval)))
            self._source.open(clock())
        self._devices = Devices(config.sys, kept, report, self._level) if self._level >= Level.DETAILED else None

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield the values of the last record; raise InputEnded once standard input has ended."""
        if self._end:
            raise self._end
        source, records = self._source, self._records
        if source is None or records is None:
            return
        now = self._clock()
        start_time, self._last = at - MOMENT if self._last is None else self._last, at
        valid = [records.take(line, now, at, start_time) for line in source.read(now)]
        yield from records.points(at, now)
        if self._devices:
            yield from self._devices.points(at)
        if self._kept and any(valid):
            self._kept.save(at)
        try:
            problems = source.finish(now, valid)
        except InputEnded as end:
            records.report_left_out()
            self._end, end.problems = end, records.reader.take_problems()
            raise
        if problems := [*records.reader.take_problems(), *problems]:
            raise PartlyCollected(problems)

    def facts(self) -> Iterator[MachineIdentity | Device | DeviceProcess | Unlisted]:
        """Yield the runtimes on each core in the last record, and cores and devices, because a pod may get either."""
        if not self._records:
            return
        from chipwatch.collectors.neuron.sysfs import ultraserver

        server, _ = ultraserver(self._config.sys)
        yield MachineIdentity(({"ultraserver_id": server} if server else {}) | {**self._records.machine.identity})
        processes = self._records.processes(self._clock())
        if processes is None:
            yield Unlisted("there is no recent record")
            return
        yield from processes
        cores = [process.dims for process in processes]
        yield from (Device(dims, ids=(f"core{dims['neuron_core']}",)) for dims in cores)
        for number in dict.fromkeys(dims["neuron_device"] for dims in cores if "neuron_device" in dims):
            yield Device(Dimensions(neuron_device=number), ids=(f"neuron{number}",))

    def describe(self) -> str:
        devices = self._records.machine.devices if self._records else None
        source = self._source.describe() if self._source else ""
        return f"{source}, {'no record yet' if devices is None else f'{devices} devices'}"

    def close(self) -> None:
        close_all(self._source, self._devices, self._kept)
        self._source = self._devices = self._kept = None


def _find(path: Path | None) -> Path:
    try:
        return find_program(PROGRAM, path, INSTALLED)
    except Unavailable as error:
        advice = "correct collectors.neuron.path" if path else "install the package aws-neuronx-tools"
        raise Unavailable(f"{error}; {advice}") from None
