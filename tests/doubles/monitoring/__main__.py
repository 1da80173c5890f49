"""Serve for a while, then say what came."""

import argparse
import sys
import time
from contextlib import suppress

from tests.doubles.monitoring import MonitoringDouble


def main() -> None:
    """Say where it is; then serve."""
    options = argparse.ArgumentParser(prog="python -m tests.doubles.monitoring", description=__doc__)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--seconds", type=float, default=600.0, help="how long to serve (600)")
    asked = options.parse_args()
    with MonitoringDouble(port=asked.port) as double:
        sys.stdout.write(f"{double.target}\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            time.sleep(asked.seconds)
        for key, points in double.series.items():
            sys.stdout.write(f"{key.type} {dict(key.labels)} of {key.resource}: {len(points)} points\n")
        sys.stdout.write(f"{dict(double.count)}\n")


if __name__ == "__main__":
    main()
