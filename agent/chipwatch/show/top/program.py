"""The loop of `chipwatch top`: takes frames and keys, and draws the screen."""

from __future__ import annotations

import gc
import json
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from traceback import format_exception_only
from typing import Any, Final

from chipwatch.base.redaction import one_line
from chipwatch.base.system import state_folder
from chipwatch.config.options import Config
from chipwatch.contract.errors import ConfigError
from chipwatch.history.columns import load_run
from chipwatch.jobs.device_key import DeviceKey, device_of
from chipwatch.net.status_socket import NoAgent, ask
from chipwatch.show.report.amounts import utc
from chipwatch.show.report.devices import FIGURES, DeviceState, device_states
from chipwatch.show.top.draw import Line
from chipwatch.show.top.live import Frame, Live, Source
from chipwatch.show.top.machine import MachineState
from chipwatch.show.top.processes import HERE
from chipwatch.show.top.replay import Player, jobs
from chipwatch.show.top.screen import Notes, compose
from chipwatch.show.top.terminal import Ended, Terminal, refused
from chipwatch.show.top.view import View

IDLE: Final = 60.0
"""Seconds after which a paused screen is redrawn without a key."""
REDRAW: Final = 0.05
"""Least seconds between two drawings, so that a key held down does not use a whole core."""
ASKING: Final = 2.0
"""Seconds between two requests to the agent."""
LATE: Final = 30.0
"""Seconds since the agent's last tick after which it counts as hanging."""
LONGEST: Final = 60
"""Most characters of an error."""
PALETTES: Final[Mapping[str, Mapping[str, str]]] = json.loads(Path(__file__).with_name("palettes.json").read_bytes())
"""
Palette -> role -> SGR codes (ECMA-48) for 16 colours, then after "|" for 256.

No code is 5 or 6, so nothing blinks. The palette color-blind has colours close to the blue, orange and vermilion of
https://jfly.uni-koeln.de/color/, which most people can tell apart.
"""


def run(
    config: Config, interval: float | None, colors: str | None, recordings: Sequence[Path], env: Mapping[str, str]
) -> int:
    """
    Show this machine, or play `recordings`, until the user quits; return the exit code. Raise ConfigError or NotLoaded.

    `interval`: seconds between two readings, or None for 1 s. `colors`: a palette, or None; see `palette_of`.
    """
    if why := refused(env):
        raise ConfigError(f"top: {why}; `chipwatch --once --format table` prints one reading")
    logging.disable(logging.CRITICAL)  # the screen shows what is wrong
    terminal = Terminal()
    if recordings:
        return show(Player(load_run(*recordings)), terminal, Top(recordings[0].name, colors, env), env)
    source = Live(config, interval or 1.0, terminal.wake)
    delivery = Delivery(state_folder(config.spool, env), terminal.wake)
    return show(source, terminal, Top(platform.node(), colors, env, delivery, str(config.proc)), env)


def show(source: Source, terminal: Terminal, top: Top, env: Mapping[str, str]) -> int:
    """Draw the frames of `source` until the user quits or a signal comes; return the exit code."""
    many = "256" in env.get("TERM", "") or env.get("COLORTERM", "").lower() in ("truecolor", "24bit")  # colours
    bugs: list[threading.ExceptHookArgs] = []

    def show_bug(bug: threading.ExceptHookArgs) -> None:
        bugs.append(bug)
        text = one_line(format_exception_only(bug.exc_type, bug.exc_value)[-1])
        top.bugs.append(f"a thread has ended by a bug, so figures stand still; restart chipwatch top: {text}")
        terminal.wake()

    threading.excepthook = show_bug  # the default would print into the screen
    try:
        with terminal:
            terminal.draw([render(line, top.palette, many=many) for line in top.lines(terminal.size(), "")])
            source.start()  # slow, so an empty screen is drawn before
            gc.freeze()
            while "quit" not in top.view.orders:
                top.take(source)
                lines = top.lines(terminal.size(), source.mode())
                terminal.draw([render(line, top.palette, many=many) for line in lines])
                time.sleep(REDRAW)
                for key in terminal.wait(IDLE if top.view.paused else source.due()):
                    top.view.press(key)
    except KeyboardInterrupt:
        return 0
    except Ended as end:
        return 128 + end.number if end.number else 0
    finally:
        terminal.restore()  # once more: a signal may have come just before the first time
        threading.excepthook = threading.__excepthook__
        source.close()
        logging.disable(logging.NOTSET)
        for bug in bugs:
            threading.excepthook(bug)
    return 0


