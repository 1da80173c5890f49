"""The options of `chipwatch dashboard`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import SimpleNamespace

from chipwatch.contract.advice import Scope


@dataclass(frozen=True, kw_only=True)
class BoardOptions(Scope):
    """The options of `chipwatch dashboard`; some fields of Scope come from the configuration instead."""

    cloud: str
    """Name of the sink."""
    alarms: bool = False
    """Print the alarms instead of the dashboard."""
    board: str = ""
    """Name of a dashboard in panels.toml; "" for all that is sent."""
    records: bool = False
    """Print recording rules for the groups of the dashboard instead."""
    families: tuple[str, ...] = ()
    """Families or collectors of the machines to watch; () for this machine and the configured collectors."""
    devices: int = 8
    """Number of accelerators and cores of a machine, for naming profiles that put device numbers into names."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Alarm -> its threshold instead of the default."""
    minutes: Mapping[str, float] = field(default_factory=dict)
    """Alarm -> minutes that its condition must last, instead of the default."""


def options(given: SimpleNamespace) -> BoardOptions:
    """Return the options of the command line."""
    flags = {key: getattr(given, key) for key in (field.name for field in fields(BoardOptions)) if hasattr(given, key)}
    flags |= {key: tuple(flags[key]) for key in ("notify", "groups", "resources") if key in flags}
    flags |= {key: dict(flags[key]) for key in ("thresholds", "minutes") if key in flags}
    return BoardOptions(**flags | {"window": BoardOptions.window})  # `make` sets the sink's window
