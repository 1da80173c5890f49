"""Finds the MLflow server and run to write to, from the options or from the watched processes."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from chipwatch.contract.errors import ConfigError, Refused, Retryable
from chipwatch_sinks.mlflow.api import Api
from chipwatch_sinks.mlflow.settings import RUN, URI, Server, server_of, store_fault, url_of

if TYPE_CHECKING:
    from chipwatch_sinks.mlflow import MlflowSink

MAX_PROCESSES: Final = 1000
"""Most processes that are read: the watched one and its descendants."""
MAX_ENVIRONMENT: Final = 1 << 20
"""Most bytes that are read of an environment; Linux allows 128 KiB for one variable."""
MAX_STAT: Final = 4096
PARENT: Final = 1
STARTED: Final = 19
"""Indexes of ppid and starttime among the fields of /proc/PID/stat after the name: proc_pid_stat(5)."""


class ProcessFacts(NamedTuple):
    """The environment and the programs of one process."""

    env: Mapping[str, str]
    programs: frozenset[str] = frozenset()
    """File names in its command line; for `-m package.module` also `module.py`."""


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
        uri, env = self.uri, self._env
        if not uri:
            env = next((process.env for process in self._members if process.env.get(URI)), {})
            if not (uri := env.get(URI, "")):
                raise Refused(f"no tracking server: set {URI} or sinks.mlflow.tracking_uri")
            if fault := store_fault(uri):
                raise Refused(f"{URI} of the watched process: {fault}")
        server = server_of(uri, env)
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
        if named := [process.env[RUN] for process in self._members if process.env.get(RUN)]:
            self.run = named[0]
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


def started(proc: Path, pid: int) -> str:
    """Return when the process started, in clock ticks since boot, or ""; with the PID it identifies the process."""
    fields = _stat(proc / str(pid))
    return fields[STARTED] if fields else ""


def started_at(proc: Path, pid: int, now: int) -> int:
    """Return when the process started (ms since the epoch), or 0 if unknown; `now` is in ns."""
    try:
        up = float((proc / "uptime").read_text().split()[0])
        return int(now / 1e6 - 1000 * (up - int(started(proc, pid)) / os.sysconf("SC_CLK_TCK")))
    except (OSError, ValueError, IndexError):
        return 0


def processes(proc: Path, pid: int) -> Iterator[ProcessFacts]:
    """Yield the process and its descendants, parents first."""
    children: dict[str, list[str]] = {}
    with suppress(OSError):
        for folder in proc.iterdir():
            if folder.name.isdecimal() and (fields := _stat(folder)):
                children.setdefault(fields[PARENT], []).append(folder.name)
    left = [str(pid)]
    for _ in range(MAX_PROCESSES):
        if not left:
            return
        left += children.get(left[0], ())
        folder = proc / left.pop(0)
        with suppress(OSError):
            pairs = (pair.partition("=") for pair in _texts(folder / "environ"))
            env, words = {name: value for name, found, value in pairs if found}, _texts(folder / "cmdline")
            modules = (f"{module.rpartition('.')[2]}.py" for flag, module in pairwise(words) if flag == "-m")
            yield ProcessFacts(env, frozenset({*(Path(word).name for word in words), *modules} - {""}))


def _stat(folder: Path) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; none if the process is gone."""
    try:
        with (folder / "stat").open("rb") as file:
            fields = file.read(MAX_STAT).rpartition(b") ")[2].decode("ascii", "replace").split()
    except OSError:
        return []
    return fields if len(fields) > STARTED else []


def _texts(file: Path) -> list[str]:
    """Return the texts of a file in which a zero byte ends each text; raise OSError."""
    with file.open("rb") as opened:
        return opened.read(MAX_ENVIRONMENT).decode(errors="replace").split("\0")
