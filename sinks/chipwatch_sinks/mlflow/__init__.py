"""MLflow: system metrics in the page of a run, through its tracking server's REST API."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import pwd
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chipwatch.contract import datapoint
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import BadBatch, ConfigError, Refused, Retryable, SinkClosed
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.net.faults import check_timeout
from chipwatch_sinks.mlflow.api import Api, LoggedMetric, Run
from chipwatch_sinks.mlflow.keys import FORBIDDEN, PREFIX, fault_of, key_of, prefix_of
from chipwatch_sinks.mlflow.settings import RUN, URI, Server, how_to_serve, server_of, store_fault, url_of
from chipwatch_sinks.mlflow.tree import ProcessFacts, processes, run_in, started, started_at, store_in

log = logging.getLogger(__name__)

NODE: Final = "MLFLOW_SYSTEM_METRICS_NODE_ID"
HOSTNAME: Final = "{hostname}"
MAX_KEYS: Final = 100_000
"""Series whose keys are remembered."""
STATUS_INTERVAL: Final = 10.0
"""Seconds between two checks that the run still runs, as in MLflow's own monitor."""
MS: Final = 1_000_000


class MlflowSink(Sink):
    """
    Writes metrics into a run as `system/METRIC`, or `system/NODE/METRIC`, until the run ends.

    The steps go on where the run's system metrics ended. A step is chosen and saved before its points are sent. Points
    that are sent again keep their step; only points that the server lacks are sent.
    """

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
        newest_run: bool | None = None
        """
        Write to the one run that the user of the watched process has started since, where no run is named.

        Unless set: only to a run that a program of the watched processes started, by its name.
        """
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
        """Take the environment, the wall clock (ns since the epoch), and a clock that never jumps (seconds)."""
        self._config, self._env, self._clock, self._steady = config, env, clock, steady
        self._uri, self._run = config.tracking_uri or env.get(URI, ""), config.run or env.get(RUN, "")
        if self._uri and (fault := store_fault(self._uri)):
            raise ConfigError(f"{URI}: {fault}")
        node = config.node or env.get(NODE, "")
        if node and (fault := node_fault(node)):
            raise ConfigError(f"{NODE}: {fault}")
        self._prefix = prefix_of(node.replace(HOSTNAME, platform.node()))
        self._url = url_of(self._uri, env)
        self._of_tree = config.pid is not None and not self._run
        self._process = ""  # the watched process, with when it started (ms) and its user
        self._since = self._user = 0
        self._store: str | None = None
        self._found: list[ProcessFacts] = []  # the last answer of the watched processes, which may have ended
        self._api: Api | None = None
        self._kept: dict[str, Any] = {}  # what `state` returned before the last restart
        self._next: int | None = None  # the next step; None: not known yet
        self._steps: dict[int, int] = {}  # time (ms) -> step, of the points that are being sent
        self._stored: dict[str, int] = {}  # key -> the newest step that the server had at the last look
        self._is_sure = False  # whether the server has taken the last batch, as far as we know
        self._ends: int | None = None  # when the run has ended (ns); None while it runs
        self._is_told = False  # whether the log names another writer of the same keys
        self._experiment = ""
        self._looked = -STATUS_INTERVAL
        self._keys: dict[tuple[str, Dimensions], str] = {}  # series -> its key
        self._owners: dict[str, tuple[str, Dimensions]] = {}

    def refuses(self, metric: datapoint.Metric, dims: Dimensions) -> str | None:
        return fault_of(key_of(self._prefix, metric, dims))

    def check_start(self, dims: Collection[str]) -> None:
        """Raise ConfigError where no server is named, and no process that runs already could name one."""
        del dims
        if not self._uri and self._config.pid is None:
            raise ConfigError(
                f"no tracking server is named: write {URI}=http://HOST:5000 before this command, also where a script"
                " sets it by itself, or set sinks.mlflow.tracking_uri"
            )

    def restore(self, saved: bytes) -> None:
        """Take back the steps of points that may have been sent, and the next step."""
        self._kept = json.loads(saved)

    def saved(self) -> bytes | None:
        """Return the steps of the points that are being sent, and the next step."""
        if self._next is None:
            return None
        kept = {"run": self._run, "keys": self._prefix, "next": self._next, "steps": self._steps}
        return json.dumps(kept).encode()

    def open(self) -> None:
        self.close()
        self._note_process()
        server, members = self._find_server()
        self._url = server.url
        api = Api(server, self._config.timeout)
        try:
            self._run = self._run or self._find_run(api, members)
        except BaseException:
            api.close()
            raise
        self._api = api

    def _note_process(self) -> None:
        """Note what identifies the watched process, while it is there."""
        pid, proc = self._config.pid, self._config.proc
        if pid is not None and not self._process and (began := started(proc, pid)):
            with contextlib.suppress(OSError):
                self._user = (proc / str(pid)).stat().st_uid
                self._process, self._since = f"{pid} {began}", started_at(proc, pid, self._clock())
                self._found = [*processes(proc, pid)]

    def _find_server(self) -> tuple[Server, list[ProcessFacts]]:
        """Return the server, and the watched processes; raise Refused or Retryable."""
        if (pid := self._config.pid) is not None and not (self._uri and self._run):
            self._found = [*processes(self._config.proc, pid)] or self._found
        members = self._found
        if self._uri:
            return server_of(self._uri, self._env), members
        for process in members:
            if uri := process.env.get(URI):
                if fault := store_fault(uri):
                    raise Refused(f"{URI} of the watched process: {fault}")
                return server_of(uri, process.env), members
        stores = (store_in(process.folder) for process in members if process.folder)
        self._store = next(filter(None, stores), self._store)
        beside = f"; the watched process logs to {self._store}: {how_to_serve(self._store)}" if self._store else ""
        raise Refused(f"no tracking server: set {URI} or sinks.mlflow.tracking_uri{beside}")

    def _find_run(self, api: Api, processes: Sequence[ProcessFacts]) -> str:
        """Return the run that the watched processes name, or have started; raise Refused or Retryable."""
        pid, advice = self._config.pid, f"set {RUN} or sinks.mlflow.run"
        if pid is None:
            raise Refused(f"no run: {advice}")
        if run := next((run for process in processes if (run := process.env.get(RUN))), None):
            return run
        for folder in {process.folder for process in processes if process.folder}:
            if (store := store_in(folder)) and (run := run_in(store, self._since)):
                return run
        if self._config.newest_run is False or not self._process:
            raise Retryable(f"process {pid} names no run; {advice}, or sinks.mlflow.newest_run = true", after=5.0)
        try:
            user = pwd.getpwuid(self._user).pw_name
        except KeyError:
            raise Refused(f"the user {self._user} of process {pid} has no name; {advice}") from None
        runs, who = api.begun(user, self._since), user
        if self._config.newest_run is None:
            programs = {name for process in processes for name in process.programs}
            runs, who = [run for run in runs if run.data.program in programs], f"the command of process {pid}"
        runs = [run for run in runs if not run.info.ended] or ([] if self._config.newest_run else runs)
        if len(runs) != 1:
            where = f"run on {self._url}"
            raise Retryable(
                f"{who} has started more than one {where}; {advice} to name it" if runs else
                f"{who} has started no {where} so far; if it uses another server, set {URI} to that one; else {advice}",
                after=5.0,
            )  # fmt: skip
        return runs[0].info.run_id

    def prepare(self, points: Sequence[Datapoint]) -> bool:
        """Choose a step for each time among these points; return whether a new one was chosen."""
        assert self._api is not None
        if not self._is_sure or self._steady() - self._looked >= STATUS_INTERVAL:
            self._look(self._api.get_run(self._run))
        if self._ends is not None and all(_begin(point) > self._ends for point in points):
            raise SinkClosed(f"the run {self._run} has ended, so no more is sent to it")
        assert self._next is not None
        times = sorted({point.at // MS for point in points})
        new = [at for at in times if at not in self._steps]
        known = {at: self._steps[at] for at in times if at in self._steps}
        self._steps = known | {at: self._next + n for n, at in enumerate(new)}
        self._next += len(new)
        return bool(new)

    def _look(self, run: Run) -> None:
        """Note whether the run still takes metrics, and how far its steps are."""
        if ended := run.info.ended:
            if ended == "deleted":
                raise SinkClosed(f"the run {self._run} is deleted")
            end = run.info.end_time
            self._ends = self._clock() if end is None else end * MS
        else:
            self._ends = None
        all_steps = [each.step for each in run.data.metrics if each.key.startswith(PREFIX)]
        self._stored = {each.key: each.step for each in run.data.metrics if self._is_own(each.key)}
        newest = max(self._stored.values(), default=-1)
        if self._next is None and (self._kept.get("run"), self._kept.get("keys")) == (self._run, self._prefix):
            self._next = self._kept["next"]
            self._steps = {int(at): step for at, step in self._kept["steps"].items()}
        elif self._next is None:
            self._next = max(all_steps, default=-1) + 1
        if newest >= self._next:
            if not self._is_told:
                log.warning(
                    "mlflow: somebody else writes %s* of the run %s, too: MLflow's own monitor, or another agent; give"
                    " this machine its own name with sinks.mlflow.node or %s",
                    self._prefix, self._run, NODE,
                )  # fmt: skip
            self._next, self._steps, self._is_told = newest + 1, {}, True
        self._looked, self._experiment = self._steady(), run.info.experiment_id

    def _is_own(self, key: str) -> bool:
        return key.startswith(self._prefix) and "/" not in key[len(self._prefix) :]

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """Store the batch in the run; return points whose key is that of another series."""
        assert self._api is not None
        if any(point.at // MS not in self._steps for point in batch):
            self.prepare(batch)
        rejected, entries, steps, keys, stored = [], [], self._steps, self._keys, self._stored
        for point in batch:
            metric, value, dims, at, *_ = point
            key = keys.get((metric.name, dims)) or self._learn(metric, dims)
            if not key:
                rejected.append(Rejected(point, "its key is that of another series"))
                continue
            at //= MS
            if (step := steps[at]) > stored.get(key, -1):  # else it was stored, and the answer was lost
                entries.append(LoggedMetric(key, value, at, step))
        was_sure, self._is_sure = self._is_sure, not entries
        if entries:
            try:
                self._api.log_batch(self._run, entries)
            except BadBatch:
                if was_sure:  # once: a run that is deleted refuses every point
                    self._look(self._api.get_run(self._run))
                raise
            self._is_sure = True
        return rejected

    def _learn(self, metric: datapoint.Metric, dims: Dimensions) -> str:
        """Return the key of a series, "" if another series has its key."""
        if len(self._keys) > MAX_KEYS:
            self._keys, self._owners = {}, {}
        key, series = key_of(self._prefix, metric, dims), (metric.name, dims)
        if self._owners.setdefault(key, series) != series:
            return ""
        self._keys[series] = key
        return key

    def destination(self) -> Mapping[str, str]:
        """Return the server, the run and the prefix of the keys; a run that is not known belongs to its process."""
        facts = {"server": self._url, "run": self._run, "keys": f"{self._prefix}*"}
        if self._of_tree:
            self._note_process()
            facts["process"] = self._process
        return {word: value for word, value in facts.items() if value or word == "keys"}

    def find(self, dims: Sequence[str]) -> str:
        return f"{self._url}/#/experiments/{self._experiment}/runs/{self._run}/system-metrics"

    def describe(self) -> str:
        return f"run {self._run or 'not named'} at {self._url or 'no server'}, {self._prefix}*"

    def close(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            api.close()


def node_fault(node: str) -> str | None:
    """Return why keys cannot have `node` as the name of a machine, or None."""
    plain = node.replace(HOSTNAME, "")
    is_bad = FORBIDDEN.search(plain) or not node.strip(".")
    return f"expected letters, digits, dots, - and _, or {HOSTNAME}, got {node!r}" if is_bad else None


def _begin(point: Datapoint) -> int:
    """Return the start of the time that a point covers (ns since the epoch)."""
    return point.at if point.window_start is None else point.window_start
