"""The summary at the end of a run: the resources that a command used, and the points that were sent."""

from __future__ import annotations

import shlex
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import Final

from chipwatch.base.redaction import one_line
from chipwatch.base.text import duration
from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import ConfigError, os_text
from chipwatch.contract.facts import DeviceFacts
from chipwatch.contract.processor import Processor
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.route import Route
from chipwatch.engine.window import Window
from chipwatch.host.owners import slurm_job
from chipwatch.host.process_tree import is_within
from chipwatch.host.wrapped import SystemUsage, WrappedCommand
from chipwatch.show.report import amounts
from chipwatch.show.report.accelerators import ROLES, Accelerators
from chipwatch.show.report.devices import device_states

CPU, CPUS, RSS, PROCESSES = "process.cpu.utilization", "process.cpu.limit", "process.memory.rss", "process.count"
READ, WRITTEN, RECEIVED, SENT = "process.io.read", "process.io.written", "network.received", "network.sent"
TAKEN: Final = frozenset({CPU, CPUS, RSS, PROCESSES, READ, WRITTEN, RECEIVED, SENT, *ROLES})
LONGEST: Final = 80
"""Most characters of the command that are shown."""


class RunSummary:
    """Adds up the datapoints of a run; at its end, `lines` yields the summary."""

    def __init__(self, pid: int | None = None, proc: Path = Path("/proc")) -> None:
        """`pid`: only accelerators that its process tree uses count; None counts all. `proc`: the host's /proc."""
        self._pid, self._proc = pid, proc
        self._members: dict[int, bool | None] = {}
        """Process on an accelerator -> True if it belongs to the tree of `pid`, None if unknown."""
        self._listings: Mapping[str, DeviceFacts] = {}
        self._listed: dict[str, int] = {}
        """Collector -> time of its last list of processes."""
        self._routes: list[tuple[Route, Mapping[str, int]]] = []
        self._window = Window(0, born=time.time_ns(), increases=True)  # computes the increase of counters
        self._accelerators = Accelerators(of_command=pid is not None)
        self._increase: defaultdict[str, float] = defaultdict(float)
        self._cpu_seconds = self._peak_cores = self._cpus = self._peak_rss = 0.0
        self._cpu_at: int | None = None
        self._one_core = 0.0  # seconds in which at least one core was in use, at most
        self._processes = 0
        self._price: float | None = None
        self._answering: list[Processor] = []

    def listen(self, pipeline: Pipeline) -> None:
        """Subscribe to the datapoints of a pipeline. Remember the counts of its spools, which go on over restarts."""
        self._routes = [(route, route.spool.ledger.totals()) for route in pipeline.routes]
        self._answering = [derivation.processor for derivation in pipeline.derivations]
        prices = (processor.answer().get("dollars_per_hour") for processor in self._answering)
        self._price = next((price for price in prices if price is not None), None)
        pipeline.listeners.append(self.take)
        if self._pid is not None:
            self._listings = pipeline.devices
            for sampler in pipeline.samplers:
                sampler.knowledge.want()

    def take(self, points: Sequence[Datapoint], at: int) -> None:
        """Take the datapoints of one tick; the pipeline calls it."""
        points = self._window.add(points, at, lambda metric: metric.name in TAKEN)
        self._accelerators.take(points)
        for point in points:
            if point.increase is not None:
                self._increase[point.metric.name] += point.increase
        last = {point.metric.name: point for point in points}
        if CPUS in last:
            self._take_cpu(last[CPUS], last.get(CPU))
        if RSS in last and last[RSS].value > self._peak_rss:
            self._peak_rss = last[RSS].value
            self._processes = round(last[PROCESSES].value) if PROCESSES in last else 0
        new = [facts for source, facts in self._listings.items() if self._listed.get(source) != facts.moment]
        pids = {process.pid for facts in self._listings.values() for process in facts.processes or ()}
        known = {pid: is_mine for pid, is_mine in self._members.items() if is_mine is not None}
        self._members = {pid: known[pid] if pid in known else self._is_mine(pid) for pid in pids}
        for facts in new:
            self._listed[facts.source] = facts.moment
            self._accelerators.list_users(facts, self._members.get)

    def _is_mine(self, pid: int) -> bool | None:
        is_mine = is_within(self._proc, pid, self._pid or 0)
        # A process that `srun` starts is a child of Slurm's daemon, not of `srun`.
        if is_mine is False and (job := slurm_job(self._proc, pid)) and job == slurm_job(self._proc, self._pid or 0):
            return None
        return is_mine

    def lines(self, command: WrappedCommand, recorded: Iterable[Path] = (), trouble: str = "") -> Iterator[str]:
        """
        Yield the lines of the summary, then the `recorded` files, and why they are incomplete if there was `trouble`.

        Call it after the command has ended and the pipeline is closed.
        """
        code, words = command.code(), takewhile(lambda word: not word.startswith("-"), command.command)
        how = f"{code}{_signal(code - 128)} after {duration(command.seconds)}"
        yield f"chipwatch: {one_line(shlex.join(words), LONGEST)} ended with {how}"
        yield from self.details(command)
        for path in recorded:
            size = amounts.binary(path.stat().st_size)
            yield f"  recorded  {path} ({size}): chipwatch report {shlex.quote(str(path))}"
        if trouble:
            yield f"  recorded  not all of the run: {trouble}"

    def details(self, usage: SystemUsage) -> Iterator[str]:
        """Yield the lines below the headline."""
        states = (state for processor in self._answering for state in device_states(processor.answer()))
        self._accelerators.set_slices({state.key: state.slices for state in states if state.key[1:]})
        used = self._accelerators
        cost = () if self._price is None else used.cost(usage.seconds, self._price)
        sent = "; ".join(_sent(route, before) for route, before in self._routes)
        parts = self._time(usage), self._cpu(usage), self._memory(usage), self._bytes(usage), used.lines(), cost
        for line in (*chain(*parts), *used.advice(usage.seconds), *([f"sent      {sent}"] if sent else [])):
            yield f"  {line}"

    def _take_cpu(self, cpus: Datapoint, share: Datapoint | None) -> None:
        self._cpus = cpus.value
        if share:
            cores = share.value / 100 * cpus.value
            self._peak_cores = max(self._peak_cores, cores)
            seconds = (share.at - (self._cpu_at or share.at)) / 1e9
            self._cpu_seconds += cores * seconds
            self._one_core += min(1.0, cores) * seconds
        self._cpu_at = cpus.at

    def _cpu(self, usage: SystemUsage) -> Iterator[str]:
        # The system does not count orphaned processes, but the readings do; so the larger figure counts.
        if seconds := max(usage.cpu_seconds(), self._cpu_seconds):
            mean = seconds / usage.seconds
            peak = f"{max(mean, self._peak_cores):.1f}{f' of {self._cpus:g}' if self._cpus else ''}"
            yield f"CPU       mean {mean:.1f} cores, peak {peak}; {amounts.spent(seconds, 'CPU')}"

    def _time(self, usage: SystemUsage) -> Iterator[str]:
        """Yield how the time was spent: accelerators busy or idle by cause, and time without any process on a CPU."""
        yield from self._accelerators.time()
        if (total := max(usage.cpu_seconds(), self._cpu_seconds)) and usage.seconds >= 1:
            on_cpu = self._one_core + total - self._cpu_seconds  # an upper limit: processes may have run in parallel
            if (waited := 100 - 100 * on_cpu / usage.seconds) >= 1:
                yield f"time      waited at least {waited:.0f} % of it: none of its processes was on a CPU"

    def _memory(self, usage: SystemUsage) -> Iterator[str]:
        # A process may be larger between two readings; the system reports the largest size.
        peak, processes = self._peak_rss, self._processes
        if (largest := usage.largest_process()) > peak:
            peak, processes = largest, 1
        if peak:
            count = f" in {processes:,} process{'es' if processes > 1 else ''}" if processes else ""
            yield f"memory    peak {amounts.binary(peak)}{count}"

    def _bytes(self, usage: SystemUsage) -> Iterator[str]:
        # The readings end before the command does; the system counts until its end.
        totals = dict(self._increase)
        for name, counted in zip((READ, WRITTEN), usage.storage_bytes(), strict=True):
            if counted or name in totals:
                totals[name] = max(counted, totals.get(name, 0.0))
        if disk := _listed(totals, read=READ, wrote=WRITTEN):
            yield f"disk      {disk}"
        if network := _listed(totals, received=RECEIVED, sent=SENT):
            yield f"network   {network} (the whole machine)"


