"""The full screen of a fleet: as `chipwatch top`, with a row for each node; Enter opens a node."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from chipwatch.base.redaction import one_line
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.errors import CommandError, ConfigError, Refused, Retryable, os_text
from chipwatch.host.supervised_process import exit_text
from chipwatch.show.fleet.node import FleetNode
from chipwatch.show.fleet.page import points_of
from chipwatch.show.fleet.poll import Poller, page_of, ssh_command
from chipwatch.show.fleet.screen import FleetView, chosen, compose
from chipwatch.show.fleet.store import NODE_LABELS, PromClient, PromStore
from chipwatch.show.top.draw import Line
from chipwatch.show.top.live import Frame, Live, Source
from chipwatch.show.top.program import Top, show
from chipwatch.show.top.terminal import Terminal, refused


class FleetSource(Source):
    """The source of the fleet's lines. It starts before the screen, and continues while a node is open."""

    def __init__(self, asked: Poller | PromStore, interval: float) -> None:
        self.asked, self._interval = asked, interval

    def mode(self) -> str:
        """Return the interval."""
        return f"every {self._interval:g} s"


class FleetTop(Top):
    """The content of the fleet's screen."""

    view: FleetView

    def __init__(self, given: SimpleNamespace, colors: str | None, env: Mapping[str, str]) -> None:
        super().__init__("fleet", colors, env)
        by = getattr(given, "by", "")
        self.view, self._given = FleetView(label=by, by=by), given
        self._nodes: list[FleetNode] = []

    def take(self, source: Any) -> None:
        """Take the last line of each node, unless paused."""
        self.view.orders = [order for order in self.view.orders if order == "quit"]
        if self.view.paused:
            return
        self._troubles, self.view.labels = tuple(filter(None, (source.asked.trouble,))), source.asked.labels
        nodes = [node for node in source.asked.lines() if chosen(node, self._given)]
        self._nodes = sorted(nodes, key=lambda node: node.place)
        for past in source.asked.hour:
            self.view.put(*past)

    def lines(self, size: tuple[int, int], mode: str) -> list[Line]:
        """Return the screen."""
        return compose(self._nodes, self.view, size, mode, (*self.bugs, *self._troubles))


class NodeFrames(Live):
    """Reads one opened node on a daemon thread, from its page or from a store."""

    def __init__(self, read: Callable[[], Iterable[Datapoint]], interval: float, wake: Callable[[], None]) -> None:
        super().__init__(Config(), interval, wake)
        self._read = read

    def start(self) -> None:
        threading.Thread(target=self._follow, args=(self._interval,), name="node", daemon=True).start()

    def mode(self) -> str:
        return f"{super().mode()}, q: back to the fleet"

    def _frame(self, at: int) -> Frame:
        try:
            read = [*self._read()]
            return Frame(at, self._window.add(read, at), troubles=() if read else ("no metrics that are known here",))
        except (CommandError, Refused, Retryable) as problem:
            return Frame(at, [], troubles=(one_line(str(problem)),))


def open_by_ssh(command: list[str]) -> None:
    """Run ssh on this terminal. If it fails, wait for Enter, because the screen would hide its message."""
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp(command[0], command, os.environ), 0)[1])
        how = exit_text(code) if code else ""
    except OSError as problem:
        how = f"cannot be started: {os_text(problem)}"
    if how:
        sys.stderr.write(f"chipwatch: ssh {how}; press Enter to go back to the fleet ")
        sys.stderr.flush()
        with suppress(KeyboardInterrupt):
            sys.stdin.readline()


def samples_of(client: PromClient, node: str) -> Callable[[], Iterable[Datapoint]]:
    """Return a function that reads all series of a node from a store and translates them to our metrics."""
    text = re.escape(node).replace("\\", "\\\\").replace('"', '\\"')
    query = " or ".join(f'{{{key}=~"{text}{"(:[0-9]+)?" if key == "instance" else ""}"}}' for key in NODE_LABELS)

    def read() -> Iterable[Datapoint]:
        told, at = client.ask(query), time.time_ns()
        named = ((Metric(labels.get("__name__", ""), Kind.GAUGE, "", ""), labels, value) for labels, value, _ in told)
        return points_of([Datapoint(metric, value, Dimensions(labels), at) for metric, labels, value in named])

    return read


def run(
    make: Callable[[Callable[[], None]], Poller | PromStore], given: SimpleNamespace, env: Mapping[str, str]
) -> int:
    """Show the fleet, and the nodes that Enter opens, until the user ends it; return the exit code."""
    if why := refused(env):
        raise ConfigError(f"top: {why}; `chipwatch top --once` prints the nodes once")
    terminal, colors = Terminal(), getattr(given, "colors", None)
    asked = make(terminal.wake)
    asked.start()
    if isinstance(asked, PromStore):
        threading.Thread(target=asked.recall, name="hour", daemon=True).start()
    fleet, source, code = FleetTop(given, colors, env), FleetSource(asked, asked.interval), 0
    try:
        while not code:
            code = show(source, terminal, fleet, env)
            if code or fleet.view.opened is None:
                break
            (name,), fleet.view.opened, fleet.view.orders = fleet.view.opened, None, []
            if isinstance(asked, PromStore):
                read = samples_of(PromClient(asked.url, asked.access), name)
            elif (address := asked.address(name)).scheme == "ssh":
                open_by_ssh(ssh_command(address, asked.access, "top", "-t"))
                continue
            else:
                read = page_of(address, asked.access)
            frames = NodeFrames(read, min(asked.interval, 5.0), terminal.wake)
            code = show(frames, terminal, Top(name, colors, env), env)
    finally:
        asked.close()
    return code
