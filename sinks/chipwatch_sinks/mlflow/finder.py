"""Finds the MLflow server and run to write to, from the options or from the watched processes."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from chipwatch.contract.errors import ConfigError, Refused, Retryable
from chipwatch_sinks.mlflow.api import Api
from chipwatch_sinks.mlflow.settings import RUN, URI, Server, server_of, store_fault, url_of
from chipwatch_sinks.mlflow.tree import ProcessFacts, processes, started, started_at

if TYPE_CHECKING:
    from chipwatch_sinks.mlflow import MlflowSink


class RunFinder:
    """Holds the server and the run once they are found, also after the process that named them has ended."""

    def __init__(self, config: MlflowSink.Config, env: Mapping[str, str], clock: Callable[[], int]) -> None:
        """Take the environment, and the wall clock (ns since the epoch); raise ConfigError for a wrong address."""
        self._config, self._env, self._clock = config, env, clock
        self.uri, self.run = config.tracking_uri or env.get(URI, ""), config.run or env.get(RUN, "")
        if self.uri and (fault := store_fault(self.uri)):
            raise ConfigError(f"{URI}: {fault}")
        self.url = url_of(self.uri, env)
        self._is_of_tree = config.pid is not None and not self.run
        self._process = ""  # the watched process: its PID and start
        self._since = self._user = 0
        self._members: list[ProcessFacts] = []  # facts of the watched processes when they last ran

    def destination(self) -> dict[str, str]:
        """Return the server and the run; for a run not known yet, the process that will name it."""
        facts = {"server": self.url, "run": self.run}
        if self._is_of_tree:
            self._note_process()
            facts["process"] = self._process
        return facts

    def server(self) -> Server:
        """Return the server's address and credentials; raise Refused or Retryable."""
        self._note_process()
        server = server_of(self.uri, self._env) if self.uri else self._server_of_tree()
        self.url = server.url
        return server

    def find_run(self, api: Api) -> None:
        """
        Find the run that the watched processes name, or that one of their programs began.

        A run that still runs comes before one that has ended. Raises Refused or Retryable.
        """
        pid, advice = self._config.pid, f"set {RUN} or sinks.mlflow.run"
        if self.run:
            return
        if pid is None:
            raise Refused(f"no run: {advice}")
        if run := next((run for process in self._members if (run := process.env.get(RUN))), None):
            self.run = run
            return
        if not self._process:
            raise Retryable(f"process {pid} names no run; {advice}", after=5.0)
        try:
            user = pwd.getpwuid(self._user).pw_name
        except KeyError:
            raise Refused(f"the user {self._user} of process {pid} has no name; {advice}") from None
        programs = {name for process in self._members for name in process.programs}
        begun = [run for run in api.begun(user, self._since) if run.data.program in programs]
        runs = [run for run in begun if not run.info.ended] or begun
        if len(runs) != 1:
            who, where = f"the command of process {pid}", f"run on {self.url}"
            raise Retryable(
                f"{who} has started more than one {where}; {advice} to name it" if runs else
                f"{who} has started no {where} so far; if it uses another server, set {URI} to that one; else {advice}",
                after=5.0,
            )  # fmt: skip
        self.run = runs[0].info.run_id

    def _note_process(self) -> None:
        """While the watched process runs, note what identifies it, and the facts of it and its descendants."""
        pid, proc = self._config.pid, self._config.proc
        if pid is None:
            return
        self._members = [*processes(proc, pid)] or self._members
        if not self._process and (began := started(proc, pid)):
            with suppress(OSError):
                self._user = (proc / str(pid)).stat().st_uid
                self._process, self._since = f"{pid} {began}", started_at(proc, pid, self._clock())

    def _server_of_tree(self) -> Server:
        for process in self._members:
            if uri := process.env.get(URI):
                if fault := store_fault(uri):
                    raise Refused(f"{URI} of the watched process: {fault}")
                return server_of(uri, process.env)
        raise Refused(f"no tracking server: set {URI} or sinks.mlflow.tracking_uri")
