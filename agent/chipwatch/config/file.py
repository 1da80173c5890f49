"""Reads the configuration file. It imports no library, since `chipwatch status --health` must be quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from chipwatch.base.text import nearest_file
from chipwatch.contract.errors import ConfigError, os_text

PREFIX: Final = "CHIPWATCH_"
"""Prefix of the agent's environment variables."""
MAX_BYTES: Final = 1 << 20
PLAINER: Final = {
    "Cannot overwrite a value": "a key is set twice",
    r"Illegal character '\n'": "a text has no closing quote",
}
"""Plainer words for messages of tomllib."""


def read_file(path: Path, *, again: bool = False) -> dict[str, Any]:
    """Return the tables of a TOML file; raise ConfigError. A pipe cannot be read `again`, since it is empty then."""
    try:
        if again and path.exists() and not path.is_file():
            raise ConfigError(f"{path}: not a regular file, so it cannot be read again; restart the agent instead")
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ConfigError(f"{path}: not a configuration: it has more than {MAX_BYTES:,} bytes")
        from tomllib import loads

        return loads(text.decode("utf-8-sig"))
    except OSError as problem:
        raise ConfigError(f"configuration file {path}: {os_text(problem)}{nearest_file(path)}") from problem
    except UnicodeDecodeError as problem:
        raise ConfigError(f"{path}: not UTF-8, from byte {problem.start + 1} on; save it as UTF-8") from problem
    except ValueError as problem:  # also for a number with more digits than Python reads
        words = f"{problem}"
        for theirs, ours in PLAINER.items():
            words = words.replace(theirs, ours)
        raise ConfigError(f"{path}: not TOML: {words}") from problem
    except RecursionError:
        raise ConfigError(f"{path}: not a configuration: its values are nested too deep") from None
