"""`chipwatch status --health`: checks the running agent. It runs often, so it imports only the standard library."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from chipwatch.base.redaction import one_line
from chipwatch.base.system import state_folder
from chipwatch.commands.output import FAILED, OK, show
from chipwatch.config.file import PREFIX, read_file
from chipwatch.contract.datapoint import is_utf8
from chipwatch.contract.errors import ConfigError, os_text
from chipwatch.net.address import parse_address
from chipwatch.net.exchange import Exchange, NotHttp, TooLarge, host_of
from chipwatch.service.heartbeat import NAME
from chipwatch.service.probe import NoHeartbeat, judge

TIMEOUT: Final = 3.0
"""Seconds to wait for the server's answer."""
MAX_BYTES: Final = 1 << 17
"""Most bytes of the answer."""


def main(given: SimpleNamespace) -> int:
    """Print a line about the agent's health; return FAILED if it is not healthy. Raise ConfigError."""
    good, line = probe(given)
    show(one_line(line), may_be_closed=True)
    return OK if good else FAILED


def probe(given: SimpleNamespace, env: Mapping[str, str] = os.environ) -> tuple[bool, str]:
    """
    Return True if the agent is healthy, and a line about it; raise ConfigError.

    It reads the heartbeat file; if no running agent holds that, it asks the server of the agent's --health.
    """
    ready = hasattr(given, "ready")
    folder, health = _place(given, env)
    try:
        return judge(str(folder / NAME), ready=ready)
    except NoHeartbeat as problem:
        if not health:
            return False, (
                f"{problem}. An agent writes its heartbeat in the folder of its spool: give the same --spool. An agent"
                " that was started with --health PORT answers at that port: give the same --health"
            )
    try:
        address = parse_address(str(health))
    except ValueError as problem:
        raise ConfigError(f"--health: {problem}") from problem
    return _ask_server(*address, ready=ready)


def folder_of(given: SimpleNamespace) -> Path:
    """Return the agent's state folder; raise ConfigError."""
    return _place(given, os.environ)[0]


def _place(given: SimpleNamespace, env: Mapping[str, str]) -> tuple[Path, Any]:
    """Return the state folder, and the address of the health server, from options, environment or file."""
    for key in ("CONFIG", "SPOOL", "HEALTH"):
        if not is_utf8(text := env.get(f"{PREFIX}{key}", "")):
            raise ConfigError(f"{PREFIX}{key}: expected UTF-8, got {text!a}")
    path = getattr(given, "config", None) or env.get(f"{PREFIX}CONFIG")
    file = read_file(Path(path)) if path else {}  # of which only `spool` is checked, to be fast
    if not isinstance(named := file.get("spool", ""), str) or "\0" in named:
        raise ConfigError(f"{path}: spool: expected a path, got {named!r}")
    spool, health = (
        getattr(given, key, None) or env.get(f"{PREFIX}{key.upper()}") or file.get(key) for key in ("spool", "health")
    )
    return state_folder(spool and Path(spool), env), health


def _ask_server(host: str, port: int, *, ready: bool) -> tuple[bool, str]:
    """Ask a health server; return True for status 200, and a line about the answer."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # a wildcard address is asked on loopback
    path, word = ("/readyz", "ready") if ready else ("/healthz", "healthy")
    deadline = time.monotonic() + TIMEOUT
    try:
        with socket.create_connection((host, port), TIMEOUT) as sock:
            exchange = Exchange(sock, host_of(host, port), deadline, max_bytes=MAX_BYTES)
            head = exchange.ask("GET", path, {})
            text = exchange.body(head, 2048).decode("utf-8", "replace").strip()
    except (OSError, NotHttp, TooLarge) as problem:
        return False, f"no answer from {host}:{port}: {os_text(problem)}"
    return head.status == 200, f"{word if head.status == 200 else f'not {word}'}: {text}"
