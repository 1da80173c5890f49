"""A program in a pseudo-terminal, and a terminal emulator that shows what it draws."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

import pyte
import pytest
from tests.doubles.nvml.driver import VARIABLE, Driver

LONG = 60
FRAME_END = b"\x1b[?2026l"
ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"


class Seat:
    """A terminal with somebody who looks at it and presses keys."""

    def __init__(self, command, env, folder, size):
        self.screen, self.sent, self._fed = pyte.Screen(*size), b"", 0
        self._stream = pyte.ByteStream(self.screen)
        self.pid, self.file = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe(command[0], command, env)
        self._size(*size)
        self.before = termios.tcgetattr(self.file)
        self.code = None

    def _size(self, columns, lines):
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns, lines):
        self.screen.resize(lines, columns)
        self._size(columns, lines)

    def look(self, wait=0.1):
        """Take what the program has drawn, whole frames only; return False when it is gone."""
        while select.select([self.file], [], [], wait)[0]:
            try:
                data = os.read(self.file, 1 << 16)
            except OSError:
                return False
            if not data:
                return False
            self.sent += data
            whole = max(self._fed, self.sent.rfind(FRAME_END) + len(FRAME_END))
            self._stream.feed(self.sent[self._fed : whole])
            self._fed = whole
            wait = 0
        return True

    @property
    def lines(self):
        return [*self.screen.display]

    @property
    def text(self):
        return "\n".join(self.lines)

    def until(self, condition):
        """Look until `condition` is true of the text on the screen; return the text."""
        deadline = time.monotonic() + LONG
        while not condition(self.text):
            assert time.monotonic() < deadline, f"never seen; the screen:\n{self.text}"
            assert self.look(), f"the program has ended; the screen:\n{self.text}\n{self.sent[-2000:]!r}"
        return self.text

    def shows(self, *words):
        return self.until(lambda text: all(word in text for word in words))

    def press(self, keys):
        os.write(self.file, keys.encode())

    def kill(self, number=signal.SIGTERM):
        os.kill(self.pid, number)

    def end(self):
        """Look until the program has ended; return its exit code."""
        deadline = time.monotonic() + LONG
        while self.look():
            assert time.monotonic() < deadline, f"it does not end; the screen:\n{self.text}"
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def close(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.file)


@pytest.fixture
def sit(agent, tmp_path):
    """Start `chipwatch top` in a terminal of a size."""
    seats = []

    def start(*words, size=(120, 40), env=None, command="top"):
        env = agent.env(**({"TERM": "xterm-256color", "PYTHONUTF8": 1, "XDG_STATE_HOME": tmp_path} | (env or {})))
        seats.append(Seat([*agent.command, command, *map(str, words)], env, tmp_path, size))
        return seats[-1]

    yield start
    for seat in seats:
        seat.close()


class Gpus:
    """Eight GPUs of a fake driver, and the environment in which the agent finds them."""

    def __init__(self, library, folder):
        self.driver = Driver(folder, "h100", 8)
        proc = folder / "proc"
        (proc / "driver/nvidia").mkdir(parents=True)
        (proc / "driver/nvidia/version").touch()
        self.env = {"LD_LIBRARY_PATH": library.parent, VARIABLE: self.driver.path}
        self.env["CHIPWATCH_COLLECTORS__NVIDIA__PROC"] = proc
        for n, gpu in enumerate(self.driver.gpus):
            gpu["utilization"]["gpu"], gpu["gpm"]["1"], gpu["temperature"] = 90 - n, 90 - n, 60 + n
            gpu["memory"]["used"] = (70 - n) * 2**30
            gpu["field"]["83"] = f"1000000@{600_000 - 1000 * n}"
            gpu["processes"] = f"{os.getpid()}:{(10 + n) * 2**30}"
        self.driver.gpus[5] |= {"utilization": {"gpu": 0, "memory": 0}, "processes": ""}
        self.driver.gpus[5]["gpm"]["1"] = 0
        self.driver.gpus[6]["lost"] = 1
        self.driver.gpus[2]["field"]["75"] = "0@500000000"
        self.driver.write()


@pytest.fixture
def gpus(library, tmp_path):
    return Gpus(library, tmp_path)
