"""Converts records of neuron-monitor to datapoints: adds up counts, and repeats gauges while they are recent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from chipwatch.collectors.neuron import NeuronCollector, metrics, schema
from chipwatch.collectors.neuron.schema import RecordGroup, RecordReader
from chipwatch.collectors.neuron.series import Entry, Groups, NeuronMachine, NeuronSeries, Row, ValuesByLabels
from chipwatch.contract.datapoint import Datapoint, Level
from chipwatch.contract.facts import DeviceProcess
from chipwatch.host.last_values import LastValues
from chipwatch.host.supervised_process import quoted

PERIODS: Final = 3
"""Periods after which a gauge expires if no record repeats it."""
MAX_PERIOD: Final = 3600.0
"""Longest period (s) in a record that is believed."""
SHORT: Final = 0.5
"""Shortest period (s) of utilization; below it, as in the first reading of a runtime, it is noise."""
TOLERATED: Final = 2
"""Consecutive records that may lack utilization without a message, because runtimes start at different times."""
MAX_SHORT: Final = 10_000
MAX_TAGS: Final = 256
UNTAGGED: Final = "untagged"
"""Our tag for runtimes without one. Their default tag is the PID, but each PID would be a new series."""
COUNTED: Final = "execution_stats"
OLD_NAMES: Final = {"inference_stats": COUNTED}
"""Name of a group before October 2022 -> its name now."""
FROM_START: Final = frozenset({"generic"})
"""
Counts of errors since the start of a runtime; all other counts cover only the period of a record.

