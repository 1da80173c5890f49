"""Records of neuron-monitor -> datapoints: counts are added up, gauges are held as long as they are news."""

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
"""Periods after which what was not said again is news no more."""
LONGEST: Final = 3600.0
"""Seconds; no period is believed to be longer."""
SHORT: Final = 0.5
"""Seconds: the first reading of a runtime covers next to no time, and a share of that is noise."""
TOLERATED: Final = 2
"""Records in a row from which shares may be left out for that without a word: runtimes do not all start at once."""
UNTAGGED: Final = "untagged"
"""Stands for runtimes without a tag of their own: the default tag is a pid, and each would be a series for ever."""
COUNTED: Final = "execution_stats"
OLD_NAMES: Final = {"inference_stats": COUNTED}
"""Names of groups before October 2022."""
RATES: Final = frozenset({"neuroncore_counters", "neuron_runtime_vcpu_usage"})
COUNTERS: Final = {"outcome": metrics.OUTCOMES, "error": metrics.ERRORS}


class Records:
    """What is known from the records so far: `take` a line, then ask for the `points`."""

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
        self._owed: set[str] = set()
        self._short: set[tuple[str, int | None]] = set()
        self._left_out, self._in_a_row = False, 0

    def take(self, line: bytes, now: float, at: int, start_time: int) -> bool:
        """
        Take one line that was there `now` (monotonic s), for the tick `at`; tell whether it was a record.

        What is counted for the first time was zero as of `start_time`, the tick before (both in ns since the epoch).
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
        """Say it if shares were left out of the last record; once for good."""
        if self._left_out:
            self._problems.once(
                f"utilization is left out of records of less than {SHORT:g} s, unless the one before was as short"
            )

    def points(self, at: int, now: float) -> Iterator[Datapoint]:
        """Yield what is still news, and counts that were not yielded yet whatever became of their runtimes."""
        for until, rows in self._held.values():
            if now <= until:
                for metric, value, dims, start_time in rows:
                    yield Datapoint(metric, value, dims, at, start_time)
        until, tags = self._counting
        owed, self._owed = self._owed, set()
        for tag in owed | tags if now <= until else owed:
            tally = self._tallies.of(tag, at)
            for (kind, name), count in tally.counts.items():
                metric, value, dims, start_time = self._series.row(
                    COUNTERS[kind], count, name, tag=tag, start_time=tally.start_time
                )
                yield Datapoint(metric, value, dims, at, start_time)

    def _take_runtimes(self, listed: Any, start_time: int) -> None:
        if listed is None:
            return  # null or missing is no news; where nothing runs the list is empty
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
        # Where groups have periods of their own, not each is in each record. What is not there is held as long as
        # there are runtimes at all.
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
        """Add what happened in the period of one record."""
        self._counting = self._until, {tag for tag, _ in entries}
        for tag, group in entries:
            tally = self._tallies.of(tag, start_time)
            self._owed.add(tag)
            ended = group.inference_summary if group.execution_summary is None else group.execution_summary
            for kind, summary in (("outcome", ended), ("error", group.error_summary)):
                for name, count in self._read.named(summary, f"summary by {kind}"):
                    tally.add((kind, name), int(count))

    def _is_noise(self, name: str, pid: Any, group: Group) -> bool:
        """Tell whether this is a share of next to no time, and not because such periods were configured."""
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
