"""A clock that stands still, and a sink that keeps what it is given."""

from collections.abc import Callable, Sequence

from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.sink import Limits, Rejected, Sink


class Clock:
    """A wall clock that stands still until it is moved (ns since the epoch)."""

    def __init__(self, now: int = 1_800_000_000_000_000_000) -> None:
        """Begin at `now`."""
        self.now = now

    def __call__(self) -> int:
        """Return the time."""
        return self.now

    def forward(self, seconds: float) -> int:
        """Move by `seconds`, which may be negative; return the new time."""
        self.now += int(seconds * 1e9)
        return self.now


class MemorySink(Sink):
    """Keeps what it is given; fails on demand."""

    limits = Limits(max_points=100, window=0, flush=0)

    def __init__(self, limits: Limits | None = None) -> None:
        """Take the limits to obey; unless given, the limits of the class."""
        if limits is not None:
            self.limits = limits
        self.batches: list[list[Datapoint]] = []
        self.failures: list[Exception] = []
        """Raised by the next writes, in order."""
        self.reject: Callable[[Datapoint], str | None] = lambda _: None
        """Returns the reason why a point is rejected, or None."""
        self.opened = self.closed = 0

    def open(self) -> None:
        """Count."""
        self.opened += 1

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """Keep what is not rejected, or fail."""
        if self.failures:
            raise self.failures.pop(0)
        rejected = [Rejected(point, why) for point in batch if (why := self.reject(point))]
        bad = {id(r.point) for r in rejected}
        self.batches.append([point for point in batch if id(point) not in bad])
        return rejected

    def close(self) -> None:
        """Count."""
        self.closed += 1

    @property
    def points(self) -> list[Datapoint]:
        """All points that were taken."""
        return [point for batch in self.batches for point in batch]
