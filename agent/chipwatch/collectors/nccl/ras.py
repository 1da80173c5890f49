"""Parses the answers of NCCL's RAS part by part: `ras_text` of NCCL 2.24 and later, `ras_json` of 2.28.7 and later."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from chipwatch.contract.owner import Rank

if TYPE_CHECKING:
    from chipwatch.collectors.nccl.ras_json import RasJson
    from chipwatch.collectors.nccl.ras_text import RasText

MAX_PART: Final = 1 << 12
"""Bytes of a line of text, or of a rank in JSON, which has about 600."""
MAX_NAMES: Final = 16
"""Ranks of a state that are named."""
MAX_COMMUNICATORS: Final = 1024
"""Communicators with differences that are kept."""


class UnreadableAnswer(ValueError):
    """The answer is not one of RAS, or not whole."""


class Group(NamedTuple):
    """Ranks of one communicator in the same state."""

    number: int = 0
    ranks: Sequence[Rank] = ()


class Communicator(NamedTuple):
    """A communicator, and what is wrong with it."""

    name: str
    behind: Mapping[tuple[str, int], Group] = MappingProxyType({})
    """Ranks that launched fewer of an operation than others: operation and number -> the ranks."""
    missing: Group = Group()
    failed: Group = Group()
    """Ranks with an error of NCCL."""
    most: Mapping[str, int] = MappingProxyType({})
    """Operation -> the number that its foremost ranks have launched."""
    ahead: Sequence[Rank] = ()
    """Some of the ranks that are not behind."""
    size: int = 0
    """Its ranks; 0 if unknown."""


def both(first: Group, second: Group) -> Group:
    """Return the ranks of two groups."""
    return Group(first.number + second.number, (*first.ranks, *second.ranks)[:MAX_NAMES])


class RasAnswer:
    """One answer, parsed as it comes; only the ranks that differ from the others are kept."""

    def __init__(self, wanted: Collection[int] = ()) -> None:
        """`wanted`: pids to look for."""
        self.version = ""
        self.devices = 0
        """GPUs of the job."""
        self.dead = 0
        """Processes that RAS considers dead."""
        self.communicators: dict[str, Communicator] = {}
        """Communicators with differences between their ranks."""
        self.launched: dict[str, int] = {}
        """Collectives by communicator, as its foremost rank has launched them; the text leaves that out."""
        self.wanted = wanted
        self.pids: set[int] = set()
        """Processes of `wanted` that are in the answer, in JSON."""
        self._rest = b""
        self._parts: RasJson | RasText | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes; raise UnreadableAnswer."""
        self._rest += data
        reader = self._parts = self._parts or self._begin()
        if reader is None:
            return
        *parts, self._rest = self._rest.split(reader.separator)
        if max(map(len, (*parts, self._rest))) > MAX_PART:
            raise UnreadableAnswer("a part of the answer is too long")
        for part in parts:
            reader.take(part)

    def finish(self) -> RasAnswer:
        """Return this answer; raise UnreadableAnswer if it is not whole."""
        if self._parts is None or not self._parts.end(self._rest):
            raise UnreadableAnswer("the answer is not whole")
        self._parts, self._rest = None, b""
        return self

    def _begin(self) -> RasJson | RasText | None:
        """Drop the answers to what came before the query; return the reader of the report, once that has begun."""
        from chipwatch.collectors.nccl.ras_json import RasJson  # noqa: PLC0415  # which imports this
        from chipwatch.collectors.nccl.ras_text import RasText  # noqa: PLC0415

        while b"\n" in self._rest:
            line, _, rest = self._rest.partition(b"\n")
            if line.startswith(b"{"):
                return RasJson(self)
            if line.startswith(b"NCCL version "):
                return RasText(self)
            if line.strip() != b"OK" and not line.startswith((b"ERROR: Unknown command", b"SERVER PROTOCOL")):
                raise UnreadableAnswer("the answer is not one of NCCL's RAS")
            self._rest = rest
        if len(self._rest) > MAX_PART:
            raise UnreadableAnswer("the answer is not one of NCCL's RAS")
        return None
