"""`chipwatch top HOST...`: a full screen of many machines; with --once a line for each, as text, JSON or CSV."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from chipwatch.base.table import TableColumn, csv_line, table
from chipwatch.commands import health
from chipwatch.commands.configured import configured
from chipwatch.commands.output import OK, report, say_if_slow, show
from chipwatch.contract.errors import CommandError
from chipwatch.net.status_socket import NoAgent, ask
from chipwatch.show.fleet import program
from chipwatch.show.fleet.hosts import addresses
from chipwatch.show.fleet.node import FleetNode, of_agent
from chipwatch.show.fleet.poll import Access, Poller, complete
from chipwatch.show.fleet.screen import COLUMNS, chosen, summary
from chipwatch.show.fleet.store import PromStore

TIMEOUT: Final = 15.0
"""Seconds after which a node that has not answered counts as silent."""
INTERVAL, STORE_INTERVAL = 2.0, 15.0
"""Seconds between two requests to a node, and to a store, which gets few new samples per minute."""


def source(given: SimpleNamespace, interval: float | None, wake: Any = lambda: None) -> Poller | PromStore:
    """Return the nodes or the store that the options name; raise ConfigError."""
    access = Access(**{name: getattr(given, name) for name in Access._fields if hasattr(given, name)})
    if hasattr(given, "prometheus"):
        return PromStore(given.prometheus, access, interval or STORE_INTERVAL, wake)
    return Poller(addresses(given.hosts, by_ssh=hasattr(given, "ssh")), access, interval or INTERVAL, wake)


def print_nodes(given: SimpleNamespace) -> int:
    """Print a line for each node; raise ConfigError, or CommandError if a node is silent or none matches."""
    every = getattr(given, "every", None)
    if given.hosts or hasattr(given, "prometheus"):
        asked = source(given, every)
        asked.start()
        try:
            timeout = getattr(given, "timeout", TIMEOUT)
            with say_if_slow(f"waiting for answers, for at most {timeout:g} s"):
                nodes = complete(asked, timeout)
            if asked.trouble and not nodes:
                raise CommandError(asked.trouble)
            if asked.trouble:
                report(asked.trouble, OK)
        finally:
            asked.close()
        every = None
    else:
        nodes = [_here(given)]
    show(_text(given, nodes, compact=every is not None))
    while every is not None:
        time.sleep(max(every, 0.1))
        show(_text(given, [_here(given)], compact=True))
    if silent := sum(node.word == "silent" for node in nodes):
        raise CommandError(f"{silent} of {len(nodes)} nodes {'is' if silent == 1 else 'are'} silent")
    if not any(chosen(node, given) for node in nodes):
        raise CommandError("no node has what was asked for")
    return OK


def _here(given: SimpleNamespace) -> FleetNode:
    """Return the line about this machine, from its agent."""
    folder, name = health.folder_of(given), platform.node()
    try:
        answers = {"status": ask(folder, "status"), "verdict": ask(folder, "verdict")}
        if "jobs" in answers["status"]["processors"]:
            answers["jobs"] = ask(folder, "jobs")
        return of_agent(name, answers, time.time_ns() / 1e9)
    except NoAgent as problem:
        return FleetNode(name, str(problem))


def _text(given: SimpleNamespace, nodes: Sequence[FleetNode], *, compact: bool = False) -> str:
    nodes = [node for node in nodes if chosen(node, given)]
    if hasattr(given, "json") or compact:
        text = msgspec.json.encode({"nodes": nodes})
        return (text if compact else msgspec.json.format(text, indent=1)).decode()
    return "\n".join((_csv if hasattr(given, "csv") else _lines)(nodes))


def _lines(nodes: Sequence[FleetNode]) -> Iterator[str]:
    yield from summary(nodes)
    yield from table(
        TableColumn([column.title, *(column.cell(node)[0] for node in nodes)], not column.left, ("-",))
        for column in COLUMNS
    )


def _csv(nodes: Iterable[FleetNode]) -> Iterator[str]:
    """Yield a header, then a line for each node; spaces separate several jobs, users or causes."""
    yield csv_line(FleetNode.__struct_fields__)
    for node in nodes:
        row = msgspec.structs.asdict(node)
        row["idle"] = [f"{cause}={number:g}" for cause, number in node.idle.items()]
        yield csv_line(" ".join(value) if isinstance(value, list) else value for value in row.values())


def screen(given: SimpleNamespace) -> int:
    """Show the nodes on a full screen; return the exit code."""
    config = configured(given)
    interval = config.interval if hasattr(given, "interval") else None
    return program.run(lambda wake: source(given, interval, wake), given, os.environ)
