"""The part of the screen about the host: a strip or rows of resources, and logical CPUs."""

from __future__ import annotations

from itertools import chain
from typing import Final

from chipwatch.show.top.draw import Line, bar, figure, flow, level, padded, rule, scaled, width_of
from chipwatch.show.top.machine import MachineState

WIDE: Final = 100
"""Width of the screen from which bars are wider."""
BUSY: Final = 90
"""Share in use (%) from which a resource of the host is marked."""


def strip(machine: MachineState, width: int) -> list[Line]:
    """Return the resources of the host in few lines, for a machine with accelerators."""
    cells = 10 if width >= WIDE else 6
    cpu, used, total = (machine.of_host(name) for name in ("cpu.utilization", "memory.used", "memory.total"))
    share = machine.of_host("memory.utilization")
    items: list[Line] = [[("CPU ", "label"), *bar(cpu, cells), (f" {figure(cpu)} %", level(cpu, BUSY, 101))]]
    if (load := machine.of_host("cpu.load 1m")) is not None:
        items[0] += [("  load ", "label"), (f"{load:.1f}" + (f"/{n}" if (n := len(machine.cores())) else ""), "")]
    memory = f" {scaled(used, 1024)}/{scaled(total, 1024)}" if used is not None and total else f" {figure(share)} %"
    items.append([("MEM ", "label"), *bar(share, cells), (memory, level(share, BUSY, 97))])
    if swap := machine.of_host("swap.used"):
        items.append([("SWAP ", "label"), (scaled(swap, 1024), "warn")])
    pressure = {what: machine.of_host(f"pressure.{what} some") for what in ("cpu", "memory", "io")}
    waits = [(f"{what} {share:.0f} ", level(share, 10, 40)) for what, share in pressure.items() if share is not None]
    if waits:
        items.append([("WAIT ", "label"), *waits, ("%", "")])
    items.append([("DISK ", "label"), *_rates(machine, ("r", "disk.read"), ("w", "disk.written"))])
    if file_systems := _file_systems(machine):
        share, path = max((share, path) for path, share in file_systems.items())
        items[-1].append((f"  {path[-20:]} {share:.0f} % full", level(share, BUSY, 97)))
    items.append([("NET ", "label"), *_rates(machine, ("in", "network.received"), ("out", "network.sent"))])
    return flow(items, width)


def _rates(machine: MachineState, *names: tuple[str, str]) -> Line:
    texts = [f"{word} {figure(machine.of_host(name), scaled)}" for word, name in names]
    return [(" ".join(texts), "")]


def _file_systems(machine: MachineState) -> dict[str, float]:
    """Return the path of each file system -> its share in use (%)."""
    start = "disk.utilization "
    return {name.removeprefix(start): machine.of_host(name) or 0 for name in machine.host.names(start)}


def rows(machine: MachineState, width: int) -> list[Line]:
    """Return a row for each resource of the host, for a machine without accelerators."""
    lines: list[Line] = [rule(width)]
    cells, paths = max(10, width - 44), sorted(_file_systems(machine))[:8]
    for label, name, total_name in (
        ("CPU", "cpu.utilization", ""), ("memory", "memory.utilization", "memory.total"),
        ("swap", "swap.utilization", ""), ("CPU pressure", "pressure.cpu some", ""),
        ("memory pressure", "pressure.memory some", ""), ("I/O pressure", "pressure.io some", ""),
        *((f"disk {path}", f"disk.utilization {path}", f"disk.used {path}") for path in paths),
    ):  # fmt: skip
        if (value := machine.of_host(name)) is not None:
            total = machine.of_host(total_name) if total_name else None
            text = f" {value:5.1f} %" + (f"  {scaled(total, 1024)}" if total else "")
            lines.append([(f"{padded(label, 20)} ", "label"), *bar(value, cells), (text, level(value, BUSY, 97))])
    means = ((window, machine.of_host(f"cpu.load {window}")) for window in ("1m", "5m", "15m"))
    loads = [f"{window} {load:.2f}" for window, load in means if load is not None]
    disk = _rates(machine, ("read", "disk.read"), ("written", "disk.written"))
    network = _rates(machine, ("received", "network.received"), ("sent", "network.sent"))
    texts = (("load", [("  ".join(loads) or "-", "")]), ("disk, B/s", disk), ("network, B/s", network))
    lines += [[(f"{label:20} ", "label"), *text] for label, text in texts]
    return [*lines, [("no accelerator was found on this machine", "dim")]]


def cores(machine: MachineState, width: int, most: int) -> list[Line]:
    """Return the utilization of logical CPUs in at most `most` lines."""
    values = machine.cores()
    each = next((cells for cells in (14, 9, 5) if -(-len(values) // max(1, width // cells)) <= most), 5)
    items: list[Line] = []
    for number, value in enumerate(values):
        cell: Line = [(f"{number:3} ", "dim"), (f"{value:3.0f} ", level(value, BUSY, 101))] if each > 5 else []
        items.append([*cell, *bar(value, each - width_of(cell) - 1), (" ", "")])
    per_line = max(1, width // each)
    return [[*chain(*items[at : at + per_line])] for at in range(0, len(items), per_line)][:most]
