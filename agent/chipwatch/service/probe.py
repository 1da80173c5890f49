"""Checks an agent's heartbeat, for `chipwatch status --health`. A container's probe loads only this module."""

import fcntl
import os
import time


class NoHeartbeat(Exception):
    """No running agent holds the heartbeat file, which the message names."""


def judge(path: str, *, ready: bool) -> tuple[bool, str]:
    """
    Return True if the agent that holds the file ticks in time, and a line about it; raise NoHeartbeat without an agent.

    With `ready`, the agent must also be able to send.
    """
    try:
        text = text_of_holder(path)
    except OSError as problem:
        raise NoHeartbeat(f"no heartbeat of an agent: {path}: {problem.strerror}") from problem
    if text is None:
        raise NoHeartbeat(f"no agent runs with its state in {path.rpartition('/')[0]}")
    try:
        process, at, late = f"process {int(_field(text, b'pid'))}", _field(text, b"at"), float(_field(text, b"late"))
        age, why = None if at == b"null" else time.monotonic() - float(at), ""
        if ready and b'"why":null' not in text:
            import json  # noqa: PLC0415  # slow to load, and only needed for an agent that is not ready

            why = json.loads(text).get("why", "")
    except (ArithmeticError, ValueError, AttributeError, RecursionError) as problem:
        raise NoHeartbeat(f"{path} is not a heartbeat of an agent") from problem
    if age is None:
        return False, f"{process} has not read anything yet"
    if not 0 <= age < late:
        return False, f"{process} hangs: its last tick was {age:.0f} s ago"
    if why:
        return False, f"{process} is not ready: {why}"
    return True, f"{'ready' if ready else 'healthy'}: {process} ticked {age:.1f} s ago"


def _field(text: bytes, key: bytes) -> bytes:
    """Return a number or null from the record, which is JSON; b"" if the key is missing."""
    return text.partition(b'"%s":' % key)[2].partition(b",")[0].strip(b" }\n")


def text_of_holder(path: str) -> bytes | None:
    """Return the text of the heartbeat file; None if no agent holds its lock. Raise OSError."""
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)
    return None
