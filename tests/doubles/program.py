"""Programs that a collector starts, in a time that the test moves."""

from pathlib import Path


class Clock:
    """A monotonic clock (s)."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def gone(pid: int) -> bool:
    """Tell whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
