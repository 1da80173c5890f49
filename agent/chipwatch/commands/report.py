"""`chipwatch report`: writes an HTML page about recordings."""

from __future__ import annotations

from types import SimpleNamespace

from chipwatch.commands.output import show
from chipwatch.show.report.page.build import write


def main(given: SimpleNamespace) -> int:
    """Write the page; raise CommandError."""
    return show(write(given.files, given.output, given.price, given.grid))
