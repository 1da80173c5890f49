"""A quick yes to `chipwatch health` for the image: no import that costs, so a probe takes 0.015 s of CPU, not 0.057."""

import fcntl
import os
import time


def is_healthy(path: str, *, ready: bool) -> bool:
    """Return True if an agent holds the heartbeat and its last tick was in time; False also if that is unknown."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # held: an agent runs
        text = os.read(file, 512)
    else:
        text = b""
    finally:
        os.close(file)
    at, late = (text.partition(b'"%s":' % key)[2].partition(b",")[0] for key in (b"at", b"late"))
    try:
        in_time = 0 <= time.monotonic() - float(at) < float(late)
    except ValueError:
        return False
    return in_time and (not ready or b'"why":null' in text)
