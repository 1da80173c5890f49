"""A measurement in a separate process: `python -m tests.bench.child MODULE [WORD ...]` calls the module's `child`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]


def command(module: str, *words: str) -> list[str]:
    """Return the command line of a measurement; to be run in ROOT."""
    return [sys.executable, "-m", "tests.bench.child", module, *words]


def environment() -> dict[str, str]:
    """Return the environment without what would change the costs (uncached bytecode, a `make` around us)."""
    ours = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARGS"}
    return {
        key: value
        for key, value in os.environ.items()
        if key not in ours and (not key.startswith("PYTHON") or key == "PYTHONPATH")
    }


def plain_environment() -> dict[str, str]:
    """Return the environment of an agent as a plain installation has it, without a package of developers."""
    return environment() | {"PYTHONPATH": str(Path(__file__).with_name("plain"))}


def ask(module: str, *words: str, timeout: float = 120) -> str:
    """Run a measurement; return what it printed."""
    done = subprocess.run(
        command(module, *words), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, timeout=timeout, check=True
    )
    return done.stdout.decode()


@contextmanager
def receiving(kind: str, *pair: Path) -> Iterator[str]:
    """Run the receiver of `make peers`, which takes everything, with TLS where a certificate and a key are given; give its address."""
    words = [sys.executable, "-m", "tests.peers.receiver", "=".join(("sink", kind, *map(str, pair)))]
    server = subprocess.Popen(
        words, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout
        yield json.loads(server.stdout.readline())["sink"]
    finally:
        server.communicate()


if __name__ == "__main__":
    import_module(f"tests.bench.{sys.argv[1]}").child(*sys.argv[2:])
