"""Calls a function in a child process, which is left behind if it does not answer in time: it may hang in a driver."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, Final

LEAST: Final = 0.05
"""Seconds that are waited for at least."""
ENDS: Final = 10
"""Checks, within LEAST, whether a process has ended."""
MAX_ANSWER: Final = 8 << 20


def ask_child(call: Callable[[], object], seconds: float) -> Any:
    """
    Return what `call` returns in a child process, as JSON has it; do not wait for the end of the child.

    A process with a thread that hangs in a driver cannot end, and a process that waits for its end would hang, too.
    Raise TimeoutError if there is no answer in time, and ChildProcessError with the child's end if there is none.
    """
    receiver, sender = os.pipe()
    child, deadline = os.fork(), time.monotonic() + seconds
    if not child:
        code = 1
        try:
            os.close(receiver)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):  # close standard output: a reader would wait for its end
                os.dup2(null, standard)
            with open(sender, "wb") as file:  # noqa: PTH123  # a descriptor
                file.write(json.dumps(call()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(sender)
    body, is_closed = b"", False
    left = seconds
    while len(body) < MAX_ANSWER and select.select([receiver], [], [], max(LEAST, left))[0]:
        if not (part := os.read(receiver, 1 << 16)):
            is_closed = True
            break
        body, left = body + part, deadline - time.monotonic()
    os.close(receiver)
    try:
        return json.loads(body)
    except ValueError:
        if not is_closed:
            raise TimeoutError from None
        raise ChildProcessError(_end_of(child)) from None
    finally:
        with contextlib.suppress(ChildProcessError, ProcessLookupError):  # this process may ignore SIGCHLD
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, os.WNOHANG)


def _end_of(child: int) -> str:
    """Return how a child that closed its pipe has ended: by a signal or with an exit code. Leave it to be reaped."""
    end = ""
    with contextlib.suppress(ChildProcessError, AttributeError):  # SIGCHLD is ignored; macOS has no waitid below 3.13
        for _ in range(ENDS):  # not for ever: it may hang in a driver while it ends
            if info := os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):  # type: ignore[attr-defined,unused-ignore]
                is_signal = info.si_code != os.CLD_EXITED
                end = f" by {signal.Signals(info.si_status).name}" if is_signal else f" with {info.si_status}"
                break
            time.sleep(LEAST / ENDS)
    return end
