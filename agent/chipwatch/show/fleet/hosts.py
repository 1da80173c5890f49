"""Finds the nodes that a user names: by name, range or file, or by the lists of Slurm and Kubernetes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.base.redaction import one_line
from chipwatch.base.text import nearest_file
from chipwatch.contract.errors import ConfigError, os_text
from chipwatch.host.supervised_process import OneShot, QueryFailed

PORT: Final = 9465
"""Port of a node without one in its name: the default of the sink `prometheus`."""
MOST: Final = 10_000
"""Most nodes that a user may name."""
TOO_MANY: Final = f"HOST: more than {MOST:,} nodes; name fewer"
MAX_FILE: Final = 4 << 20
LONGEST: Final = 80
"""Most characters of a name in a message."""
TIMEOUT: Final = 20.0
"""Seconds that a command of Slurm or Kubernetes may take."""
WORD: Final = re.compile(
    r"(?:(?P<scheme>https?|ssh)://)?"
    r"(?P<host>(?:[A-Za-z0-9_][\w.-]*@)?(?:[A-Za-z0-9_][\w-]{0,62}(?:\.[\w-]{1,63})*\.?|\[[0-9A-Fa-f:.]+\]))"
    r"(?::(?P<port>\d{1,5}))?(?P<path>/[!-~]*)?",
    re.ASCII,
)
RANGE: Final = re.compile(r"\[([\d,-]+)\]", re.ASCII)
PART: Final = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
"""One number in brackets, or the first and the last number of a range."""
BETWEEN_COMMAS: Final = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")
"""One name of a list. A comma in brackets belongs to the name."""
LIST: Final = re.compile(r"[A-Za-z0-9_][\w.,=!/ ()-]*", re.ASCII)
"""A partition, a job or a selector; it cannot begin like an option of a command."""
PODS: Final = '{range .items[*]}{.status.podIP}{" "}{.spec.nodeName}{"\\n"}{end}'
Run = Callable[[Sequence[str]], str]


class NodeAddress(NamedTuple):
    """A node: its name, and the address at which it is asked."""

    name: str
    scheme: str
    """http, https or ssh."""
    host: str
    port: int = 0
    """0 for ssh's default port."""
    path: str = "/metrics"
    partition: str = ""
    """The partition of Slurm that names it; "" without one."""


def addresses(words: Iterable[str], *, by_ssh: bool, run: Run | None = None) -> list[NodeAddress]:
    """Return the nodes that `words` name, each once. Without a scheme, ssh or http is used. Raise ConfigError."""
    nodes: dict[str, NodeAddress] = {}
    each = (node for word in words for node in _nodes(word, by_ssh=by_ssh, run=run or output_of))
    for count, node in enumerate(each):
        if count >= MOST:
            raise ConfigError(TOO_MANY)
        if nodes.setdefault(node.name, node)[:-1] != node[:-1]:
            name = f"{node.name} ({node.scheme}://{node.host}{node.path * (node.scheme != 'ssh')})"
            nodes[name] = node._replace(name=name)
    return [*nodes.values()]


def _nodes(word: str, *, by_ssh: bool, run: Run) -> Iterator[NodeAddress]:
    kind, _, rest = word.partition(":")
    if kind in ("slurm", "k8s"):
        if not LIST.fullmatch(rest):
            raise ConfigError(f"{word}: expected {kind}:{'PARTITION or slurm:JOB' if kind == 'slurm' else 'SELECTOR'}")
        yield from _slurm(rest, by_ssh=by_ssh, run=run) if kind == "slurm" else _pods(rest, run)
    elif word.startswith("@"):
        try:
            with Path(word[1:]).open(encoding="utf-8-sig") as file:
                text = file.read(MAX_FILE + 1)
        except (OSError, ValueError) as problem:
            raise ConfigError(f"{word}: cannot be read: {os_text(problem)}{nearest_file(Path(word[1:]))}") from problem
        lines = [*filter(None, (line.partition("#")[0].strip() for line in text.splitlines()))]
        if len(text) > MAX_FILE or not lines:
            raise ConfigError(f"{word}: {'longer than 4 MiB' if lines else 'names no node'}")
        for line in lines:
            if line.startswith("@"):
                raise ConfigError(f"{word}: a list cannot name another list: {line[:LONGEST]!r}")
            yield from _nodes(line, by_ssh=by_ssh, run=run)
    else:
        for part in map(str.strip, BETWEEN_COMMAS.findall(word) or [word]):  # rack[1-2]n[01-16,20], as Slurm writes it
            texts = (_numbers(part, text) if at % 2 else [text] for at, text in enumerate(RANGE.split(part)))
            for name in map("".join, product(*texts)):
                yield _address(name, by_ssh=by_ssh)


