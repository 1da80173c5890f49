"""The part of the screen about the agent that runs on this machine: what it has delivered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from chipwatch.net.status_socket import NoAgent, ask
from chipwatch.show.top.draw import Line

INTERVAL: Final = 2.0
"""Seconds between two requests to the agent."""
LATE: Final = 30.0
"""Seconds since the agent's last tick after which it counts as hanging."""
LONGEST: Final = 60
"""Most characters of an error."""


class Delivery:
    """Asks the agent on a separate thread, because an agent that hangs answers late."""

    def __init__(self, folder: Path, wake: Callable[[], None]) -> None:
        """Ask the agent whose state is in `folder`; call `wake` when the answer changes."""
        self._folder, self._wake = folder, wake
        self._stop = threading.Event()
        self.parts: list[Line] = []
        """The last answer: one piece of the line for each sink."""

    def start(self) -> None:
        """Start asking."""
        threading.Thread(target=self._run, name="delivery", daemon=True).start()

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                parts = parts_of(ask(self._folder, "status"))
            except NoAgent:
                parts = [[("no agent runs here", "dim")]]
            if parts != self.parts:
                self.parts = parts
                self._wake()
            self._stop.wait(INTERVAL)


def parts_of(status: Mapping[str, Any]) -> list[Line]:
    """Return a piece for each sink: points sent and kept, and its last error if it keeps points."""
    try:
        parts = [_sink(name, sink) for name, sink in status["sinks"].items()]
        if (status["seconds_since_tick"] or 0) > LATE:
            parts.insert(0, [(f"the agent hangs: its last tick was {status['seconds_since_tick']:.0f} s ago", "bad")])
    except (LookupError, TypeError, ValueError, AttributeError):
        return [[("the agent that runs here has another version", "dim")]]
    return parts


def _sink(name: str, sink: Mapping[str, Any]) -> Line:
    lost = sum((*sink["rejected"].values(), *sink["dropped"].values()))
    error = sink["refused"] or (sink["last_error"] if sink["kept"] else None)
    words = [sink["status"]] if sink.get("status") else [f"sent {sink['sent']:,}", f"kept {sink['kept']:,}"]
    words += [f"lost {lost:,}"] if lost else []
    line: Line = [(f"{name} ", "label"), ("failing " if error else "ok ", "bad" if error else "good")]
    return [*line, (", ".join(words), ""), (f" ({error[:LONGEST]})" if error else "", "warn")]
