"""Cost of eight ports of the fabric, in a sysfs made of files: our own share, since a real card answers more slowly."""

import tempfile
from pathlib import Path

from tests.bench.figure import CannotMeasure, Effort, Figure, cpu_ms
from tests.doubles.sysfs import build, write

from chipwatch.collectors.rdma import RdmaCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given

PORTS = 8
FILES = 60
TICKS = 40
PAUSE = 0.025
"""Seconds between two readings."""
ASKED = 8.0


def eight_ports(effort: Effort) -> list[Figure]:
    """Read eight ports at two levels."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = ports(root)
        for level in (Level.ALL, Level.BASIC):
            collector = RdmaCollector(RdmaCollector.Config(every=0.0, proc=root, sys=root))
            values = measured(collector, level, effort)
            found = sum(1 for _ in collector.collect(1))
            how = f"CPU of a reading of {PORTS} ports with {files} files each, {found} datapoints, mean of {TICKS} readings"
            figures.append(Figure(f"RDMA, 8 ports, level {level.name.lower()}", "ms", ASKED, values, how))
    return figures


def measured(collector: RdmaCollector, level: Level, effort: Effort) -> list[float]:
    """Return the CPU (ms) of the readings of each round."""
    collector.open(Given(level=level))
    for at in (1, 2):
        list(collector.collect(at))
    return [cpu_ms(lambda at: list(collector.collect(at)), TICKS, PAUSE) for _ in range(effort.rounds)]


def ports(root: Path) -> int:
    """Write eight devices like the captured one, filled up with counters; return the files of a port."""
    captured = build(root / "captured", "rdma_mlx5") / "class/infiniband/mlx5_bond_0"
    counters = {path.relative_to(captured): path.read_text().strip() for path in captured.rglob("*") if path.is_file()}
    spare = FILES - sum("counters" in str(path) for path in counters)
    if spare < 0:
        raise CannotMeasure("the capture has more files than are asked for")
    folder = Path("ports/1/hw_counters")
    counters |= {folder / f"spare_{number}": str(1 << 40) for number in range(spare)}
    for port in range(PORTS):
        for path, value in counters.items():
            write(root / f"class/infiniband/mlx5_{port}" / path, value)
    return FILES
