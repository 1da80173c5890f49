"""Entry of the program that brings its own Python: the one file, and what the system's packages install."""

from __future__ import annotations

import os
import sys

LIBRARIES = "LD_LIBRARY_PATH"
PLUGINS = "plugins"
"""Folder beside the program, for `pip install --target`: collectors and sinks of others."""


def main() -> None:
    """Run `chipwatch`, or a program of ours that it starts as a child: `-I -c CODE`."""
    # The loader puts its own folder first, which a command after `--` or a vendor's tool must not see.
    if (before := os.environ.pop(f"{LIBRARIES}_ORIG", "")) or LIBRARIES in os.environ:
        os.environ.pop(LIBRARIES, None)
        if before:
            os.environ[LIBRARIES] = before
    if sys.argv[1:3] == ["-I", "-c"]:
        code = sys.argv[3]
        sys.argv[:4] = ["-c"]
        exec(code, {"__name__": "__main__"})  # what `python -c` does, with words of chipwatch's own
        return
    plugins = os.path.join(os.path.dirname(sys.executable), PLUGINS)  # noqa: PTH118, PTH120  # pathlib takes longer than all before Ctrl-C is answered
    if os.path.isdir(plugins):  # noqa: PTH112
        sys.path.append(plugins)
    from chipwatch.__main__ import main as run  # noqa: PLC0415  # the environment comes first

    run()


if __name__ == "__main__":
    main()
