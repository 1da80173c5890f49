"""Writes points to standard output as JSON lines or as a table."""

from __future__ import annotations

import errno
import io
import os
import platform
import select
import stat
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NoReturn, TextIO

from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import Refused, Retryable, SinkClosed, os_text
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch_sinks.stdout.jsonl import lines

if TYPE_CHECKING:
    from chipwatch_sinks.stdout.table import Table


PATIENCE: Final = 1.0
"""Most seconds that a write waits for its reader; then the next batch writes the rest first."""
AGAIN: Final = 0.1
"""Seconds until a write that waited too long for its reader is tried again."""


class StdoutSink(Sink):
    """
    Writes each batch to standard output, on the clock's thread. A reader that does not read delays it by a second.

    `json`: a line with an ASCII object for each point: time, name, kind, unit, value, dims; a counter has increase
    and start_time, a window has window_start and a gauge's summary. Unknown fields are left out; times are UTC.
    `table`: a table for each tick; counters are shown as rates, or as totals if they have no rate.
    """

    limits = Limits(max_points=10_000, durable=False, window=0, flush=0)

    @dataclass(frozen=True, slots=True)
    class Config:
        """The options."""

        path: Path | None = None
        """Append to this file instead, so that the output of `chipwatch -- COMMAND` is only the command's."""
        format: Literal["auto", "json", "table"] = "auto"
        """`auto` is `table` on a terminal, else `json`."""
        agent_metrics: bool = False
        """Show the agent's own metrics, too (table)."""

    def __init__(self, config: Config, stream: TextIO | BinaryIO | None = None) -> None:
        """Write to `stream`; None stands for standard output at the time of `open`."""
        self._config = config
        is_auto = config.format == "auto" and config.path is None
        is_table = config.format == "table" or (is_auto and os.isatty(1))  # a table also lists what has not happened
        self.limits = replace(self.limits, standard_output=config.path is None, zeros=is_table or None)
        self._stream: Any = stream
        self._file: io.FileIO | None = None
        self._format: str = config.format
        self._is_terminal = False
        self._table: Table | None = None
        self._unwritten = b""
        """Bytes that a failed call could not write."""
        self._begun: list[Datapoint] = []
        self._rejected: list[Rejected] = []

    def waits(self) -> bool:
        return False

    def open(self) -> None:
        """Open the stream; raise Refused if there is none."""
        stream = sys.stdout if self._stream is None else self._stream
        if self._config.path is not None and self._stream is None:
            try:
                stream = self._file = _opened(self._config.path)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    raise Retryable(f"{self._config.path}: no process reads this pipe") from error
                raise Refused(f"{self._config.path}: {os_text(error)}") from error
        if stream is None or stream.closed:
            raise Refused("standard output is closed")
        self._is_terminal = stream.isatty()
        if self._format == "auto":
            self._format = "table" if self._is_terminal else "json"
        self._render: Callable[[Sequence[Datapoint], list[Rejected]], str] = lines
        if self._format == "table":
            from chipwatch_sinks.stdout.table import Table

            table = Table(stream, is_terminal=self._is_terminal, own=self._config.agent_metrics, machine=_machine())
            self._table, self._render = table, table.draw
        stream.flush()
        self._file = self._file or _opened_again(stream)
        self._write, self._has_room = _writer(self._file or stream), _room(self._file or stream)

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """Write the batch; raise SinkClosed if the reader is gone, Retryable for any other error."""
        if self._unwritten:
            self._send("")
        whole, rejected = [*batch], self._rejected
        if self._begun and whole[: len(self._begun)] == self._begun:
            batch = whole[len(self._begun) :]
        else:
            rejected = []
        self._begun = []
        if batch and not _are_finite(batch):
            rejected += [Rejected(point, "not finite") for point in batch if not _is_finite(point)]
            batch = [point for point in batch if _is_finite(point)]
        if batch and (text := self._render(batch, rejected)):
            try:
                self._send(text)
            except Retryable:
                self._begun, self._rejected = whole, rejected
                raise
        return rejected

    def describe(self) -> str:
        return f"{self._config.path or 'standard output'}, {self._format}"

    def close(self) -> None:
        """Print the rows that a low terminal had no room for; close the file, but not standard output."""
        table, self._table = self._table, None
        if table and (text := table.rest()):
            with suppress(SinkClosed, Retryable):
                self._send(text)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _send(self, text: str) -> None:
        """Write what a failed call left over, then `text`; keep what cannot be written, and raise Retryable."""
        end = time.monotonic() + (0.0 if self._unwritten else PATIENCE)
        self._unwritten += text.encode()
        try:
            while self._unwritten:
                piece = self._unwritten
                if self._has_room:
                    if not self._has_room(max(0.0, end - time.monotonic())):
                        raise BlockingIOError(errno.EAGAIN, "the reader is too slow")
                    if not self._file:  # a stream that may wait, but takes so much without a wait once it is ready
                        piece = piece[: select.PIPE_BUF]
                if (written := self._write(piece)) is None:
                    raise BlockingIOError(errno.EAGAIN, "the reader is too slow")
                self._unwritten = self._unwritten[written:]
        except ValueError:
            self._abandon()
        except OSError as error:
            if isinstance(error, BrokenPipeError) or (self._is_terminal and error.errno == errno.EIO):  # EIO: hung up
                self._abandon()
            after = AGAIN if isinstance(error, BlockingIOError) else None
            raise Retryable(f"{self._config.path or 'standard output'}: {os_text(error)}", after=after) from error

    def _abandon(self) -> NoReturn:
        """Redirect standard output to /dev/null, else Python prints an error at exit: its docs, Note on SIGPIPE."""
        if self._stream is None and self._config.path is None:
            with suppress(OSError, ValueError):
                stdout, null = sys.stdout.fileno(), os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stdout)
                os.close(null)
        raise SinkClosed("the reader of standard output has closed it")