def _address(word: str, *, by_ssh: bool) -> NodeAddress:
    match = WORD.fullmatch(word)
    if not match or int(match["port"] or 1) not in range(1, 65_536):
        raise _fault(word, "expected a name, a range such as gpu[001-064], @FILE, ssh://, http:// ...")
    scheme, host = match["scheme"] or ("ssh" if by_ssh else "http"), match["host"]
    if scheme == "ssh" and match["path"]:
        raise _fault(word, "ssh:// takes no path")
    if "@" in host and scheme != "ssh":
        raise ConfigError("HOST: a page takes no user name; use --password-file")
    port = int(match["port"] or (0 if scheme == "ssh" else PORT))
    path = match["path"] or "/metrics"
    name = host if port in (0, PORT) else f"{host}:{port}"
    return NodeAddress(name, scheme, host.strip("[]"), port, "/metrics" if path == "/" else path)


def _numbers(word: str, text: str) -> list[str]:
    """Expand the numbers `text` between brackets of `word`; a range keeps the number of digits of its start."""
    numbers: list[str] = []
    for part in text.split(","):
        ends = PART.fullmatch(part)
        if not ends or int(ends[1]) > int(ends[2] or ends[1]):
            raise _fault(word, f"{part[:LONGEST] or 'an empty part'} is not a range; write 001-064")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last - first + len(numbers) >= MOST:
            raise ConfigError(TOO_MANY)
        numbers += [f"{number:0{len(ends[1])}}" for number in range(first, last + 1)]
    return numbers


def _fault(word: str, why: str) -> ConfigError:
    return ConfigError(f"HOST {word[:LONGEST]!r}: {why}")


def _slurm(name: str, *, by_ssh: bool, run: Run) -> Iterator[NodeAddress]:
    """Yield the nodes of a job if `name` begins with a digit, otherwise of a partition."""
    command: tuple[str, ...] = ("squeue", "--noheader", "--format=%N", f"--jobs={name}")
    if not name[0].isdigit():
        command = ("sinfo", "--noheader", "--Node", "--format=%N", f"--partition={name}")
    if not (words := run(command).split()):
        raise ConfigError(f"slurm:{name}: {command[0]} names no node")
    partition = "" if name[0].isdigit() else name
    nodes = (node for word in words for node in _nodes(word, by_ssh=by_ssh, run=run))
    yield from (node._replace(partition=partition) for node in nodes)


def _pods(selector: str, run: Run) -> Iterator[NodeAddress]:
    """Yield the running pods that a selector matches, each under the name of its node."""
    words = ("--all-namespaces", "--field-selector=status.phase=Running", f"--selector={selector}")
    lines = run(("kubectl", "get", "pods", *words, f"--output=jsonpath={PODS}")).splitlines()
    if not (pods := [line.split() for line in lines if len(line.split()) == 2]):
        raise ConfigError(f"k8s:{selector}: kubectl names no running pod")
    for address, node in pods:
        yield _address(f"[{address}]" if ":" in address else address, by_ssh=False)._replace(name=one_line(node))


def output_of(command: Sequence[str]) -> str:
    """Run a command and return its output; raise ConfigError if it fails."""
    shot, deadline = OneShot(TIMEOUT, TIMEOUT, exact=True), time.monotonic() + TIMEOUT + 1
    try:
        while (ended := shot.poll(command, time.monotonic())) is None and time.monotonic() < deadline:
            time.sleep(0.02)
    except QueryFailed as problem:
        raise ConfigError(f"HOST: {problem}") from problem
    finally:
        shot.close()
    if ended is None or ended.how:
        raise ConfigError(f"HOST: {command[0]} gave no whole list{ended.how if ended else ''}")
    return ended.data.decode(errors="replace")
