"""`chipwatch top HOST...`: a full screen of many machines; with --once a line for each, as text, JSON or CSV."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from chipwatch.commands import health
from chipwatch.commands.configured import configured
from chipwatch.commands.output import OK, report, say_if_slow, show
from chipwatch.contract.errors import CommandError
from chipwatch.jobs.verdict.callers import NOT_FIT
from chipwatch.net.status_socket import NoAgent, ask
from chipwatch.show.fleet import program
from chipwatch.show.fleet.groups import grouped, label_of
from chipwatch.show.fleet.hosts import addresses
from chipwatch.show.fleet.node import DOUBTED, FleetNode, of_agent
from chipwatch.show.fleet.poll import Access, Poller, complete
from chipwatch.show.fleet.screen import FleetView, as_csv, as_table, chosen
from chipwatch.show.fleet.store import PromStore

TIMEOUT: Final = 15.0
"""Seconds after which a node that has not answered counts as silent."""
INTERVAL, STORE_INTERVAL, PAGES = 2.0, 15.0, 60
"""
Least seconds between two requests to a node, and to a store, which gets few new samples per minute; most pages a second
that are asked without --interval, which take some 3 % of a core.
"""
UNFIT: Final = 3
"""Exit code if a node is not fit, or not believed."""


def source(given: SimpleNamespace, interval: float | None, wake: Any = lambda: None) -> Poller | PromStore:
    """Return the nodes or the store that the options name; raise ConfigError."""
    access = Access(**{name: getattr(given, name) for name in Access._fields if hasattr(given, name)})
    by = label_of(getattr(given, "by", ""))
    if hasattr(given, "prometheus"):
        return PromStore(given.prometheus, access, interval or STORE_INTERVAL, wake, by)
    nodes = addresses(given.hosts, by_ssh=hasattr(given, "ssh"))
    return Poller(nodes, access, interval or max(INTERVAL, -(-len(nodes) // PAGES)), wake, by)


def print_nodes(given: SimpleNamespace) -> int:
    """
    Print a line for each node or group; return UNFIT if a node is not fit.

    Raise ConfigError, or CommandError if a node is silent or none matches.
    """
    every, view = getattr(given, "every", None), FleetView(by=getattr(given, "by", ""))
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
        every, view.labels = None, asked.labels
    else:
        nodes = [_here(given)]
    show(_text(given, nodes, view, compact=every is not None))
    while every is not None:
        time.sleep(max(every, 0.1))
        show(_text(given, [_here(given)], view, compact=True))
    if silent := sum(node.word == "silent" for node in nodes):
        raise CommandError(_told(silent, len(nodes), "silent"))
    if not (shown := [node for node in nodes if chosen(node, given)]):
        raise CommandError("no node has what was asked for")
    unfit = sum(node.word in (DOUBTED, NOT_FIT) for node in shown)
    return report(_told(unfit, len(shown), NOT_FIT), UNFIT) if unfit else OK


def _told(count: int, every: int, what: str) -> str:
    return f"{count} of {every} nodes {'is' if count == 1 else 'are'} {what}"


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


def _text(given: SimpleNamespace, nodes: Sequence[FleetNode], view: FleetView, *, compact: bool = False) -> str:
    nodes = [node for node in nodes if chosen(node, given)]
    if hasattr(given, "json") or compact:
        lists: dict[str, Any] = {"nodes": nodes} | ({"groups": []} if view.by else {})
        for word, (line, each) in grouped(nodes, view.by, view.labels).items():
            lists["groups"].append({"group": word, **msgspec.to_builtins(line), "nodes": [node.node for node in each]})
            del lists["groups"][-1]["node"]
        text = msgspec.json.encode(lists)
        return (text if compact else msgspec.json.format(text, indent=1)).decode()
    return "\n".join(as_csv(nodes) if hasattr(given, "csv") else as_table(nodes, view))


def screen(given: SimpleNamespace) -> int:
    """Show the nodes on a full screen; return the exit code."""
    config = configured(given)
    interval = config.interval if hasattr(given, "interval") else None
    return program.run(lambda wake: source(given, interval, wake), given, os.environ)
