"""Standard output: lines of JSON, a table for people, or CloudWatch's embedded metric format (EMF)."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn, TextIO

from agent.datapoint import Datapoint, Dimensions, Metric
from agent.errors import Refused, Retryable, SinkClosed
from agent.sink import Limits, Rejected, Sink
from sinks.stdout.emf import events, is_allowed, series_fault
from sinks.stdout.jsonl import lines
from sinks.stdout.table import Table


class StdoutSink(Sink):
    """
    Writes each batch to standard output in one call, and keeps nothing back.

    `json`: one object a point and line, pure ASCII: time, name, kind, unit, value, dims; on a counter increase and
    since; start where the point speaks of a stretch of time; on a gauge's window summary. What is not known is left
    out. Times are UTC, cut to milliseconds, with a fraction only where it is not zero.
    `table`: one table a tick, redrawn in place on a terminal; a counter is its rate, or its total where that is all.
    `emf`: one line for each moment and set of dimensions; a counter is its increase.
    """

    limits = Limits(max_points=10_000, durable=False, window=0, flush=0)

    @dataclass(frozen=True, slots=True)
    class Config:
        """What may be set."""

        path: Path | None = None
        """Append to this file instead; so the output of `agent -- COMMAND` is the command's alone."""
        format: Literal["auto", "json", "table", "emf"] = "auto"
        """`auto` is `table` on a terminal, else `json`."""
        namespace: str = "Chipwatch"
        """CloudWatch's namespace (emf)."""
        high_resolution: bool = False
        """CloudWatch keeps seconds, not minutes (emf)."""

    def __init__(self, config: Config, stream: TextIO | BinaryIO | None = None) -> None:
        """Take the stream to write to; None: standard output as it is when `open` is called."""
        self._config = config
        if config.format == "emf":
            self.limits = replace(self.limits, increases=True)
        self._stream: Any = stream
        self._format: str = config.format
        self._terminal = False
        self._table: Table | None = None
        self._owed = b""
        self._file: BinaryIO | None = None

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        """Return why CloudWatch will never take a point of this series from its log (emf), or None."""
        return series_fault(metric, dims) if self._format == "emf" else None

    def open(self) -> None:
        """Find the stream; raise Refused where there is none, or where the namespace is not allowed."""
        if self._config.path is not None and self._stream is None:
            try:
                self._stream = self._file = self._config.path.open("ab", buffering=0)
            except OSError as error:
                raise Refused(f"{self._config.path}: {error.strerror}") from error
        stream = sys.stdout if self._stream is None else self._stream
        if stream is None or stream.closed:
            raise Refused("standard output is closed")
        self._terminal = stream.isatty()
        if self._format == "auto":
            self._format = "table" if self._terminal else "json"
        self._render: Callable[[Sequence[Datapoint], list[Rejected]], str] = lines
        if self._format == "emf":
            if not is_allowed(self._config.namespace, 255) or self._config.namespace[0] == ":":
                raise Refused(f"CloudWatch allows no namespace {self._config.namespace!r}")
            resolution = 1 if self._config.high_resolution else 60
            self._render = partial(events, self._config.namespace, resolution)
        elif self._format == "table":
            self._table = Table(stream, in_place=self._terminal and os.environ.get("TERM") != "dumb")
            self._render = self._table.draw
        stream.flush()
        self._write = _writer(stream)

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """Write the batch; raise SinkClosed where the reader has gone, Retryable on any other trouble."""
        rejected = [Rejected(point, "not finite") for point in batch if not _is_finite(point)]
        if rejected:
            batch = [point for point in batch if _is_finite(point)]
        if batch and (text := self._render(batch, rejected)):
            self._send(text)
        return rejected

    def describe(self) -> str:
        """Say where the points go, and how."""
        return f"{self._config.path or 'standard output'}, {self._format}"

    def close(self) -> None:
        """Show the last table whole if the terminal was too low for it; a stream that is not ours stays open."""
        table, self._table = self._table, None
        if table and (text := table.rest()):
            with suppress(SinkClosed, Retryable):
                self._send(text)
        if self._file is not None:
            self._file.close()
            self._file = self._stream = None

    def _send(self, text: str) -> None:
        """Write what a failed call still owes, so that no line is torn, then `text`."""
        owed = len(self._owed)
        data = left = self._owed + text.encode()
        try:
            while left:
                written = self._write(left)
                if written is None:
                    raise BlockingIOError(errno.EAGAIN, "the reader is behind")
                left = left[written:]
        except ValueError:
            self._leave()
        except OSError as error:
            if isinstance(error, BrokenPipeError) or (self._terminal and error.errno == errno.EIO):  # EIO: hung up
                self._leave()
            done = len(data) - len(left)
            torn = done < owed or data[:done][-1:] not in {b"", b"\n"}
            self._owed = b"".join(left.partition(b"\n")[:2]) if torn else b""
            raise Retryable(f"{self._config.path or 'standard output'}: {error}") from error
        self._owed = b""

    def _leave(self) -> NoReturn:
        """Turn away from the stream, else the interpreter complains when it ends (Python's Note on SIGPIPE)."""
        if self._stream is None or self._stream is sys.stdout:
            with suppress(OSError, ValueError):
                stdout, null = sys.stdout.fileno(), os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stdout)
                os.close(null)
        raise SinkClosed("the reader of standard output has gone")


def _writer(stream: Any) -> Callable[[bytes], int | None]:
    """Return the `write` of the lowest layer of `stream`: only that one tells how much of a write went through."""
    stream = getattr(stream, "buffer", stream)
    stream = getattr(stream, "raw", stream)
    if not isinstance(stream, io.TextIOBase):
        return stream.write  # type: ignore[no-any-return]

    def write(data: bytes) -> int:
        stream.write(data.decode())
        stream.flush()
        return len(data)

    return write


def _is_finite(point: Datapoint) -> bool:
    rise, total = point.increase, point.summary
    if not isfinite(point.value) or (rise is not None and not isfinite(rise)):
        return False
    return total is None or all(map(isfinite, (total.sum, total.minimum, total.maximum, *total.values)))
