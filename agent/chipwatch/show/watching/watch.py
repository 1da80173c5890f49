"""Watches this Python process: a child process runs the agent and records until the end of a with-block."""

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
"""Program of the child: the command line, with the import path of this process. SIGTERM ends it in any case."""
START: Final = 30.0
"""Seconds to wait until the agent runs or reports a wrong option; on a slow file system the start goes on later."""
STOP: Final = 10.0
"""Seconds to wait for the agent's end, which takes at most 8."""
LOOK: Final = 0.005
"""Seconds between two checks for the agent's start."""
MOST_DRAWN: Final = 4_000_000
"""Most readings to draw graphs of: three hours of eight GPUs at 1 s, which take some seconds and 100 MB."""
TABLES: Final = ("pandas", "polars")
Names = str | Sequence[str]


class Watch:
    """
    An agent in a child process that records this process and its machine; a with-block starts and ends it.

    `watch` creates it. A forked or pickled copy in another process can read the recording, but not end the agent.
    """

    def __init__(self, words: Sequence[str], record: Path | None, why_not: str = "") -> None:
        """`words`: options of the agent; `record`: its recording; `why_not`: why this process is not watched, or ""."""
        self._words, self._record, self._why_not = words, record, why_not
        self._folder: Path | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._is_over = False
        self._trouble = ""
        """Sentence about the agent's end if it ended early or with an error; otherwise ""."""

    def start(self) -> Self:
        """Start the agent; raise RuntimeError with the agent's last message if it cannot start."""
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
        """End the agent after a last reading and delivery; log a warning if it ended early or with an error."""
        child = self._child
        if child is None or self._is_over or os.getpid() != self._pid:
            return
        self._is_over = True
        is_early = child.poll() is not None
        _end(child)
        if is_early or child.returncode:
            self._trouble = self._end_of_agent(child.returncode)
            log.warning("chipwatch: %s; what it read before is kept", self._trouble)

    __enter__ = start

    def __exit__(self, kind: type[BaseException] | None, bug: BaseException | None, _: TracebackType | None) -> None:
        """End the agent."""
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without the child process: a copy must not end it."""
        return {**vars(self), "_child": None}

    @property
    def path(self) -> Path:
        """The recording: `record`, or a temporary file that is removed together with this object."""
        return self._record or (self._folder or Path()) / "run.chipwatch"

    def summary(self) -> str:
        """Return the summary so far, as `chipwatch run -- COMMAND` prints it at its end."""
        if not self._folder:
            return f"chipwatch: nothing is watched: {self._why_not or 'it was not started'}"
        text = _text(self._folder / "summary") or "chipwatch: no reading so far"
        return f"{text}\n  agent     {self._trouble}" if self._trouble else text

    __repr__ = summary

    def columns(self, most: int = 30_000_000) -> list[RecordedSeries]:
        """Return the readings so far, by series; none if nothing is watched. Raise NotARecording."""
        from chipwatch.history.columns import load, runs_of

        runs = runs_of([self.path] if self._folder else [])
        return [series for run in runs for series in load(*run, most_points=most).columns]

    def frame(self, library: str = "") -> Any:
        """
        Return the readings as a data frame of pandas, or of polars; raise ModuleNotFoundError without both.

        One row for each reading, ordered by series. Columns: `time` (UTC), `name`, `unit`, `value`, every dimension.
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
        Write the page of `chipwatch report` about the readings so far, unless nothing is watched. Raise CommandError.

        `price` and `grid` are the options of that command.
        """
        from chipwatch.show.report.page.build import write

        if self._folder:
            write([self.path], Path(path), price, grid)

    def _repr_html_(self) -> str:
        from chipwatch.show.watching.magic import html

        columns: list[RecordedSeries] = []
        with suppress(CommandError):  # no reading so far, or too many
            columns = self.columns(MOST_DRAWN)
        return html(self.summary(), columns)

    def _wait_for(self, summary: Path, child: subprocess.Popen[bytes]) -> None:
        """Wait until the agent has started; raise RuntimeError if it ends instead."""
        deadline = time.monotonic() + START
        while not summary.exists() and time.monotonic() < deadline:
            if (code := child.poll()) is not None:
                raise RuntimeError(f"chipwatch: {self._end_of_agent(code)}")
            time.sleep(LOOK)

    def _end_of_agent(self, code: int) -> str:
        """Return a sentence with the agent's exit code and its last message."""
        assert self._folder
        lines = _text(self._folder / "log").splitlines()
        return f"the agent ended with {code}" + (f": {lines[-1].removeprefix('chipwatch: ')}" if lines else "")


def _text(path: Path) -> str:
    with suppress(OSError):  # it does not exist yet, or the folder of temporary files was cleaned
        return path.read_text(errors="replace").strip()
    return ""


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the agent; kill it after STOP seconds, or at once if this process is interrupted."""
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
    Return an agent for a with-block; it reads this process and the machine every `interval` seconds.

    `collectors`, `sinks`, `dims`, `common_dims`, `level` and `config` are options of the command line; `options` has
    any others. `record` names a file to keep the recording. `pid` is the process to watch: by default this one, or
    under torchrun the launcher, which has all ranks of the machine as children. Without `everywhere`, only the first
    rank of a machine is watched, and no worker of multiprocessing.
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
