# ruff: noqa: INP001  # a step of the image's build, no module

"""
Imports all that the agent can import, and compiles the standard library's share of it.

Runs with the image's own Python as the last step but one of a build: a package that slim.py cut too far, or one that
was built for another Python, ends the build. The bases come without compiled files, which would cost each start, and
each health check, a third of a second.
"""

import importlib
import importlib.util
import pkgutil
import py_compile
import sys
from pathlib import Path

LATE = (
    "ctypes",
    "gzip",
    "sqlite3",
    "ssl",
    "http.client",
    "concurrent.futures",
    "encodings.idna",
    "html.entities",
    "zoneinfo",
)
"""Modules that are imported only when there is something to send."""


def bring(name: str) -> None:
    """Import a module; one of an extra that was not asked for is left out."""
    try:
        importlib.import_module(name)
    except ImportError as problem:
        root = (problem.name or "").partition(".")[0]
        if root in {"", "chipwatch", "chipwatch_sinks"} or importlib.util.find_spec(root):
            raise


def main() -> None:
    """Import, then compile."""
    for package in ("chipwatch", "chipwatch_sinks"):
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.", onerror=bring):
            bring(found.name)
    for name in LATE:
        bring(name)
    compiled = 0
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if (
            spec
            and spec.has_location
            and spec.cached
            and spec.origin.endswith(".py")
            and not Path(spec.cached).exists()
        ):
            py_compile.compile(
                spec.origin, spec.cached, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
            )
            compiled += 1
    sys.stdout.write(f"{compiled} modules of the standard library compiled\n")


if __name__ == "__main__":
    main()
