"""Runs an agent in a child process, which records this process and its machine until the end of a with-block."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess  # noqa: TID251  # starts our own program, never through a shell
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from chipwatch.contract.errors import CommandError
from chipwatch.host.wrapped import is_first_rank

if TYPE_CHECKING:
    from chipwatch.history.columns import RecordedSeries

log = logging.getLogger(__name__)

PROGRAM: Final = (
    "import os, signal, sys; sys.argv[0] = 'chipwatch'; signal.signal(signal.SIGTERM, signal.SIG_DFL); "
    "signal.pthread_sigmask(signal.SIG_SETMASK, ()); "
    "sys.path += [place for place in sys.argv.pop(1).split(os.pathsep) if place not in sys.path]; "
    "from chipwatch.__main__ import main; main()"
)
"""Runs the command line, with plugins of this process's path; SIGTERM ends it, also where a training ignores that."""
START: Final = 30.0
"""Seconds to wait for the agent's start, which a wrong option ends; a slow file system may take longer."""
STOP: Final = 10.0
"""Seconds to wait for its end, which takes 8 at most."""
LOOK: Final = 0.005
"""Seconds between two looks for its start."""
MOST_DRAWN: Final = 4_000_000
"""Readings of which graphs are drawn, three hours of eight GPUs at 1 s: some seconds, and 100 MB."""
TABLES: Final = ("pandas", "polars")
Names = str | Sequence[str]


