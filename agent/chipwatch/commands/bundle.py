"""`chipwatch check --bundle`: packs logs and state into one file for a ticket, without secrets and names."""

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
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from chipwatch.base.redaction import SHORTEST, redacted, without_secrets
from chipwatch.base.system import state_folder
from chipwatch.base.version import build
from chipwatch.config.file import PREFIX
from chipwatch.config.options import TABLES, Config
from chipwatch.contract.errors import CommandError, ConfigError, os_text
from chipwatch.history.ring import INCIDENTS, lines_of, recordings_in
from chipwatch.net.status_socket import NoAgent, ask
from chipwatch.service.log_file import LOG_NAME
from chipwatch.show.fleet.hosts import output_of

MOST_LOG: Final = 64 << 10
"""Most bytes of a log file; its end is packed."""
MOST_INCIDENT: Final = 32 << 20
"""Most bytes of the newest incident; its beginning is packed."""
SECRET_KEYS: Final = re.compile("token|secret|passw|credential|key|auth|header|cookie|cert", re.IGNORECASE)
"""Matches the keys of options whose values are secret."""
TABLE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""Options whose values are packed, and patterns that are replaced in every text."""
ESCAPES: Final = re.compile(r"(?:%|\\u00|\\x)([2-7][0-9a-f])|\\(?=/)", re.IGNORECASE)
"""Matches escapes of printable characters in URLs, JSON and Python."""
PATTERNS: Final = tuple(
    (re.compile(pattern.replace("SENSITIVE", TABLE["sensitive"]), re.IGNORECASE), instead)
    for pattern, instead in TABLE["patterns"]
)


def check_new(file: Path) -> None:
    """Raise ConfigError if `file` cannot be created; called early, before the check takes its time."""
    if file.exists() or file.is_symlink():
        raise ConfigError(f"--bundle {file}: it exists; name a new file")
    if not file.parent.is_dir():
        raise ConfigError(f"--bundle {file}: {file.parent} is not a folder; name a file in one")


def pack(file: Path, config: Config, lines: Iterable[str], values: Mapping[str, str]) -> None:
    """
    Write a new .tar.gz of mode 0600: versions, configuration, the agent's state, `lines` of a check, logs, chips.

    `values`: dimensions of this machine; each value is replaced by its key. Raise CommandError.
    """
    folder = state_folder(config.spool, os.environ)
    parts: dict[str, Any] = {
        "versions.txt": _versions(),
        "config.json": _packed(dataclasses.asdict(config)),
        "check.txt": "\n".join(lines),
        "status.json": _asked(folder, "status"),
        "chips.txt": "\n".join(_of_makers()),
        "log.txt": "\n".join(_asked(folder, "log").get("lines", ["no running agent was asked"])),
    }
    for log in (folder / LOG_NAME, folder / f"{LOG_NAME}.1"):
        with suppress(OSError), log.open("rb") as source:
            if source.seek(max(0, source.seek(0, os.SEEK_END) - MOST_LOG)):
                source.readline(MOST_LOG)  # skips half a line, in which no pattern would find a secret
            parts[f"log-{log.name}"] = source.read(MOST_LOG).decode(errors="replace")
    names = names_of_people_and_hosts(config) | {value: f"<{word}>" for word, value in values.items()}
    for newest in recordings_in(folder / INCIDENTS)[:1]:
        parts[f"incident-{newest.stem}.jsonl"] = [*_recorded(newest)]
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for name, part in parts.items():
                # Scrubbed before JSON escapes characters.
                text = _text(redacted(part, lambda text: scrub(text, names)), by_line=name.endswith(".jsonl"))
                body = text.encode(errors="backslashreplace") + b"\n"
                entry = tarfile.TarInfo(f"chipwatch/{name}")
                entry.size = len(body)
                archive.addfile(entry, io.BytesIO(body))
    except OSError as problem:
        raise CommandError(f"--bundle: {file}: {os_text(problem)}") from problem


def _of_makers() -> Iterator[str]:
    """Yield what the makers' programs print about the chips of this machine, or why they print nothing."""
    for command in TABLE["programs"]:
        try:
            text = output_of(command)
        except ConfigError as problem:
            text = f"{problem}"
        yield f"$ {' '.join(command)}\n{text}"


