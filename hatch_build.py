"""Writes the commit into each build, for `chipwatch --version`: of the checkout, of the sdist, or CHIPWATCH_COMMIT."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "chipwatch/base/commit"


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds one file to the wheel and to the sdist; an sdist's wheel has the sdist's."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, but for an editable installation, whose commit changes."""
        if version == "editable":
            return
        of_sdist = Path(self.root, "COMMIT")
        text = os.environ.get("CHIPWATCH_COMMIT") or (of_sdist.read_text() if of_sdist.exists() else self._commit())
        file = Path(tempfile.mkdtemp(), "commit")
        file.write_text(f"{text.strip()}\n", encoding="utf-8")
        build_data["force_include"][str(file)] = of_sdist.name if self.target_name == "sdist" else NAME

    def _commit(self) -> str:
        if not Path(self.root, ".git").exists():  # a folder above may be another project's
            return "unknown"
        try:
            return self._git("rev-parse", "HEAD") + ("+changes" if self._git("status", "--porcelain", "-uno") else "")
        except (OSError, subprocess.CalledProcessError):
            return "unknown"

    def _git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=True).stdout.strip()