class KeptSummary(RunSummary):
    """Writes the summary of a process that the agent did not start to a file, after each tick."""

    def __init__(self, path: Path, pid: int | None, proc: Path) -> None:
        super().__init__(pid, proc)
        self._path, self._begun, self._usage = path, time.monotonic(), SystemUsage()
        self._who = "this machine" if pid is None else f"process {pid}"

    def listen(self, pipeline: Pipeline) -> None:
        """Write the file, and again after each tick; raise ConfigError if that fails."""
        super().listen(pipeline)
        try:
            self.keep()
        except OSError as problem:
            raise ConfigError(f"--summary {self._path}: {os_text(problem)}; choose another file") from problem
        pipeline.after_tick.append(self.keep)

    def keep(self) -> None:
        """Replace the file; raise OSError."""
        self._usage.seconds = time.monotonic() - self._begun
        head = f"chipwatch: watched {self._who} for {duration(self._usage.seconds)}"
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text("\n".join((head, *self.details(self._usage), "")))
        new.replace(self._path)


def _listed(totals: Mapping[str, float], **names: str) -> str:
    return ", ".join(f"{word} {amounts.binary(totals[name])}" for word, name in names.items() if name in totals)


def _signal(number: int) -> str:
    """Return the name of a signal in brackets; "" if no signal has this number."""
    return f" ({signal.Signals(number).name})" if number in list(signal.Signals) else ""


def _sent(route: Route, before: Mapping[str, int]) -> str:
    """Say what became of the points of this run and of earlier runs; the oldest points are sent first."""
    ledger = route.spool.ledger
    now, elsewhere = ledger.totals(), ledger.elsewhere
    collected, sent, rejected, dropped, _ = (number - before[word] for word, number in now.items())
    older = before["kept"] - elsewhere
    left = max(0, older - sent - rejected - dropped)
    others = {
        "rejected": rejected,
        "dropped": dropped,
        "kept": ledger.due - left,
        "sent for earlier runs": min(older, sent),
        "kept from earlier runs": left,
        "kept for another destination": elsewhere,
    }
    more = "".join(f", {many:,} {word}" for word, many in others.items() if many)
    if others["kept"] and route.worker.health.last_error:
        more += f": {one_line(route.worker.health.last_error)}"
    return f"{route.name} {max(0, sent - older):,} of {collected:,} points{more}"
