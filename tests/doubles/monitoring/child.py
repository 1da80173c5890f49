"""The double where it can be killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[3]


class Child:
    """The double in a separate process: it can be killed, and started again on its port."""

    def __init__(self, journal: Path | None = None, *, port: int = 0, min_gap: float = 10.0) -> None:
        """Start one; what it stores is in `journal`, if that is given, and the next one with it remembers."""
        self.port = port
        self._options = ["--min-gap", str(min_gap), *(["--journal", str(journal.resolve())] if journal else [])]
        self.process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def target(self) -> str:
        """Where it is."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, on the same port if it ran before; return when it listens."""
        command = [
            sys.executable,
            "-m",
            "tests.doubles.monitoring",
            "--child",
            "--port",
            str(self.port),
            *self._options,
        ]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line.startswith("127.0.0.1:"):
            self.kill()
            raise OSError(f"no double on port {self.port}")
        self.port = int(line.rpartition(":")[2])

    def kill(self) -> None:
        """End it without a word (kill -9)."""
        if self.process:
            self.process.kill()
            with self.process:
                self.process = None

    close = kill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