def _text(clean: Any, *, by_line: bool) -> str:
    if by_line:
        return "\n".join(map(json.dumps, clean))
    return clean if isinstance(clean, str) else json.dumps(clean, indent=1, default=str)


def _recorded(path: Path) -> Iterator[Any]:
    """Yield the lines of an incident, at most MOST_INCIDENT bytes of them."""
    left = MOST_INCIDENT
    for line in lines_of(path):
        left -= len(line)
        if left < 0:
            return
        with suppress(ValueError, RecursionError):
            yield json.loads(line)


def scrub(text: str, names: Mapping[str, str]) -> str:
    """Replace the keys of `names` in `text` by their values, and matches of PATTERNS."""
    text = without_secrets(ESCAPES.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", text))
    for name in sorted(names, key=len, reverse=True):
        whole, instead = rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", names[name].replace("\\", r"\\")
        text = re.sub(whole, instead, text, flags=re.IGNORECASE)
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return text


def names_of_people_and_hosts(config: Config) -> dict[str, str]:
    """Return name or secret -> replacement, for this host, its users, its projects and its secrets."""
    hosts = {platform.node(), socket.gethostname()}
    with suppress(OSError):
        hosts |= {*Path("/etc/hostname").read_text().split()}
    users = {os.environ.get(variable, "") for variable in TABLE["user_variables"]}
    with suppress(OSError, KeyError, ImportError):
        users.add(getpass.getuser())
    projects = {config.project or "", *(os.environ.get(variable, "") for variable in TABLE["project_variables"])}
    secrets = {*_secrets(dataclasses.asdict(config))}
    secrets |= {text for name, text in os.environ.items() if re.search(TABLE["sensitive"], name, re.IGNORECASE)}
    names = (
        dict.fromkeys(users - {"root", "chipwatch"}, "<user>")
        | dict.fromkeys(hosts | {host.partition(".")[0] for host in hosts}, "<host>")
        | dict.fromkeys(projects, "<project>")
        | dict.fromkeys((text for text in secrets if len(text) >= SHORTEST), "<secret>")
    )
    return {name: instead for name, instead in names.items() if len(name) > 1 and name != "localhost"}


def _versions() -> str:
    """Return versions of the agent and its libraries, and names of set variables. Other packages may be private."""
    wanted: set[str] = set()
    with suppress(metadata.PackageNotFoundError):
        wanted = {re.split(r"[^\w.-]", line)[0] for line in metadata.requires("chipwatch") or ()}
    versions = []
    for name in sorted(wanted):
        with suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    variables = sorted(name for name in os.environ if name.startswith(PREFIX))
    lines = [f"chipwatch {build()}", f"python {platform.python_version()}", platform.platform(), "", *versions]
    return "\n".join([*lines, "", "variables that are set:", *variables])


def _packed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the values of numbers and of `packed_texts`; other values become <set>."""
    return {
        key: {name: _packed(table) for name, table in value.items()} if key in TABLES else _allowed(key, value)
        for key, value in config.items()
    }


def _allowed(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return f"<{len(value)} set>"
    is_number = isinstance(value, (bool, int, float)) and not SECRET_KEYS.search(key)
    return value if value in (None, ()) or is_number or key in TABLE["packed_texts"] else "<set>"


def _secrets(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts of options whose keys say that they are secret."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _secrets(inner, is_secret=is_secret or bool(SECRET_KEYS.search(str(key))))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _secrets(inner, is_secret=is_secret)
    elif is_secret and isinstance(value, str):
        yield value


def _asked(folder: Path, question: str) -> dict[str, Any]:
    try:
        return ask(folder, question)
    except NoAgent as why:
        return {"no_answer": str(why)}
