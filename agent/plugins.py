"""Names -> classes, by entry point; a plugin is imported only when it is asked for."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

COLLECTORS: Final = "agent.collectors"
SINKS: Final = "agent.sinks"


class UnknownPlugin(LookupError):
    """No plugin of that name is installed; the message lists those that are."""


def installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of `group` by name, sorted."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda p: p.name)}


def load(group: str, name: str) -> Any:
    """Import and return the class registered as `name`; raise UnknownPlugin."""
    known = installed(group)
    if name not in known:
        kind = group.removeprefix("agent.").removesuffix("s")
        raise UnknownPlugin(f"no {kind} {name!r}; installed: {', '.join(known) or 'none'}")
    return known[name].load()
