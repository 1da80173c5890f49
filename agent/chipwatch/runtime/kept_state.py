"""The state that processors keep over a restart of the agent: a file for each in the state folder."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from chipwatch.extensions import KeepsState
from chipwatch.host.state_file import read_state, write_state
from chipwatch.pipeline.sampler import Derivation

log = logging.getLogger(__name__)

INTERVAL: Final = 60.0
"""Seconds between two writes."""
MAX_SIZE: Final = 4 << 20
"""Bytes that are read of a file."""


class KeptState:
    """Restores processors, and saves them each minute and when asked; the caller holds the lock of the folder."""

    def __init__(self, folder: Path, derivations: Iterable[Derivation]) -> None:
        """Restore from `folder`; a file that cannot be read is left out."""
        self._files = {
            derivation: folder / f"{derivation.name}.json"
            for derivation in derivations
            if isinstance(derivation.processor, KeepsState)
        }
        self._due = time.monotonic() + INTERVAL
        for derivation, path in self._files.items():
            try:
                with contextlib.suppress(FileNotFoundError):
                    derivation.restore(read_state(path, MAX_SIZE), path)
            except OSError as problem:
                log.warning("%s: %s; %s begins without its state", path, problem.strerror, derivation.name)

    def look(self) -> None:
        """Save if a minute is over."""
        if time.monotonic() >= self._due:
            self.save()

    def save(self) -> None:
        """Rewrite each file; a full disk loses only the state after the next restart."""
        self._due = time.monotonic() + INTERVAL
        for derivation, path in self._files.items():
            if (saved := derivation.save()) is None:
                continue
            try:
                write_state(path, saved)
            except OSError as problem:
                log.info("%s is not saved: %s", path, problem.strerror or problem)