def _opened(path: Path | str) -> io.FileIO:
    """Open a file to append, so that neither a write nor the opening of a pipe waits for a reader."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
    return io.FileIO(path, "ab", opener=lambda name, _: os.open(name, flags | os.O_CLOEXEC, 0o666))


def _opened_again(stream: Any) -> io.FileIO | None:
    """Return a pipe or terminal, opened again so that our writes never wait, but other programs' may; else None."""
    with suppress(OSError, ValueError, AttributeError):
        number = stream.fileno()
        if stat.S_ISFIFO(os.fstat(number).st_mode) or os.isatty(number):
            return _opened(f"/proc/self/fd/{number}")
    return None


def _writer(stream: Any) -> Callable[[bytes], int | None]:
    """Return the method `write` of the lowest layer of `stream`, which alone returns how many bytes it wrote."""
    stream = getattr(stream, "buffer", stream)
    stream = getattr(stream, "raw", stream)
    if not isinstance(stream, io.TextIOBase):
        return stream.write  # type: ignore[no-any-return]

    def write(data: bytes) -> int:
        stream.write(data.decode())
        stream.flush()
        return len(data)

    return write


def _room(stream: Any) -> Callable[[float], bool] | None:
    """Return a function that waits for room in `stream`, at most so many seconds; None for a file: it has room."""
    try:
        number = stream.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, ValueError, AttributeError):
        return None
    if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(number)):
        return None
    return lambda timeout: bool(select.select([], [number], [], timeout)[1])


def _machine() -> str:
    """Return this machine's name and the number of its CPUs."""
    cpus = os.cpu_count() or 1
    return f"{platform.node()}  {cpus} CPU{'s' * (cpus > 1)}"


def _are_finite(batch: Sequence[Datapoint]) -> bool:
    """Return True if all numbers are finite: then their sum is, which is much quicker than a look at each."""
    _, values, _, _, _, _, summaries, increases = zip(*batch, strict=True)
    numbers = [*values, *filter(None, increases)]
    numbers += [total.sum + total.minimum + total.maximum + sum(total.values) for total in summaries if total]
    return isfinite(sum(numbers))


def _is_finite(point: Datapoint) -> bool:
    total = point.summary
    numbers = (total.sum, total.minimum, total.maximum, *total.values) if total else ()
    return all(map(isfinite, (point.value, point.increase or 0, *numbers)))
