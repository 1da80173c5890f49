"""`agent check --bundle`: one file for a ticket, without secrets, hosts, addresses and users."""

from __future__ import annotations

import dataclasses
import getpass
import io
import json
import os
import platform
import re
import socket
import tarfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from agent.config.layers import PREFIX
from agent.config.options import Config
from agent.errors import CommandError
from agent.logs.text import without_secrets
from agent.status.heartbeat import state_folder
from agent.status.socket import NoAnswer, ask
from agent.version import __version__

MOST_LOG: Final = 64 << 10
"""Bytes of the end of each log file that are packed."""
SECRET_KEYS: Final = re.compile("token|secret|passw|credential|key|auth|header|cookie|cert", re.IGNORECASE)
"""Keys of options whose values are left out."""
USER_VARIABLES: Final = ("USER", "LOGNAME", "SUDO_USER", "USERNAME")
PATTERNS: Final = (
    (re.compile(r"(?<=://)[^/\s\"'@]*@"), "<secret>@"),
    (re.compile(r"(https?://(?:<secret>@)?)(\[[^\]\s]*\]|[^/:?#\s\"',;]+)"), r"\1<host>"),
    (re.compile(r"\?[^\s\"']*(?<=\S)"), "?<query>"),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE), "<mac>"),
    (
        re.compile(r"(?<![\w:.])(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|[0-9a-f:]*::[0-9a-f:]*)(?![\w:])", re.IGNORECASE),
        "<address>",
    ),
    (re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"), "<address>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<user>"),
    (re.compile(r"(/(?:home|Users)/)[^/\s\"',;:]+"), r"\1<user>"),
    (re.compile(r"\b\d{12}\b"), "<account>"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), "<secret>"),
    (re.compile(r"\b(?:i|ami|vpc|subnet|eni|sg|lt|vol)-[0-9a-f]{8,17}\b"), "<id>"),
    (re.compile(r"(?<![\w+=-])(?=[A-Za-z_+=-]*\d)[\w+=-]{32,}(?![\w+=-])"), "<long>"),
)
"""What a text is searched for, in this order, and what takes its place."""


class NotPacked(CommandError):
    """The file cannot be written; the message says why."""


def pack(file: Path, config: Config, lines: Iterable[str], values: Mapping[str, str]) -> None:
    """
    Write a new .tar.gz of mode 0600: versions, configuration, state of the running agent, `lines` of a check, logs.

    `values` of the machine's dimensions are replaced by their names. Raise NotPacked.
    """
    folder = state_folder(config.spool, os.environ)
    parts = {
        "versions.txt": _versions(),
        "config.json": json.dumps(_without_secrets(dataclasses.asdict(config)), indent=1, default=str),
        "check.txt": "\n".join(lines),
        "status.json": json.dumps(_asked(folder, "status"), indent=1),
        "log.txt": "\n".join(_asked(folder, "log").get("lines", ["no running agent was asked"])),
    }
    for log in sorted(folder.glob("*.log")) if folder.is_dir() else ():
        with suppress(OSError), log.open("rb") as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - MOST_LOG))
            parts[f"log-{log.name}"] = source.read(MOST_LOG).decode(errors="replace")
    names = {**_names(), **{value: f"<{word}>" for word, value in values.items()}}
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for name, text in parts.items():
                body = scrub(text, names).encode() + b"\n"
                entry = tarfile.TarInfo(f"chipwatch/{name}")
                entry.size = len(body)
                archive.addfile(entry, io.BytesIO(body))
    except OSError as problem:
        raise NotPacked(f"--bundle: {file}: {problem.strerror or problem}") from problem


def scrub(text: str, names: Mapping[str, str]) -> str:
    """Return `text` with the keys of `names` replaced by their values, and without what PATTERNS finds."""
    text = without_secrets(text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", names[name], text, flags=re.IGNORECASE)
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return text


def _names() -> dict[str, str]:
    """Return the names of this host and its users, and what stands for each."""
    hosts = {platform.node(), socket.gethostname()}
    with suppress(OSError):
        hosts |= {*Path("/etc/hostname").read_text().split()}
    users = {os.environ.get(variable, "") for variable in USER_VARIABLES}
    with suppress(OSError, KeyError, ImportError):
        users.add(getpass.getuser())
    found = dict.fromkeys(users - {"root"}, "<user>") | dict.fromkeys(
        hosts | {h.partition(".")[0] for h in hosts}, "<host>"
    )
    return {name: instead for name, instead in found.items() if len(name) > 1 and name != "localhost"}


def _versions() -> str:
    found = sorted({f"{of.metadata['Name']} {of.version}" for of in metadata.distributions()})
    variables = sorted(name for name in os.environ if name.startswith(PREFIX))
    lines = [f"chipwatch {__version__}", f"python {platform.python_version()}", platform.platform(), "", *found]
    return "\n".join([*lines, "", "variables that are set:", *variables])


def _without_secrets(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _without_secrets(inner, str(name)) for name, inner in value.items()}
    return "<secret>" if value and SECRET_KEYS.search(key) else value


def _asked(folder: Path, question: str) -> dict[str, Any]:
    try:
        return ask(folder, question)
    except NoAnswer as why:
        return {"no_answer": str(why)}
