"""The options of `chipwatch dashboard`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import SimpleNamespace

from chipwatch.contract.advice import Scope


@dataclass(frozen=True, kw_only=True)
class BoardOptions(Scope):
    """The flags; the other fields of Scope come from the configuration."""

    cloud: str
    """Name of the sink."""
    alarms: bool = False
    """Print the alarms instead of the dashboard."""
    board: str = ""
    """Dashboard of panels.toml; empty: all that is sent."""
    records: bool = False
    """Print rules that record the groups of the dashboard."""
    families: tuple[str, ...] = ()
    """Families or collectors of the machines to watch; unless set, this machine and the configured collectors."""
    devices: int = 8
    """Accelerators and cores of a machine, for naming profiles with device numbers in the names."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Alarm -> its threshold, if not the default."""
    minutes: Mapping[str, float] = field(default_factory=dict)
    """Alarm -> minutes that it waits, if not the default."""


def options(given: SimpleNamespace) -> BoardOptions:
    """Return the options of the command line."""
    flags = {key: getattr(given, key) for key in (field.name for field in fields(BoardOptions)) if hasattr(given, key)}
    flags |= {key: tuple(flags[key]) for key in ("notify", "groups", "resources") if key in flags}
    flags |= {key: dict(flags[key]) for key in ("thresholds", "minutes") if key in flags}
    return BoardOptions(**flags | {"window": BoardOptions.window})  # of the sink, not of --window
