"""Runs a command on a pseudo-terminal."""

import contextlib
import os
import pty
import subprocess
import termios

LONG = 60.0


def on_a_terminal(command, *, streams=("stdin", "stdout", "stderr"), size=(40, 120), keys=b"", at=b"quit", **options):
    """Run a command that has to end well, press `keys` once it has drawn `at`; return what it drew."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, size)
    drawn = b""
    with subprocess.Popen(command, **dict.fromkeys(streams, theirs), **options) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # Linux's end of a terminal
            while part := os.read(ours, 1 << 16):
                drawn += part
                if keys and at in drawn:
                    os.write(ours, keys)
        os.close(ours)
        assert process.wait(LONG) == 0, drawn
    return drawn.decode()
