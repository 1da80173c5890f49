"""Writes system metrics into an MLflow run through the tracking server's REST API."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.contract import datapoint
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import BadBatch, ConfigError, SinkClosed
from chipwatch.contract.plugin import Needs
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.net.faults import check_timeout
from chipwatch_sinks.mlflow.api import Api, LoggedMetric
from chipwatch_sinks.mlflow.finder import RunFinder
from chipwatch_sinks.mlflow.keys import FORBIDDEN, LONGEST, key_of, prefix_of
from chipwatch_sinks.mlflow.settings import URI, store_fault
from chipwatch_sinks.mlflow.steps import RunSteps

log = logging.getLogger(__name__)

NODE: Final = "MLFLOW_SYSTEM_METRICS_NODE_ID"
HOSTNAME: Final = "{hostname}"
MAX_KEYS: Final = 100_000
"""Most series whose MLflow keys are remembered."""
STATUS_INTERVAL: Final = 10.0
"""Seconds between two looks whether the run still runs, as in MLflow's own monitor."""
MS: Final = 1_000_000


class MlflowSink(Sink):
    """
    Writes metrics into a run as `system/METRIC`, or `system/NODE/METRIC`, until the run ends.

    Each point needs a step, a number that counts up. Steps continue after the last one of the run's system metrics.
    A step is saved before its points are sent, and points that are sent again keep it, so the server gets none twice.
    """

    needs = Needs(state=True)
    limits = Limits(max_points=1000, max_age=14 * 86_400.0, window=10.0, flush=10.0, zeros=False, names="mlflow")

    @dataclass(frozen=True, slots=True)
    class Config:
        """
        The options; the server's address, credentials and TLS settings come from MLflow's own variables.

        They are MLFLOW_TRACKING_URI, _USERNAME, _PASSWORD, _TOKEN, _SERVER_CERT_PATH, _CLIENT_CERT_PATH, _INSECURE_TLS,
        MLFLOW_WORKSPACE, DATABRICKS_HOST and DATABRICKS_TOKEN. HTTPS_PROXY and NO_PROXY apply.
        """

        tracking_uri: str | None = None
        """Address of the tracking server; unless set: MLFLOW_TRACKING_URI here, else in the watched processes."""
        run: str | None = None
        """Run to write to; unless set: MLFLOW_RUN_ID here, else in the watched processes."""
        node: str | None = None
        """This machine in the keys, {hostname} for its name; unless set: MLFLOW_SYSTEM_METRICS_NODE_ID, else none."""
        timeout: float = 12.0
        """Seconds to wait for an answer."""
        pid: int | None = None
        proc: Path = Path("/proc")

        def __post_init__(self) -> None:
            """Raise ValueError for an invalid value."""
            if self.tracking_uri and (fault := store_fault(self.tracking_uri)):
                raise ValueError(f"tracking_uri: {fault}")
            if self.node and (fault := node_fault(self.node)):
                raise ValueError(f"node: {fault}")
            check_timeout(self.timeout)

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str] = os.environ,
        clock: Callable[[], int] = time.time_ns,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: wall clock (ns since the epoch); `steady`: clock that never jumps (s)."""
        self._config, self._clock, self._steady = config, clock, steady
        self._finder = RunFinder(config, env, clock)
        node = config.node or env.get(NODE, "")
        if node and (fault := node_fault(node)):
            raise ConfigError(f"{NODE}: {fault}")
        self._prefix = prefix_of(node.replace(HOSTNAME, platform.node()))
        self._steps = RunSteps(self._prefix)
        self._api: Api | None = None
        self._is_sure = False  # True if the server is known to have taken the last batch
        self._ends: int | None = None  # when the run ended (ns); None while it runs
        self._is_told = False  # True once the log has told of another writer of the same keys
        self._experiment = ""
        self._looked = -STATUS_INTERVAL
        self._keys: dict[tuple[str, Dimensions], str] = {}  # series -> its key at MLflow
        self._owners: dict[str, tuple[str, Dimensions]] = {}

    def refuses(self, metric: datapoint.Metric, dims: Dimensions) -> str | None:
        is_long = len(key_of(self._prefix, metric, dims)) > LONGEST
        return f"its key has more than {LONGEST} characters" if is_long else None

    def check_start(self, dims: Collection[str]) -> None:
        """Raise ConfigError if neither the options nor a process that already runs names a server."""
        del dims
        if not self._finder.uri and self._config.pid is None:
            raise ConfigError(
                f"no tracking server is named: write {URI}=http://HOST:5000 before this command, also where a script"
                " sets it by itself, or set sinks.mlflow.tracking_uri"
            )

    def restore(self, saved: bytes) -> None:
        self._steps.restore(saved)

    def saved(self) -> bytes | None:
        return self._steps.saved(self._finder.run)

    def open(self) -> None:
        self.close()
        self._api = Api(self._finder.server(), self._config.timeout)
        self._finder.find_run(self._api)

    def prepare(self, points: Sequence[Datapoint]) -> bool:
        """Choose a step for each time among these points; return True if a new one was chosen."""
        if not self._is_sure or self._steady() - self._looked >= STATUS_INTERVAL:
            self._look()
        begins = (point.at if point.window_start is None else point.window_start for point in points)
        if self._ends is not None and all(begin > self._ends for begin in begins):
            raise SinkClosed(f"the run {self._finder.run} has ended, so no more is sent to it")
        return self._steps.choose({point.at // MS for point in points})

    def _look(self) -> None:
        """Ask the server whether the run still takes metrics, and for its newest steps."""
        assert self._api is not None
        name = self._finder.run
        run = self._api.get_run(name)
        if run.info.ended == "deleted":
            raise SinkClosed(f"the run {name} is deleted")
        end = run.info.end_time
        self._ends = (self._clock() if end is None else end * MS) if run.info.ended else None
        if self._steps.look(run, name) and not self._is_told:
            self._is_told = True
            log.warning(
                "mlflow: somebody else writes %s* of the run %s, too: MLflow's own monitor, or another agent; give"
                " this machine its own name with sinks.mlflow.node or %s",
                self._prefix, name, NODE,
            )  # fmt: skip
        self._looked, self._experiment = self._steady(), run.info.experiment_id

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """Store the batch in the run; return the points whose key belongs to another series."""
        assert self._api is not None
        if any(point.at // MS not in self._steps.steps for point in batch):
            self.prepare(batch)
        rejected, entries, keys = [], [], self._keys
        steps, stored = self._steps.steps, self._steps.stored
        for point in batch:
            metric, value, dims, at, *_ = point
            key = keys.get((metric.name, dims)) or self._learn(metric, dims)
            at //= MS
            if not key:
                rejected.append(Rejected(point, "its key is that of another series"))
            elif (step := steps[at]) > stored.get(key, -1):  # otherwise it is stored, and only the answer was lost
                entries.append(LoggedMetric(key, value, at, step))
        was_sure, self._is_sure = self._is_sure, not entries
        if entries:
            try:
                self._api.log_batch(self._finder.run, entries)
            except BadBatch:
                if was_sure:  # ask only once: a deleted run refuses every point
                    self._look()
                raise
            self._is_sure = True
        return rejected

    def _learn(self, metric: datapoint.Metric, dims: Dimensions) -> str:
        """Return the MLflow key of a series, or "" if another series has that key."""
        if len(self._keys) > MAX_KEYS:
            self._keys, self._owners = {}, {}
        key, series = key_of(self._prefix, metric, dims), (metric.name, dims)
        if self._owners.setdefault(key, series) != series:
            return ""
        self._keys[series] = key
        return key

    def destination(self) -> Mapping[str, str]:
        """Return the server, the run and the keys' prefix; for a run not known yet, the process that will name it."""
        facts = self._finder.destination() | {"keys": f"{self._prefix}*"}
        return {word: value for word, value in facts.items() if value or word == "keys"}

    def find(self, dims: Sequence[str]) -> str:
        return f"{self._finder.url}/#/experiments/{self._experiment}/runs/{self._finder.run}/system-metrics"

    def describe(self) -> str:
        return f"run {self._finder.run or 'not named'} at {self._finder.url or 'no server'}, {self._prefix}*"

    def close(self) -> None:
        if self._api is not None:
            self._api.close()


def node_fault(node: str) -> str | None:
    """Return why `node` cannot stand for a machine in keys, or None."""
    plain = node.replace(HOSTNAME, "")
    is_bad = FORBIDDEN.search(plain) or not node.strip(".")
    return f"expected letters, digits, dots, - and _, or {HOSTNAME}, got {node!r}" if is_bad else None