class Top:
    """The content of the screen: the machine, the user's choices, and the palette."""

    def __init__(
        self, title: str, colors: str | None, env: Mapping[str, str], delivery: Delivery | None = None, proc: str = HERE
    ) -> None:
        self.machine, self.view = MachineState(), View()
        self.palette = PALETTES[palette_of(colors, env)]
        self._title, self._delivery, self._proc = title, delivery, proc
        self._troubles: tuple[str, ...] = ()
        self._jobs: list[str] = []
        """Lines about jobs: why they are slow; in a recording, what they did."""
        self.bugs: list[str] = []
        """Messages about threads that a bug has ended."""

    def take(self, source: Any) -> None:
        """Take new frames, unless paused; carry out the orders of keys."""
        if not self.view.paused:
            for frame in source.new():
                if source.rewound:
                    self.machine, source.rewound = MachineState(), False
                    self._jobs = []
                self._take(frame)
        orders, self.view.orders = self.view.orders, []
        for order in filter("quit".__ne__, orders):
            if order == "w":
                self.view.message = self._write()
            else:
                source.press(order)

    def lines(self, size: tuple[int, int], mode: str) -> list[Line]:
        """Return the lines of the screen."""
        delivery = self._delivery.parts if self._delivery else ()
        notes = Notes(self._title, mode, delivery, (*self.bugs, *self._troubles), self._jobs, self._proc)
        return compose(self.machine, self.view, size, notes)

    def _write(self) -> str:
        """Write a snapshot to a file in the current folder; return a message."""
        path = Path(utc(self.machine.now, "chipwatch-top-%Y%m%dT%H%M%SZ.json"))
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123  # with a mode
                json.dump(self._snapshot(), file, indent=1)
        except OSError as problem:
            return f"cannot write {path}: {problem.strerror or problem}"
        return f"written: {path}"

    def _snapshot(self) -> dict[str, Any]:
        """Return the current figures for JSON; unknown ones are left out."""
        machine, devices = self.machine, []
        for device in machine.devices:
            about = {name: getattr(device, name) for name in ("model", "flags", "job", "user")}
            figures = {name: device.get(name) for name in FIGURES}
            known = {name: value for name, value in (about | figures).items() if value not in (None, "", [])}
            processes = [{**process._asdict(), "device": dict(process.device)} for process in device.processes]
            devices.append({**dict(device.key), **known, "state": device.state[0], "processes": processes})
        host = {name: value for name in machine.host.names("") if (value := machine.of_host(name)) is not None}
        time = utc(machine.now, f"%Y-%m-%dT%H:%M:%S.{machine.now // 1000 % 10**6:06}Z")
        return {"time": time, "machine": self._title, "accelerators": devices, "host": host}

    def _take(self, frame: Frame) -> None:
        for dims, model in frame.models.items():
            if key := device_of(dims):
                self.machine.device(key).model = model
        told = self._delivery.holding if self._delivery else {}
        known = {key: it for key, own in frame.holding.items() if (it := told.get(key, own)).jobs == own.jobs}
        holding = {key: known.get(key, own)._replace(active=own.active) for key, own in frame.holding.items()}
        self.machine.take(frame.points, frame.at, frame.processes, holding)
        self._troubles = frame.troubles
        self._jobs = [*frame.why] if frame.holding else jobs(frame.points) or self._jobs  # the table names the holders


def palette_of(name: str | None, env: Mapping[str, str]) -> str:
    """Return the name of the palette: `name`, mono with NO_COLOR, light if the terminal says so, or dark."""
    if name or env.get("NO_COLOR"):
        return name or "mono"
    return "light" if env.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"


def render(line: Line, palette: Mapping[str, str], *, many: bool) -> str:
    """Return `line` as text with a terminal's codes; `many`: it shows 256 colours."""
    parts = []
    for text, role in line:
        if codes := palette.get(role):
            few, _, more = codes.partition("|")
            text = f"\x1b[{(more if many else '') or few}m{text}\x1b[0m"  # noqa: PLW2901
        parts.append(text)
    return "".join(parts)


class Delivery:
    """Asks the agent on a separate thread, because an agent that hangs answers late."""

    def __init__(self, folder: Path, wake: Callable[[], None]) -> None:
        """Ask the agent whose state is in `folder`; call `wake` when the answer changes."""
        self._folder, self._wake = folder, wake
        self.parts: list[Line] = []
        """The last answer: one piece of the line for each sink."""
        self.holding: Mapping[DeviceKey, DeviceState] = {}
        """The agent's last word on each device, unless it is older than LATE."""
        threading.Thread(target=self._run, name="delivery", daemon=True).start()

    def _run(self) -> None:
        while True:
            parts, answer = [[("no agent runs here", "dim")]], dict[str, Any]()
            with suppress(NoAgent):
                parts = parts_of(status := ask(self._folder, "status"))
                answer = ask(self._folder, "jobs") if (status.get("seconds_since_tick") or 0) < LATE else {}
            self.holding = {device.key: device for device in device_states(answer)}
            if parts != self.parts:
                self.parts = parts
                self._wake()
            time.sleep(ASKING)


def parts_of(status: Mapping[str, Any]) -> list[Line]:
    """Return a piece for each sink: points sent and kept, and its last error if it keeps points."""
    try:
        parts = [_sink(name, sink) for name, sink in status["sinks"].items()]
        if (status["seconds_since_tick"] or 0) > LATE:
            parts.insert(0, [(f"the agent hangs: its last tick was {status['seconds_since_tick']:.0f} s ago", "bad")])
    except (LookupError, TypeError, ValueError, AttributeError):
        return [[("the agent that runs here has another version", "dim")]]
    return parts


def _sink(name: str, sink: Mapping[str, Any]) -> Line:
    lost = sum((*sink["rejected"].values(), *sink["dropped"].values()))
    error = sink["refused"] or (sink["last_error"] if sink["kept"] else None)
    words = [sink["status"]] if sink.get("status") else [f"sent {sink['sent']:,}", f"kept {sink['kept']:,}"]
    words += [f"lost {lost:,}"] if lost else []
    line: Line = [(f"{name} ", "label"), ("failing " if error else "ok ", "bad" if error else "good")]
    return [*line, (", ".join(words), ""), (f" ({error[:LONGEST]})" if error else "", "warn")]