class Watch:
    """
    An agent that records this process and the machine; `watch` makes it, and a with-block starts and ends it.

    Nothing of it runs in this process. A copy in another process, forked or pickled, can read, and ends nothing.
    """

    def __init__(self, words: Sequence[str], record: Path | None, why_not: str = "") -> None:
        """Run `agent` with the options `words`; `why_not`: why this process is not watched, or ""."""
        self._words, self._record, self._why_not = words, record, why_not
        self._folder: Path | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._is_over = False
        self._trouble = ""
        """The end of the agent, if that was early or not well."""

    def start(self) -> Self:
        """Start the agent; raise RuntimeError, with the agent's last message, where it cannot start."""
        if self._folder:
            raise RuntimeError("chipwatch: it was started before; call chipwatch.watch again")
        if self._why_not:
            return self
        self._pid, folder = os.getpid(), Path(tempfile.mkdtemp(prefix="chipwatch-"))
        self._folder, summary = folder, folder / "summary"
        path = os.pathsep.join(filter(None, map(str, sys.path)))
        words = [path, "record", str(self.path), *self._words, f"--summary={summary}", f"--parent={self._pid}"]
        children: list[subprocess.Popen[bytes]] = []
        remove = weakref.finalize(self, _remove, children, folder, self._pid)
        try:
            with (folder / "log").open("wb") as errors:
                self._child = subprocess.Popen(  # noqa: S603  # no shell
                    [sys.executable, "-P", "-c", PROGRAM, *words],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                    start_new_session=True,  # Ctrl-C is for this process
                )  # fmt: skip
            children.append(self._child)
            self._wait_for(summary, self._child)
        except BaseException:
            self._is_over = True
            remove()
            raise
        return self

    def stop(self) -> None:
        """End the agent after its last reading and delivery; log a warning if it ended early, or not well."""
        child = self._child
        if child is None or self._is_over or os.getpid() != self._pid:
            return
        self._is_over = True
        is_early = child.poll() is not None
        _end(child)
        if is_early or child.returncode:
            self._trouble = self._end_of_agent(child.returncode)
            log.warning("chipwatch: %s; what it read before is kept", self._trouble)

    def __enter__(self) -> Self:
        """Start the agent; raise RuntimeError where it cannot start."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, bug: BaseException | None, _: TracebackType | None) -> None:
        """End the agent."""
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy in another process."""
        return {**vars(self), "_child": None}

    @property
    def path(self) -> Path:
        """The recording: `record`, else a temporary file, which is removed with this object."""
        return self._record or (self._folder or Path()) / "run.chipwatch"

    def summary(self) -> str:
        """Return what was used so far, in the words of the summary of `chipwatch -- COMMAND`."""
        if not self._folder:
            return f"chipwatch: nothing is watched: {self._why_not or 'it was not started'}"
        text = _text(self._folder / "summary") or "chipwatch: no reading so far"
        return f"{text}\n  agent     {self._trouble}" if self._trouble else text

    __repr__ = summary

    def columns(self, most: int = 30_000_000) -> list[RecordedSeries]:
        """Return the readings so far by series, none where nothing is watched; raise NotARecording."""
        from chipwatch.history.columns import load, runs_of

        runs = runs_of([self.path] if self._folder else [])
        return [series for run in runs for series in load(*run, most_points=most).columns]

    def frame(self, library: str = "") -> Any:
        """
        Return the readings as a data frame of pandas, else of polars; raise ModuleNotFoundError without both.

        Columns: `time` (UTC), `name`, `unit`, `value`, and one for each dimension; a row a reading, a series at a time.
        """
        names = (library,) if library else TABLES
        if (name := next(filter(find_spec, names), "")) not in TABLES:
            wanted = library if library in TABLES else "pandas or polars"
            raise ModuleNotFoundError(f"chipwatch: frame() needs {wanted}: pip install {wanted.split()[0]}")
        made_by, columns = import_module(name), self.columns()
        table: dict[str, list[Any]] = {"time": [], "name": [], "unit": [], "value": []}
        keys = {key: f"dims.{key}" if key in table else key for column in columns for key in column.dims}
        table |= {keys[key]: [] for key in sorted(keys)}
        for column in columns:
            table["time"] += column.times
            table["value"] += column.values
            same = {"name": column.metric.name, "unit": column.metric.unit}
            for key, value in (same | {keys[key]: column.dims.get(key) for key in keys}).items():
                table[key] += [value] * len(column.times)
        frame = made_by.DataFrame(table)
        if name == "polars":
            return frame.with_columns(made_by.from_epoch("time", time_unit="ns").dt.replace_time_zone("UTC"))
        return frame.assign(time=made_by.to_datetime(frame["time"], unit="ns", utc=True))

    def report(self, path: str | Path, *, price: float | None = None, grid: str | None = None) -> None:
        """
        Write the page of `chipwatch report` about the readings so far; none if nothing is watched. Raise CommandError.

        `price` and `grid` are the options of the command line with these names.
        """
        from chipwatch.show.report.page.build import write

        if self._folder:
            write([self.path], Path(path), price, grid)

    def _repr_html_(self) -> str:
        from chipwatch.show.watching.view import html

        columns: list[RecordedSeries] = []
        with suppress(CommandError):  # no reading so far, or too many
            columns = self.columns(MOST_DRAWN)
        return html(self.summary(), columns)

    def _wait_for(self, summary: Path, child: subprocess.Popen[bytes]) -> None:
        """Wait for the start; raise RuntimeError if the agent ends instead."""
        deadline = time.monotonic() + START
        while not summary.exists() and time.monotonic() < deadline:
            if (code := child.poll()) is not None:
                raise RuntimeError(f"chipwatch: {self._end_of_agent(code)}")
            time.sleep(LOOK)

    def _end_of_agent(self, code: int) -> str:
        """Return how the agent ended, with its last message."""
        assert self._folder
        lines = _text(self._folder / "log").splitlines()
        return f"the agent ended with {code}" + (f": {lines[-1].removeprefix('chipwatch: ')}" if lines else "")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # it is not there yet, or somebody cleaned the folder of temporary files
        return ""


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the agent; kill it after STOP seconds, and at once if this process is interrupted."""
    child.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            child.wait(STOP)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def _remove(children: Sequence[subprocess.Popen[bytes]], folder: Path, pid: int) -> None:
    """End the agent, if it was started, and remove its temporary folder; a forked copy does nothing."""
    if os.getpid() == pid:
        for child in children:
            _end(child)
        shutil.rmtree(folder, ignore_errors=True)


def watch(
    interval: float | str = 1.0,
    *,
    collectors: Names = (),
    sinks: Names = (),
    dims: Mapping[str, str] | None = None,
    common_dims: Names = (),
    level: str | None = None,
    config: str | Path | None = None,
    record: str | Path | None = None,
    pid: int | None = None,
    everywhere: bool = False,
    options: Sequence[str] = (),
) -> Watch:
    """
    Return an agent for a with-block, which reads this process and the machine each `interval` seconds.

    `collectors`, `sinks`, `dims`, `common_dims`, `level` and `config` are the options of the command line with these
    names, `options` any others. `record` keeps the recording. `pid`: watch this process instead; under torchrun it is
    the launcher, which has all ranks of the machine. Only the first rank of a machine is watched, and no worker that
    multiprocessing started, unless `everywhere` is true.
    """
    why_not, workers = "", sys.modules.get("multiprocessing")
    if not everywhere and not is_first_rank(os.environ):
        why_not = "this is not the first rank of the machine"
    elif not everywhere and workers and workers.parent_process():
        why_not = "multiprocessing started this process"
    if pid is None:
        has_ranks = not everywhere and os.environ.get("LOCAL_WORLD_SIZE", "") not in ("", "1")
        pid = os.getppid() if has_ranks else os.getpid()
    given = {"interval": str(interval), "pid": pid, "level": level, "config": config,
             "collector": _listed(collectors), "sink": _listed(sinks), "common-dims": _listed(common_dims)}  # fmt: skip
    words = ["--recorder=false", *(f"--{name}={value}" for name, value in given.items() if value)]
    words += [f"--dim={key}={value}" for key, value in (dims or {}).items()]
    return Watch([*words, *options], None if record is None else Path(record).absolute(), why_not)


def _listed(names: Names) -> str:
    return names if isinstance(names, str) else ",".join(names)
