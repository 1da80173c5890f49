"""Makes the texts of README that follow from the node of the picture and from docs/benchmarks.md (`make picture`)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from chipwatch.collectors.process import COUNT, CPU_LIMIT, CPU_UTILIZATION, READ, RSS, WRITTEN
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.engine.build import FIRST_WINDOW
from chipwatch.engine.delivery import DeliveryLog
from chipwatch.engine.route import Admission
from chipwatch.engine.spool.file import Ledger
from chipwatch.engine.window import Window
from chipwatch.host.gpu_metrics import PROCESS_MEMORY_USED
from chipwatch.service.announcements import Announcements
from chipwatch.service.log_formats import Formatter, LogStyle
from chipwatch.show.report.summary import RunSummary
from chipwatch_sinks.cloudwatch import CloudwatchSink

BENCHMARKS: Final = Path(__file__).parents[1] / "docs/benchmarks.md"
GIB: Final = 2**30
DESTINATION: Final = "namespace Chipwatch, region us-east-1"
DIMS: Final = ("instance_id", "instance_type")


class RecordedRun:
    """Listens to the ticks of the node, as a run with `--sink cloudwatch` and a summary does."""

    def __init__(self, born: int, interval: int) -> None:
        """Take the time of the start (ns since the epoch) and the seconds of a tick."""
        self._born, self._interval = born, interval
        self._at = born
        self._window = Window(60, born=born, increases=True, first=FIRST_WINDOW)
        self._admission = Admission("cloudwatch", CloudwatchSink.limits.max_series, zeros=False, increases=True)
        self._windows: list[tuple[int, int]] = []
        self._minutes = Window(60, born=born)
        self.minutes: list[Datapoint] = []
        """The points of all windows of a minute, at level all."""
        self._summary = RunSummary()

    def take(self, points: Sequence[Datapoint], at: int, used: Mapping[str, Any]) -> None:
        """Take a tick; `used` are cores, CPUs, GPUs and bytes a second of the watched program."""
        self._at = at
        self.minutes += self._minutes.add(points, at)
        done = self._window.add(points, at, lambda metric: metric.level <= Level.BASIC)
        if done:
            self._windows.append((at, len(self._admission.admit(done))))
        self._summary.take([*points, *self._process(at, used)], at)

    def _process(self, at: int, used: Mapping[str, Any]) -> Iterator[Datapoint]:
        seconds = (at - self._born) / 1e9
        yield CPU_LIMIT.point(at, used["cpus"])
        yield CPU_UTILIZATION.point(at, 100 * used["cores"] / used["cpus"])
        yield RSS.point(at, 38 * GIB)
        yield COUNT.point(at, 13)
        yield READ.point(at, used["read"] * seconds, start_time=self._born)
        yield WRITTEN.point(at, 0, start_time=self._born)
        for gpu in used["gpus"]:
            yield PROCESS_MEMORY_USED.point(at, GIB, Dimensions(gpu=str(gpu)))

    def summary(self, command: Sequence[str], cores: float, jobs: Any) -> str:
        """Return the summary of a program that ran from the first tick to the last; `jobs` is the processor."""
        seconds, sent = (self._at - self._born) / 1e9, sum(points for _, points in self._windows)
        route = _route(Ledger())
        self._summary.listen(SimpleNamespace(routes=[route], derivations=[SimpleNamespace(processor=jobs)], listeners=[]))  # type: ignore[arg-type]  # fmt: skip
        route.spool.ledger.add({"collected": sent, "sent": sent})
        ended: Any = SimpleNamespace(
            command=command, seconds=seconds, code=int, cpu_seconds=lambda: cores * seconds,
            largest_process=float, storage_bytes=lambda: (0.0, 0.0),
        )  # fmt: skip
        return "\n".join(self._summary.lines(ended))

    def log(self, collectors: Mapping[str, str]) -> str:
        """Return what the run logs on a terminal; `collectors` by name, with the words of `describe`."""
        records: list[logging.LogRecord] = []
        handler, logger, ledger = logging.Handler(), logging.getLogger("chipwatch"), Ledger()
        handler.emit = records.append  # type: ignore[method-assign]
        logger.addHandler(handler)
        level = logger.level
        logger.setLevel(logging.INFO)
        samplers = [
            SimpleNamespace(name=name, ok=True, unavailable=None, found=found) for name, found in collectors.items()
        ]
        pipeline: Any = SimpleNamespace(samplers=samplers, routes=[_route(ledger)], ticks=1, listeners=[])
        announcements = Announcements(Config(interval=self._interval), pipeline, Path("/var/lib/chipwatch"))
        pipeline.listeners[0]()
        delivery, (at, first) = DeliveryLog("cloudwatch", ledger), self._windows[0]
        ledger.add({"collected": first, "sent": first})
        delivery.delivered(lambda: CloudwatchSink(CloudwatchSink.Config()).find(DIMS))
        rest = sum(points for _, points in self._windows) - first
        ledger.add({"collected": rest, "sent": rest})
        announcements.end()
        logger.removeHandler(handler)
        logger.setLevel(level)
        for record, moment in zip(records, (self._born, self._born, at, self._at), strict=True):
            record.created = moment / 1e9
        return "\n".join(map(Formatter(LogStyle.TERMINAL).format, records))


def _route(ledger: Ledger) -> Any:
    spool = SimpleNamespace(ledger=ledger, elsewhere=0, file=SimpleNamespace(store=True))
    worker = SimpleNamespace(
        sink=CloudwatchSink(CloudwatchSink.Config()),
        describe=lambda: DESTINATION,
        health=SimpleNamespace(is_closed=False, last_error=None),
    )
    return SimpleNamespace(name="cloudwatch", spool=spool, worker=worker, first_points=lambda _: 10.0)


def with_figures(readme: str, benchmarks: str) -> str:
    """Return README with the agent's cost as in the table that `make peers` writes into docs/benchmarks.md."""
    table = (line.split("|")[1:-1] for line in benchmarks.splitlines() if line.startswith("| **"))
    rows = {name.strip(" *"): [cell.strip() for cell in cells] for name, *cells in table}
    lines, cloud = rows["chipwatch: JSON lines, basic"], rows["chipwatch: CloudWatch, a point a minute"]
    share = float(lines[0].split()[0]) / 10  # ms a second -> % of a core
    text = f"{share:.2f} % of a core, {lines[2]} MB; {cloud[2]} MB with CloudWatch ([benchmarks](docs/benchmarks.md))"
    return _replaced(readme, r"(?m)(?<=beside the training takes ).*(?=\.$)", text)


def with_log(readme: str, log: str) -> str:
    """Return README with the log of a run."""
    return _replaced(readme, r"(?ms)(?<=^```text\n).*?(?=\n```$)", log)


def _replaced(readme: str, pattern: str, text: str) -> str:
    readme, count = re.subn(pattern, lambda _: text, readme)
    assert count == 1, pattern
    return readme
