"""
Prints a table of the memory that a run loads, by group of modules: `python -m tools.memory [OPTION OF chipwatch run ...]`.

Each row is the growth of resident memory while these modules are loaded, in the order of a real start, less what they
load themselves; the median of fresh processes. Memory grows by pages and by chunks, so that a small module may have
the growth of its neighbour.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from statistics import median

RUNS = 5
LEAST = 100
"""KB from which a module outside of this project has a separate row."""
WORDS = ("--format", "json", "--interval", "1", "--duration", "5")
LIBRARIES = frozenset(
    {"botocore", "certifi", "cryptography", "dateutil", "google", "grpc", "msgspec", "psutil", "six", "urllib3"}
)
CHILD = """
import _frozen_importlib as importing, atexit, os, sys
writer, statm = int(sys.argv.pop()), os.open("/proc/self/statm", os.O_RDONLY)
page = os.sysconf("SC_PAGE_SIZE") // 1024
def resident():
    return int(os.pread(statm, 99, 0).split()[1]) * page
rows, inner, load = [("interpreter", resident())], [0], importing._load_unlocked
def loading(spec):
    before = resident()
    inner.append(0)
    try:
        return load(spec)
    finally:
        grown = resident() - before
        rows.append((spec.name, grown - inner.pop()))
        inner[-1] += grown
def end():
    rows.append(("the run itself", resident() - rows[0][1] - inner[0]))
    os.write(writer, "\\n".join(f"{name} {grown}" for name, grown in rows).encode())
importing._load_unlocked = loading
atexit.register(end)
from chipwatch.__main__ import main
main()
"""


def grown(words: tuple[str, ...]) -> dict[str, int]:
    """Return the growth in KB of each module of one run."""
    reader, writer = os.pipe()
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, "-c", CHILD, *words, str(writer)],
        env=env,
        stdout=subprocess.DEVNULL,
        pass_fds=[writer],
        check=True,
    )
    os.close(writer)
    with os.fdopen(reader) as file:
        pairs = [line.rpartition(" ") for line in file.read().splitlines()]
    return {name: int(size) for name, _, size in pairs}


def group_of(name: str, size: int) -> str:
    """Return the row of a module: its room, its library, itself if it is large, or the rest of the standard library."""
    parts = name.split(".")
    if parts[0] in ("chipwatch", "chipwatch_sinks"):
        return f"`{'.'.join(parts[:2])}`" if len(parts) > 2 else "`chipwatch`, its own modules"
    if parts[0] in LIBRARIES:
        return f"library `{parts[0]}`"
    if name in ("interpreter", "the run itself"):
        return name
    return f"`{name}`" if size >= LEAST else "smaller modules of the standard library"


def table(words: tuple[str, ...] = WORDS) -> str:
    """Return the table in Markdown."""
    runs = [grown(words) for _ in range(RUNS + 1)][1:]  # the first one writes the compiled modules
    sizes = {name: round(median(run.get(name, 0) for run in runs)) for name in runs[0]}
    rows: Counter[str] = Counter()
    for name, size in sizes.items():
        rows[group_of(name, size)] += size
    lines = [f"| {name} | {size:,} |" for name, size in rows.most_common()]
    return "\n".join(["| loaded | KB |", "|---|---|", *lines, f"| all | {rows.total():,} |"])


if __name__ == "__main__":
    print(table(tuple(sys.argv[1:]) or WORDS))
