"""The summary at the end of a wrapped command: what it used, and what was sent."""

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
"""Characters of the command that are shown."""


class RunSummary:
    """Listens to the datapoints of a run; `lines` yields at the end what the command used and sent."""

    def __init__(self, pid: int | None = None, proc: Path = Path("/proc")) -> None:
        """`pid`: the process whose tree uses accelerators, by this /proc; None: all processes do."""
        self._pid, self._proc = pid, proc
        self._members: dict[int, bool | None] = {}
        """The processes on accelerators: whether each is of the tree, None if that is not known."""
        self._listings: Mapping[str, DeviceFacts] = {}
        self._listed: dict[str, int] = {}
        """The moment of the last list of processes of each collector."""
        self._routes: list[tuple[Route, Mapping[str, int]]] = []
        self._window = Window(0, born=time.time_ns(), increases=True)  # gives counters their increase
        self._accelerators = Accelerators(of_command=pid is not None)
        self._increase: defaultdict[str, float] = defaultdict(float)
        self._cpu_seconds = self._peak_cores = self._cpus = self._peak_rss = 0.0
        self._cpu_at: int | None = None
        self._one_core = 0.0  # seconds, of each interval at most its CPU seconds
        self._processes = 0
        self._price: float | None = None
        self._answering: list[Processor] = []

    def listen(self, pipeline: Pipeline) -> None:
        """Get the datapoints of each tick; note what was sent before, since a spool on disk counts over restarts."""
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
        """Take the datapoints of one tick; called by the pipeline."""
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
        # The parent of what `srun` starts is Slurm's daemon, not `srun`.
        if is_mine is False and (job := slurm_job(self._proc, pid)) and job == slurm_job(self._proc, self._pid or 0):
            return None
        return is_mine

    def lines(self, command: WrappedCommand, recorded: Iterable[Path] = (), trouble: str = "") -> Iterator[str]:
        """
        Yield the lines, `recorded` files last, and why they are not whole if there was `trouble`.

        Call it after the command has ended and the pipeline is closed.
        """
        code, words = command.code(), takewhile(lambda word: not word.startswith("-"), command.command)
        shown = shlex.join(words)
        ran = duration(command.seconds)
        yield f"chipwatch: {one_line(shown, LONGEST)} ended with {code}{_signal(code - 128)} after {ran}"
        yield from self.details(command)
        for path in recorded:
            size = amounts.binary(path.stat().st_size)
            yield f"  recorded  {path} ({size}): chipwatch report {shlex.quote(str(path))}"
        if trouble:
            yield f"  recorded  not all of the run: {trouble}"

    def details(self, usage: SystemUsage) -> Iterator[str]:
        """Yield the lines below the first one."""
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
        # The system's count lacks only orphans, which the readings contain.
        if seconds := max(usage.cpu_seconds(), self._cpu_seconds):
            mean = seconds / usage.seconds
            peak = f"{max(mean, self._peak_cores):.1f}{f' of {self._cpus:g}' if self._cpus else ''}"
            yield f"CPU       mean {mean:.1f} cores, peak {peak}; {amounts.spent(seconds, 'CPU')}"

    def _time(self, usage: SystemUsage) -> Iterator[str]:
        """Yield what the time went to: accelerators busy or idle by cause, and time with no process on a CPU."""
        yield from self._accelerators.time()
        if (total := max(usage.cpu_seconds(), self._cpu_seconds)) and usage.seconds >= 1:
            on_cpu = self._one_core + total - self._cpu_seconds  # at most: processes may have run at the same time
            if (waited := 100 - 100 * on_cpu / usage.seconds) >= 1:
                yield f"time      waited at least {waited:.0f} % of it: none of its processes was on a CPU"

    def _memory(self, usage: SystemUsage) -> Iterator[str]:
        # A process may be larger between two readings; the system knows the largest.
        peak, processes = self._peak_rss, self._processes
        if (largest := usage.largest_process()) > peak:
            peak, processes = largest, 1
        if peak:
            count = f" in {processes:,} process{'es' if processes > 1 else ''}" if processes else ""
            yield f"memory    peak {amounts.binary(peak)}{count}"

    def _bytes(self, usage: SystemUsage) -> Iterator[str]:
        # The system's count is whole; the readings end before the command does.
        totals = dict(self._increase)
        for name, counted in zip((READ, WRITTEN), usage.storage_bytes(), strict=True):
            if counted or name in totals:
                totals[name] = max(counted, totals.get(name, 0.0))
        disk = _listed(totals, read=READ, wrote=WRITTEN)
        network = _listed(totals, received=RECEIVED, sent=SENT)
        if disk:
            yield f"disk      {disk}"
        if network:
            yield f"network   {network} (the whole machine)"


class KeptSummary(RunSummary):
    """Keeps the summary of a process that the agent did not start in a file; the system's counts are not known."""

    def __init__(self, path: Path, pid: int | None, proc: Path) -> None:
        super().__init__(pid, proc)
        self._path, self._begun, self._usage = path, time.monotonic(), SystemUsage()
        self._who = "this machine" if pid is None else f"process {pid}"

    def listen(self, pipeline: Pipeline) -> None:
        """Write the file, and again after each tick; raise ConfigError where that is not possible."""
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
    """Return the name of a signal in brackets, or nothing if no signal has this number."""
    return f" ({signal.Signals(number).name})" if number in list(signal.Signals) else ""


def _sent(route: Route, before: Mapping[str, int]) -> str:
    """Return the fate of the points of this run, and of points that earlier runs left; the oldest are sent first."""
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