In three records of 1 s on a trn1.2xlarge, `generic` is 23654, 23692 and 23749, although none of 260 executions
failed (wandb/wandb, tests of the asset Trainium, tools of January 2023). Tools of 2026 do not have it.
"""
RATES: Final = frozenset({"neuroncore_counters", "neuron_runtime_vcpu_usage"})


class Tally(NamedTuple):
    """Sums of the counts of all runtimes with one tag, over all records and restarts of the monitor."""

    start_time: int
    """Time at which the counts were zero (ns since the epoch)."""
    outcomes: ValuesByLabels
    errors: ValuesByLabels


class NeuronRecords:
    """The values of all records so far. Call `take` for each line, then `points`."""

    def __init__(self, config: NeuronCollector.Config, level: Level, kept: LastValues) -> None:
        """`kept`: counters of the devices from an earlier run."""
        self.reader = RecordReader()
        """Collects the problems of the input."""
        self._interval, self._tagged = max(1.0, config.interval), config.neuron_runtime_tag
        self._series = NeuronSeries(self.reader, level)
        self.machine = NeuronMachine(self._series, self.reader, ecc_per_period=config.ecc == "per_period", kept=kept)
        groups = Groups(self._series, self.reader, level)
        self._merge: dict[str, Callable[[Sequence[Entry]], Iterator[Row]]] = {
            "neuroncore_counters": groups.cores,
            "memory_used": groups.memory,
            COUNTED: groups.latency,
            "neuron_runtime_vcpu_usage": groups.vcpu,
        }
        self._kept: dict[str, tuple[float, list[Row]]] = {}
        """Group -> time (monotonic s) until which its last rows are reported, and these rows."""
        self._until = 0.0
        self._processes: tuple[float, list[DeviceProcess] | None] = 0.0, None
        """Time (monotonic s) until which the last processes are reported, and these; None if they are unknown."""
        self._tallies: dict[str, Tally] = {}
        """Tag -> its sums; the least recently used is first."""
        self._counted: tuple[float, set[str]] = 0.0, set()
        """Time (monotonic s) until which the counts of runtimes are reported, and the tags of these runtimes."""
        self._pending: set[str] = set()
        """Tags with counts that have changed since the last tick."""
        self._last: dict[tuple[Any, str], int] = {}
        """PID of a runtime and name in FROM_START -> its last count; the least recently seen is first."""
        self._short: set[tuple[str, int | None]] = set()
        """Groups and PIDs whose last reading covered only a short time."""
        self._left_out = 0
        """Consecutive records, up to the last one, that lacked some utilization."""

    def take(self, line: bytes, now: float, at: int, start_time: int) -> bool:
        """
        Take a line that was read at `now` (monotonic s) in the tick `at`; return True if it was a record.

        `start_time`: the previous tick, at which new counts were zero. Both ticks are in ns since the epoch.
        """
        try:
            record = schema.parse_record(line)
        except (ValueError, RecursionError):
            text = line[:500].decode(errors="replace")
            is_record = text.lstrip().startswith("{")
            message = "a record was cut, or is not JSON" if is_record else f"neuron-monitor printed: {quoted(text)}"
            self.reader.report(message)
            return False
        if record is None:
            self.reader.report("a line is JSON, but not a record")
            return False
        self._until = now + PERIODS * max(self._period(record), self._interval)
        for name, rows in self.machine.take(record, now, self._until, at, start_time):
            self._keep(name, rows)
        before, self._left_out = self._left_out, 0
        self._take_runtimes(record.neuron_runtime_data, start_time)
        self._left_out += before if self._left_out else 0
        if self._left_out > TOLERATED:
            self.report_left_out()
        return True

    def report_left_out(self) -> None:
        """Report, only once, that the last record lacked utilization."""
        if self._left_out:
            self.reader.report_once(
                f"utilization is left out of records of less than {SHORT:g} s, unless the one before was as short"
            )

    def points(self, at: int, now: float) -> Iterator[Datapoint]:
        """Yield recent gauges and counts, and new counts of runtimes that have ended."""
        rows = [row for until, kept in self._kept.values() if now <= until for row in kept]
        until, tags = self._counted
        pending, self._pending = self._pending, set()
        for tag in pending | tags if now <= until else pending:
            tally = self._tally(tag, at)
            rows += self._series.rows(metrics.OUTCOMES, tally.outcomes, tally.start_time)
            rows += self._series.rows(metrics.ERRORS, tally.errors, tally.start_time)
        for metric, value, dims, start_time in rows:
            yield Datapoint(metric, value, dims, at, start_time)

    def processes(self, now: float) -> list[DeviceProcess] | None:
        """Return the runtimes on each core; None if the last record is too old at `now` (monotonic s)."""
        until, processes = self._processes
        return processes if now <= until else None

    def _take_runtimes(self, listed: Any, start_time: int) -> None:
        given = self.reader.expect(listed, list, "neuron_runtime_data")
        if given is None:
            return  # the list is empty, not null or missing, if nothing runs
        runtimes = [runtime for runtime in given if isinstance(runtime, schema.Runtime)]
        if len(runtimes) < len(given):
            self.reader.report("neuron_runtime_data: a runtime is not an object")
        self._keep("runtimes", self._series.rows(metrics.RUNTIMES, {("",): len(runtimes)}))
        reports = [
            (runtime, self.reader.mapping(runtime.report, "report"))
            for runtime in runtimes
            if not self.reader.failed("a runtime", runtime.error) and runtime.report is not None
        ]
        pids = ((runtime.pid, report) for runtime, report in reports if isinstance(runtime.pid, int))
        on_cores = [(core, pid, used) for pid, report in pids for core, used in cores_of(report)]
        placed = [(self._series.core(core), pid, used) for core, pid, used in on_cores]
        self._processes = self._until, [DeviceProcess(dims, pid, used) for dims, pid, used in placed if dims]
        entries_of: dict[str, list[Entry]] = {}
        for runtime, report in reports:
            tag = self._tag(runtime.neuron_runtime_tag)
            for key, content in report.items():
                name = OLD_NAMES.get(key, key)
                if name not in self._merge:
                    self.reader.report_once(f"the group {quoted(key)} of a runtime is unknown")
                    continue
                entries, group = entries_of.setdefault(name, []), self.reader.group(content, name)
                if group and not self._is_noise(name, runtime.pid, group):
                    if name == COUNTED:
                        group.error_summary = self._in_period(runtime.pid, group.error_summary)
                    entries.append((tag, group))
        # A group with a longer period is not in each record, so its rows are kept as long as any runtime reports.
        for name in entries_of if reports else self._merge:
            entries = entries_of.get(name, [])
            self._keep(name, self._merge[name](entries))
            if name == COUNTED:
                self._count(entries, start_time)

    def _in_period(self, pid: Any, summary: Any) -> Any:
        """Convert counts since the start of a runtime (FROM_START) to increases since the last record."""
        if not isinstance(summary, dict):
            return summary
        rises = {}
        for name in FROM_START & summary.keys():
            runtime, total = (pid if isinstance(pid, int) else None, name), summary[name]
            if type(total) is int and total >= 0:
                last = self._last.pop(runtime, total)
                self._last[runtime] = total
                rises[name] = total - last if total >= last else total  # else another runtime got this PID
        while len(self._last) > MAX_SHORT:
            del self._last[next(iter(self._last))]
        return summary | rises

    def _count(self, entries: Sequence[Entry], start_time: int) -> None:
        """Add the counts of one record to the sums."""
        self._counted = self._until, {tag for tag, _ in entries}
        for tag, group in entries:
            tally = self._tally(tag, start_time)
            self._pending.add(tag)
            ended = group.inference_summary if group.execution_summary is None else group.execution_summary
            failed = group.error_summary
            for kind, summary, counts in ("outcome", ended, tally.outcomes), ("error", failed, tally.errors):
                for name, count in self.reader.named(summary, f"summary by {kind}"):
                    if (tag, name) in counts or len(counts) < schema.MAX_NAMES:
                        counts[tag, name] = min(counts.get((tag, name), 0) + int(count), schema.LARGEST_TOTAL)

    def _tally(self, tag: str, start_time: int) -> Tally:
        """Return the sums of a tag; new ones start at `start_time`. Only MAX_TAGS are kept."""
        tally = self._tallies.pop(tag, None) or Tally(start_time, {}, {})
        if len(self._tallies) >= MAX_TAGS:
            del self._tallies[next(iter(self._tallies))]
        self._tallies[tag] = tally
        return tally

    def _is_noise(self, name: str, pid: Any, group: RecordGroup) -> bool:
        """Return True for utilization over a very short time, unless the last one was as short."""
        if name not in RATES:
            return False
        period = self.reader.number(group.period, "period")
        runtime = name, pid if isinstance(pid, int) else None
        if period is None or period >= SHORT:
            self._short.discard(runtime)
            return False
        if runtime in self._short:
            return False
        if len(self._short) < MAX_SHORT:
            self._short.add(runtime)
        self._left_out = 1
        return True

    def _tag(self, given: Any) -> str:
        if not self._tagged:
            return ""
        tag = self.reader.text(given, "neuron_runtime_tag")
        return UNTAGGED if not tag or tag.isdecimal() else tag

    def _period(self, record: schema.Record) -> float:
        """Return the longest period of any group in a record (s)."""
        runtimes = record.neuron_runtime_data if isinstance(record.neuron_runtime_data, list) else []
        reports = [record.system_data, *(runtime.report for runtime in runtimes if isinstance(runtime, schema.Runtime))]
        groups = [group for report in reports if isinstance(report, dict) for group in report.values()]
        periods = [self.reader.number(g.period, "period") or 0.0 for g in groups if isinstance(g, RecordGroup)]
        return min(max(periods, default=0.0), MAX_PERIOD)

    def _keep(self, name: str, rows: Iterable[Row]) -> None:
        self._kept[name] = self._until, list(rows)


def cores_of(report: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield each core that a runtime uses, and its bytes of memory; cores with only zeros are not used."""
    counters, memory = report.get("neuroncore_counters"), report.get("memory_used")
    cores = counters.neuroncores_in_use if isinstance(counters, RecordGroup) else None
    used = memory.neuron_runtime_used_bytes if isinstance(memory, RecordGroup) else None
    parts = used.get("usage_breakdown") if isinstance(used, dict) else None
    sizes = parts.get("neuroncore_memory_usage") if isinstance(parts, dict) else None
    cores, sizes = ((part if isinstance(part, dict) else {}) for part in (cores, sizes))
    for key in sorted(cores.keys() | sizes.keys()):
        core, size = cores.get(key), sizes.get(key)
        values = size.values() if isinstance(size, dict) else ()
        numbers = [value for value in values if isinstance(value, int | float) and 0 <= value <= schema.LARGEST]
        share = core.neuroncore_utilization if isinstance(core, schema.Core) else None
        works = isinstance(share, int | float) and share > 0
        if schema.INDEX.fullmatch(key) and (works or sum(numbers) > 0):
            yield key, float(sum(numbers)) if numbers else None
