"""Tells people at a terminal what a slow command waits for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from threading import Timer
from typing import Final

SLOW: Final = 2.0
"""Seconds of silence that people take for a hang."""


@contextlib.contextmanager
def say_if_slow(text: str, descriptor: int = 2) -> Iterator[None]:
    """Print `text` if the block takes longer than SLOW seconds, on standard error if that is a terminal."""

    def say() -> None:
        with contextlib.suppress(OSError):
            os.write(descriptor, f"chipwatch: {text}\n".encode())

    if not os.isatty(descriptor):
        yield
        return
    timer = Timer(SLOW, say)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no thread can be started
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
