"""Times that mean the same on a machine that has much else to do."""

import time

SHORT = 0.25
SAMPLE = 0.1


def slowness() -> float:
    """Return how many times longer than on an idle machine it takes this thread just now to use some CPU time."""
    begun, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < SAMPLE:
        pass
    return max(1.0, (time.monotonic() - begun) / SAMPLE)


def idle_seconds(took: float) -> float:
    """Return about how many of the seconds that something took it would have taken on an idle machine, at the least."""
    return took / slowness() if took > SHORT else took


def seconds_since(begun: float) -> float:
    """Return the same of the time since `begun` (time.monotonic)."""
    return idle_seconds(time.monotonic() - begun)
