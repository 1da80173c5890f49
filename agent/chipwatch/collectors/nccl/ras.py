"""Parses an answer of NCCL's RAS while it arrives: text since NCCL 2.24, JSON since 2.28.7."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from chipwatch.contract.owner import Rank

if TYPE_CHECKING:
    from chipwatch.collectors.nccl.ras_json import RasJson
    from chipwatch.collectors.nccl.ras_text import RasText

MAX_PART: Final = 1 << 12
"""Most bytes of a part: a line of text, or a rank in JSON, which has about 600."""
MAX_NAMES: Final = 16
"""Most ranks of one state that are named."""
MAX_COMMUNICATORS: Final = 1024
"""Most communicators with differences that are kept."""


class UnreadableAnswer(ValueError):
    """The answer does not come from RAS, or is incomplete."""


class Group(NamedTuple):
    """Ranks of one communicator in the same state."""

    number: int = 0
    ranks: Sequence[Rank] = ()


class Communicator(NamedTuple):
    """A communicator of NCCL, with the ranks that differ from others."""

    name: str
    behind: Mapping[tuple[str, int], Group] = MappingProxyType({})
    """Operation and its number of launches -> ranks that launched it less often than others."""
    missing: Group = Group()
    failed: Group = Group()
    """Ranks with an error of NCCL."""
    most: Mapping[str, int] = MappingProxyType({})
    """Operation -> the highest number of launches of any rank."""
    ahead: Sequence[Rank] = ()
    """Some of the ranks that are not behind."""
    size: int = 0
    """Number of its ranks; 0 if unknown."""


def both(first: Group, second: Group) -> Group:
    """Combine the ranks of two groups."""
    return Group(first.number + second.number, (*first.ranks, *second.ranks)[:MAX_NAMES])


class RasAnswer:
    """One answer, parsed while it arrives. Only ranks that differ from others are kept."""

    def __init__(self, wanted: Collection[int] = ()) -> None:
        """`wanted`: PIDs to look for in the answer."""
        self.version = ""
        self.devices = 0
        """Number of GPUs of the job."""
        self.dead = 0
        """Number of processes that RAS considers dead."""
        self.communicators: dict[str, Communicator] = {}
        """Name -> communicator, for those whose ranks differ."""
        self.launched: dict[str, int] = {}
        """Communicator -> highest number of collectives that a rank launched; empty for an answer in text."""
        self.wanted = wanted
        self.pids: set[int] = set()
        """PIDs of `wanted` that a JSON answer has."""
        self._rest = b""
        self._parts: RasJson | RasText | None = None

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; raise UnreadableAnswer."""
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
        """End the answer and return it; raise UnreadableAnswer if it is incomplete."""
        if self._parts is None or not self._parts.end(self._rest):
            raise UnreadableAnswer("the answer is not whole")
        self._parts, self._rest = None, b""
        return self

    def _begin(self) -> RasJson | RasText | None:
        """Skip the answers to earlier commands; return a parser once the report has begun, otherwise None."""
        from chipwatch.collectors.nccl.ras_json import RasJson  # noqa: PLC0415  # it imports this module
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
