"""Turns records of neuron-monitor into datapoints: adds up counts, keeps gauges while they are recent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from agent.collectors.neuron import metrics, schema
from agent.collectors.neuron.groups import Entry, Groups
from agent.collectors.neuron.machine import Machine
from agent.collectors.neuron.problems import Problems
from agent.collectors.neuron.schema import Group, Reader, Record, Runtime
from agent.collectors.neuron.series import Row, Series
from agent.collectors.neuron.tally import Tallies
from agent.datapoint import Datapoint, Level
from agent.host.supervised_process import quoted

PERIODS: Final = 3
"""Periods after which a gauge that was not repeated is no longer reported."""
LONGEST: Final = 3600.0
"""Seconds; the longest period that is believed."""
SHORT: Final = 0.5
"""Seconds; a share of less time is noise, as in the first reading of a runtime."""
TOLERATED: Final = 2
"""Consecutive records that may lack such shares without a message: runtimes do not all start at once."""
UNTAGGED: Final = "untagged"
"""The tag of runtimes without one: the default tag is a pid, and each pid would be a new series."""
COUNTED: Final = "execution_stats"
OLD_NAMES: Final = {"inference_stats": COUNTED}
"""Names of groups before October 2022."""
RATES: Final = frozenset({"neuroncore_counters", "neuron_runtime_vcpu_usage"})
COUNTERS: Final = {"outcome": metrics.OUTCOMES, "error": metrics.ERRORS}


class Records:
    """Keeps the values of all records so far: call `take` for each line, then `points`."""

    def __init__(
        self, problems: Problems, level: Level, *, interval: float, tagged: bool, ecc_per_period: bool, boot: int | None
    ) -> None:
        """Expect a record every `interval` seconds; for the rest see NeuronCollector.Config, and Machine for `boot`."""
        series = Series()
        self._problems, self._interval, self._tagged, self._series = problems, interval, tagged, series
        self._read, groups = Reader(problems), Groups(series, problems, level)
        self.machine = Machine(series, groups, problems, level, ecc_per_period=ecc_per_period, boot=boot)
        self._merge: Mapping[str, Callable[[Sequence[Entry]], list[Row]]] = {
            "neuroncore_counters": groups.cores,
            "memory_used": groups.memory,
            COUNTED: groups.latency,
            "neuron_runtime_vcpu_usage": groups.vcpu,
        }
        self._held: dict[str, tuple[float, list[Row]]] = {}
        self._until = 0.0
        self._tallies = Tallies()
        self._counting: tuple[float, set[str]] = 0.0, set()
        self._pending: set[str] = set()
        self._short: set[tuple[str, int | None]] = set()
        self._left_out, self._in_a_row = False, 0

    def take(self, line: bytes, now: float, at: int, start_time: int) -> bool:
        """
        Take one line, read at `now` (monotonic s) in the tick `at`; tell whether it was a record.

        A new count was zero at `start_time`, the tick before (both in ns since the epoch).
        """
        try:
            record = schema.decode(line)
        except (ValueError, RecursionError):
            text = line[:500].decode(errors="replace")
            cut = text.lstrip().startswith("{")
            self._problems.add("a record was cut, or is no JSON" if cut else f"neuron-monitor said: {quoted(text)}")
            return False
        if record is None:
            self._problems.add("a line is JSON, but no record")
            return False
        self._until = now + PERIODS * max(self._period(record), self._interval)
        for name, rows in self.machine.take(record, now, self._until, at, start_time):
            self._hold(name, rows)
        self._left_out = False
        self._take_runtimes(record.neuron_runtime_data, start_time)
        self._in_a_row = self._in_a_row + 1 if self._left_out else 0
        if self._in_a_row > TOLERATED:
            self.report_left_out()
        return True

    def report_left_out(self) -> None:
        """Report, only once, that shares were left out of the last record."""
        if self._left_out:
            self._problems.once(
                f"utilization is left out of records of less than {SHORT:g} s, unless the one before was as short"
            )

    def points(self, at: int, now: float) -> Iterator[Datapoint]:
        """Yield recent gauges, and counts; also new counts of runtimes that have ended."""
        for until, rows in self._held.values():
            if now <= until:
                for metric, value, dims, start_time in rows:
                    yield Datapoint(metric, value, dims, at, start_time)
        until, tags = self._counting
        pending, self._pending = self._pending, set()
        for tag in pending | tags if now <= until else pending:
            tally = self._tallies.of(tag, at)
            for (kind, name), count in tally.counts.items():
                metric, value, dims, start_time = self._series.row(
                    COUNTERS[kind], count, name, tag=tag, start_time=tally.start_time
                )
                yield Datapoint(metric, value, dims, at, start_time)

    def _take_runtimes(self, listed: Any, start_time: int) -> None:
        if listed is None:
            return  # where nothing runs the list is empty, not null or missing
        if not isinstance(listed, list):
            self._problems.add("neuron_runtime_data: no list")
            return
        runtimes = [runtime for runtime in listed if isinstance(runtime, Runtime)]
        if len(runtimes) < len(listed):
            self._problems.add("neuron_runtime_data: a runtime is no object")
        self._hold("runtimes", [self._series.row(metrics.RUNTIMES, len(runtimes))])
        found: dict[str, list[Entry]] = {}
        reports = [(runtime, report) for runtime in runtimes if (report := self._report(runtime)) is not None]
        for runtime, report in reports:
            tag = self._tag(runtime.neuron_runtime_tag)
            for name, group in self._known_groups(report):
                entries = found.setdefault(name, [])
                if group is not None and not self._is_noise(name, runtime.pid, group):
                    entries.append((tag, group))
        # A group with a period of its own is not in each record: its rows are kept while any runtime reports.
        for name in found if reports else self._merge:
            entries = found.get(name, [])
            self._hold(name, self._merge[name](entries))
            if name == COUNTED:
                self._count(entries, start_time)

    def _report(self, runtime: Runtime) -> Mapping[str, Any] | None:
        if self._read.failed("a runtime", runtime.error) or runtime.report is None:
            return None
        return self._read.mapping(runtime.report, "report")

    def _known_groups(self, report: Mapping[str, Any]) -> Iterator[tuple[str, Group | None]]:
        for given, group in report.items():
            name = OLD_NAMES.get(given, given)
            if name in self._merge:
                yield name, self._read.group(group, name)
            else:
                self._problems.once(f"the group {quoted(given)} of a runtime is not known")

    def _count(self, entries: Sequence[Entry], start_time: int) -> None:
        """Add the counts of one record."""
        self._counting = self._until, {tag for tag, _ in entries}
        for tag, group in entries:
            tally = self._tallies.of(tag, start_time)
            self._pending.add(tag)
            ended = group.inference_summary if group.execution_summary is None else group.execution_summary
            for kind, summary in (("outcome", ended), ("error", group.error_summary)):
                for name, count in self._read.named(summary, f"summary by {kind}"):
                    tally.add((kind, name), int(count))

    def _is_noise(self, name: str, pid: Any, group: Group) -> bool:
        """Tell whether this is a share of a very short time that was not configured as the period."""
        if name not in RATES:
            return False
        period = self._read.number(group.period, "period")
        who = name, pid if isinstance(pid, int) else None
        if period is None or period >= SHORT:
            self._short.discard(who)
            return False
        if who in self._short:
            return False
        if len(self._short) < 10_000:
            self._short.add(who)
        self._left_out = True
        return True

    def _tag(self, given: Any) -> str:
        if not self._tagged:
            return ""
        tag = self._read.text(given, "neuron_runtime_tag")
        return UNTAGGED if not tag or tag.isdecimal() else tag

    def _period(self, record: Record) -> float:
        """Return the longest period that any group of a record has (s)."""
        runtimes = record.neuron_runtime_data if isinstance(record.neuron_runtime_data, list) else []
        reports = [record.system_data, *(runtime.report for runtime in runtimes if isinstance(runtime, Runtime))]
        groups = [group for report in reports if isinstance(report, dict) for group in report.values()]
        periods = [self._read.number(group.period, "period") or 0.0 for group in groups if isinstance(group, Group)]
        return min(max(periods, default=0.0), LONGEST)

    def _hold(self, name: str, rows: list[Row]) -> None:
        self._held[name] = self._until, rows
