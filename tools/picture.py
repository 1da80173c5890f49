"""Records the picture of `agent top` in docs/ (`make picture`): eight GPUs of a fake driver under invented load."""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text
from tests.doubles.nvml.driver import VARIABLE, Loaded, build

from chipwatch.config.load import load
from chipwatch.report.devices import key_of
from chipwatch.top.draw import Glyphs
from chipwatch.top.live import Live
from chipwatch.top.machine import MachineState
from chipwatch.top.palette import DARK
from chipwatch.top.screen import Notes, compose
from chipwatch.top.view import View

SIZE = (120, 34)
TICKS, STEP = 340, 2
DELIVERED = [("cloudwatch ", "label"), ("ok ", "good"), ("sent 18,432, kept 0", "")]


def tell(driver: Loaded, tick: int, pids: list[int]) -> None:
    """Load six GPUs with a training run and one with a notebook; leave one free."""
    for n, gpu in enumerate(driver.gpus):
        step = tick % 60 > 54 or 110 < tick < 130
        busy = 0 if n == 7 or (n == 6 and tick % 90 > 12) else 8 if step and n < 6 else 94 + 3 * math.sin(tick / 7 + n)
        gpu["utilization"] = {"gpu": round(busy), "memory": round(busy / 3)}
        gpu["memory"]["used"] = (61 if n < 6 else 24 if n == 6 else 0) * 2**30
        gpu["power"] = round(95_000 + busy * 6200)
        gpu["temperature"] = round(36 + busy / 3.4 + (18 if n == 2 else 0))
        gpu["field"].pop("83", None)
        gpu["field"]["75"] = 500_000_000 * tick if n == 2 else 0
        gpu["gpm"]["5"] = busy * 0.65
        gpu["processes"] = "" if n == 7 else f"{pids[n == 6]}:{60 * 2**30 if n < 6 else 23 * 2**30}"
        gpu["samples"] = "" if n == 7 else f"{pids[n == 6]}:{1000 + tick}:{round(busy)}"
    driver.tell()


def main(path: str) -> None:
    """Write the picture to `path`."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "driver/nvidia").mkdir(parents=True)
        (folder / "driver/nvidia/version").touch()
        for name in ("train.py", "notebook.py"):
            (folder / name).write_text("import time\ntime.sleep(600)\n")
        commands = [["python", "train.py", "--config", "70b.yaml"], ["python", "notebook.py"]]
        started = [subprocess.Popen(words, executable=sys.executable, cwd=folder) for words in commands]
        try:
            record(Path(path), folder, [process.pid for process in started])
        finally:
            for process in started:
                process.kill()
                process.wait()


def record(path: Path, folder: Path, pids: list[int]) -> None:
    """Write the last screen of a made-up hour, of processes that run."""
    driver = Loaded(build(folder), folder, "h100", 8)
    assert os.environ[VARIABLE]
    tell(driver, 0, pids)
    live = Live(load(None, {"collectors": {"nvidia": {"proc": str(folder)}}}), 1.0, lambda: None)
    live.start()
    live._stop.set()
    machine, at = MachineState(), time.time_ns() - TICKS * STEP * 10**9
    live._watched["nvidia"]._inner._clock = lambda: at
    for tick in range(TICKS):
        tell(driver, tick, pids)
        points = live._window.add(live._pipeline.gather(at), at)
        for dims, model in live._models().items():
            machine.device(key_of(dims)).model = model
        machine.take(points, at, live._processes(live._pipeline))
        at += STEP * 10**9
    live.close()
    console = Console(record=True, width=SIZE[0], file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in compose(machine, View(), SIZE, Notes("node-7", "1 s", [DELIVERED]), Glyphs()):
        console.print(Text.assemble(*((text, DARK.get(role, "")) for text, role in line)), no_wrap=True, crop=True)
    svg = console.export_svg(title="agent top", unique_id="top")
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main(*sys.argv[1:])
