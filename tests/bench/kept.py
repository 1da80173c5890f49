"""
The figures of the last release, in kept.json, and the comparison with them.

Times are kept as multiples of a reference loop that runs before and after each measurement, so that machines compare.
"""

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench.figure import Figure, Skipped

from chipwatch.base.version import __version__

FILE = Path(__file__).with_name("kept.json")
WORSE = 1.25
"""Times the kept figure from which on a figure fails."""
TIMES = ("ms", "ms/s", "% of a core")
NOISE = {"ms": 0.05, "ms/s": 0.2, "% of a core": 0.05, "x": 0.1, "MB": 1.0, "1/s": 5.0, "": 1.0}
"""By unit: a difference up to this is none. Other units are not compared, since they depend on the disk or on waiting."""


@dataclass(frozen=True)
class Compared(Figure):
    """A figure beside what the last release had."""

    kept: float | None = None
    """The kept figure in the unit of this figure, for this machine; None where there is none."""

    @property
    def verdict(self) -> str:
        if self.kept is not None and self.median > max(
            WORSE * self.kept, self.kept + max(self.noise, NOISE[self.unit])
        ):
            return "WORSE"
        return super().verdict


def reference() -> float:
    """Return the CPU time (ms) of a loop of what the agent does: read files, cut lines, add, encode."""
    best = float("inf")
    for _ in range(7):
        before = time.process_time_ns()
        for _ in range(10):
            rows = [line.split() for line in TEXT.split("\n")]
            sums = {name: sum(map(int, values)) for name, *values in rows}
            json.dumps(sums)
            file = os.open(__file__, os.O_RDONLY)
            os.read(file, 4096)
            os.close(file)
        best = min(best, (time.process_time_ns() - before) / 1e6)
    return best


TEXT = "\n".join(f"cpu{n} " + " ".join(str(n * m) for m in range(10)) for n in range(50))


def ratio(figure: Figure) -> float:
    """Return the figure as it is kept."""
    return figure.median / figure.reference if figure.unit in TIMES else figure.median


def is_kept(figure: Figure | Skipped) -> bool:
    """Return whether a figure is compared: it has a limit, and a unit that says something on another machine."""
    return isinstance(figure, Figure) and figure.asked is not None and not figure.strict and figure.unit in NOISE


def load(file: Path | None = None) -> dict[str, float]:
    """Return the kept figures by name."""
    file = file or FILE
    return json.loads(file.read_text())["figures"] if file.exists() else {}


def keep(figures: Iterable[Figure | Skipped], file: Path | None = None) -> None:
    """Write the figures; what was not measured stays as it was kept."""
    new = {figure.name: round(ratio(figure), 4) for figure in figures if is_kept(figure)}
    told = {"version": __version__, "figures": dict(sorted({**load(file), **new}.items()))}
    (file or FILE).write_text(json.dumps(told, indent=1) + "\n")


def compare(figures: Iterable[Figure | Skipped], kept: Mapping[str, float]) -> list[Figure | Skipped]:
    """Return the figures, each with what was kept of it."""
    compared: list[Figure | Skipped] = []
    for figure in figures:
        if not isinstance(figure, Figure) or not is_kept(figure) or figure.name not in kept:
            compared.append(figure)
            continue
        before = kept[figure.name] * (figure.reference if figure.unit in TIMES else 1)
        compared.append(Compared(**vars(figure), kept=before))
    return compared


def with_reference(figures: Iterable[Figure | Skipped], value: float) -> list[Figure | Skipped]:
    """Return the figures with the time of the reference loop."""
    return [replace(each, reference=value) if isinstance(each, Figure) else each for each in figures]
