"""The configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from agent.errors import ConfigError


def read_file(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise ConfigError."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror or problem}") from problem
    except ValueError as problem:  # also a number of more digits than Python reads
        raise ConfigError(f"{path}: not TOML: {problem}") from problem
    except RecursionError:
        raise ConfigError(f"{path}: not a configuration: its values are nested too deep") from None
