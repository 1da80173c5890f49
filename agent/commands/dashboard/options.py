"""What is wanted of `agent dashboard`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from agent.advice import Scope


@dataclass(frozen=True, kw_only=True)
class Options(Scope):
    """What the flags say; the configuration says the rest."""

    cloud: str
    """The name of the sink."""
    alarms: bool = False
    """The alarms instead of the dashboard."""
    families: tuple[str, ...] = ()
    """Families or collectors of the machines to watch; this machine and what the configuration names unless set."""
    devices: int = 8
    """Accelerators and cores a machine, for naming profiles that put their number into the name."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Alarm -> its threshold, where it is not to be the usual one."""
    minutes: Mapping[str, float] = field(default_factory=dict)
    """Alarm -> minutes that it waits, likewise."""


def options(given: argparse.Namespace) -> Options:
    """Return what the command line says."""
    said = {one.name: getattr(given, one.name) for one in fields(Options) if hasattr(given, one.name)}
    said |= {key: tuple(said[key]) for key in ("notify", "groups", "resources") if key in said}
    said |= {key: dict(said[key]) for key in ("thresholds", "minutes") if key in said}
    return Options(**said | {"window": Options.window})  # of the sink, not of --window
