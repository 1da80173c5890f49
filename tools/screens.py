"""Draws terminals with what commands print and show, as SVG for docs/media/; each is made from the program itself."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from chipwatch.commands.answers import why_text
from chipwatch.commands.verdict import as_text
from chipwatch.history.columns import load_run
from chipwatch.jobs.verdict.expect import parse
from chipwatch.jobs.verdict.judge import judge
from chipwatch.show.fleet import screen as fleet_screen
from chipwatch.show.fleet.node import FleetNode
from chipwatch.show.top.machine import MachineState
from chipwatch.show.top.program import PALETTES, render
from chipwatch.show.top.replay import frames, jobs
from chipwatch.show.top.screen import Notes, compose
from chipwatch.show.top.view import View

FULL: Final = (120, 36)
WIDE: Final = (120, 18)
PLACE: Final = 0.6
"""Share of the recording after which its screen is drawn."""


def drawn(lines: Sequence[Text | str], name: str, title: str) -> str:
    """Return a terminal with the lines, as wide as the longest, as SVG without the address of a font."""
    width = max(map(len, lines))
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text(line) if isinstance(line, str) else line, no_wrap=True, crop=True)
    svg = console.export_svg(title=title, unique_id=name)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def top(machine: MachineState, notes: Notes) -> list[Text]:
    """Return the screen of `chipwatch top`."""
    return _shown(compose(machine, View(), FULL, notes))


def _shown(lines: Iterable[Any]) -> list[Text]:
    return [Text.from_ansi(render(line, PALETTES["dark"], many=True)) for line in lines]


def typed(command: str, output: str) -> list[Text | str]:
    """Return the lines of a terminal in which a command was typed."""
    return [Text(f"$ {command}", style="bold"), *output.strip("\n").splitlines()]


def screens(answer: Mapping[str, Any], summary: tuple[str, str], recording: Path, at: int) -> dict[str, str]:
    """Return pictures by the names of their files: of jobs, a summary (command, text), a recording, a fleet and a verdict."""
    command, text = summary
    commands = {
        "why": ("chipwatch why", why_text(answer, None)),
        "training-run": (command, text),
        "verdict": ("chipwatch verdict --expect gpus=8,rdma=8x400", verdict(at)),
    }
    pictures = {name: drawn(typed(*both), name, both[0]) for name, both in commands.items()}
    replay = f"chipwatch top --replay {recording.name}"
    return {
        **pictures,
        "recording": drawn(played(recording), "recording", replay),
        "fleet-top": drawn(_fleet(at / 1e9), "fleet-top", "chipwatch top gpu[001-012]"),
    }


def played(recording: Path) -> list[Text]:
    """Return the screen of a recording at PLACE."""
    recorded = load_run(recording)
    machine, listed, number = MachineState(), list[str](), len(recorded.times())
    for frame in islice(frames(recorded), ceil(PLACE * number)):
        machine.take(frame.points, frame.at)
        listed = jobs(frame.points) or listed
    return top(machine, Notes(recording.name, f"recording {PLACE:.0%}, x1", jobs=listed))


def fleet_nodes() -> list[FleetNode]:
    """Return twelve invented nodes: one silent, one with a lost GPU, one with a slow port, one that keeps points."""
    working = [
        FleetNode(
            f"gpu{n:03}", gpus=8, busy=8 - n % 3, utilization=94.0 - 9 * (n % 3), power=5300.0 - 640 * (n % 3), cpu=31.0 + n,
            idle={"data": 1.0 * (n % 3)} if n % 3 else {}, jobs=["41337" if n < 8 else "41352"],
            users=["ada" if n < 8 else "eve"], delivery="ok",
        )
        for n in range(1, 13)
    ]  # fmt: skip
    changed: dict[int, dict[str, Any]] = {
        3: {"verdict": "not fit", "reason": "gpu 6 had Xid 79", "lost": 1, "busy": 7},
        7: {"verdict": "degraded", "reason": "port mlx5_3 lost its link 4 times"},
        11: {"delivery": "points of 12 min kept"},
    }
    for n, values in changed.items():
        for name, value in values.items():
            setattr(working[n - 1], name, value)
    working[4] = FleetNode("gpu005", error="no complete answer in 3 s")
    return sorted(working, key=lambda node: node.place)


def _fleet(clock: float) -> list[Text]:
    return _shown(fleet_screen.compose(fleet_nodes(), fleet_screen.FleetView(), WIDE, "every 2 s", clock=clock))


def verdict(at: int) -> str:
    """Return what `chipwatch verdict` prints of a node that lost a GPU (Xid 79) and has a port at half of its rate."""
    ports: Sequence[dict[str, str]] = [{"device": f"mlx5_{n}", "port": "1"} for n in range(8)]
    series = [("gpu.state", {"gpu": str(n)}, n != 6, None, None, "") for n in range(8)]
    series += [("gpu.xid", {"gpu": "6", "xid": "79", "action": "restart_machine"}, 1, 1, at - 71 * 10**9, "")]
    series += [("rdma.state", dims, 1, None, None, "") for dims in ports]
    series += [("rdma.rate", dims, 200 if n == 3 else 400, None, None, "") for n, dims in enumerate(ports)]
    sources = {"nvidia": "gpu.state", "rdma": "rdma.state"}
    collectors = {name: {"state": "ok", "error": None, "metrics": [metric]} for name, metric in sources.items()}
    collectors["kernel"] = {"state": "absent", "error": "needs CAP_SYSLOG", "metrics": ["kernel.events"]}
    expected = parse("gpus=8,rdma=8x400")
    return as_text(judge({"series": series, "collectors": collectors}, expected, Path("/nonexistent"), [], "agent"))
