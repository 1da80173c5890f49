"""Serve for a while, or until the one who started it is gone."""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.doubles.monitoring import MonitoringDouble


def main() -> None:
    """Say where it is; then serve."""
    options = argparse.ArgumentParser(prog="python -m tests.doubles.monitoring", description=__doc__)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--seconds", type=float, default=600.0, help="how long to serve (600)")
    options.add_argument("--min-gap", type=float, default=10.0, help="between points of a series, in seconds (10)")
    options.add_argument("--journal", type=Path, help="where to keep what is stored")
    options.add_argument("--child", action="store_true", help="end when standard input does")
    asked = options.parse_args()
    with MonitoringDouble(port=asked.port, min_gap=asked.min_gap, journal=asked.journal) as double:
        sys.stdout.write(f"{double.target}\n")
        sys.stdout.flush()
        gone = threading.Event()
        if asked.child:
            threading.Thread(target=_await_end, args=(gone,), daemon=True).start()
        with suppress(KeyboardInterrupt):
            gone.wait(asked.seconds)
        if not asked.child:
            for key, points in double.series.items():
                sys.stdout.write(f"{key.type} {dict(key.labels)} of {key.resource}: {len(points)} points\n")
            sys.stdout.write(f"{dict(double.count)}\n")


def _await_end(gone: threading.Event) -> None:
    sys.stdin.read()
    gone.set()


if __name__ == "__main__":
    main()
