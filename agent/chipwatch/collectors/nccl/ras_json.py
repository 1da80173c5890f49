"""Parses an answer of RAS in JSON. A part is the text between the keys "rank" of two ranks."""

from __future__ import annotations

import re
from typing import Final

from chipwatch.collectors.nccl.ras import MAX_COMMUNICATORS, MAX_NAMES, Communicator, Group, RasAnswer, both
from chipwatch.contract.owner import Rank

MAX_WHO: Final = 512
"""Most bytes of a rank before its state."""
MAX_GROUPS: Final = 512
"""Most different states of ranks in a communicator; one with more is not compared."""
MAX_NAMED: Final = 4096
"""Most ranks that are named in one answer."""
MAX_COUNTED: Final = 1 << 16
"""Most devices and most communicators that are counted."""
RANK: Final = b'"rank":'
FIELD: Final = re.compile(rb'"(\w+)":\s*(-?\d{1,19}|true|false|"[^"]*")')
IN_PROGRESS: Final = 7
"""The code ncclInProgress of nccl.h, which does not mean an error."""


class RasJson:
    """Groups the ranks of each communicator by their state."""

    separator = RANK

    def __init__(self, answer: RasAnswer) -> None:
        self._answer, self._room = answer, MAX_NAMED
        self._seen: set[int] = set()
        """Hashes of the devices of ranks: host, process, GPU."""
        self._header: dict[str, str] | None = None
        self._groups: dict[bytes, list[bytes]] = {}
        self._counts: dict[bytes, int] = {}
        self._is_missing = self._is_scattered = False

    def end(self, rest: bytes) -> bool:
        """Parse the rest of the answer; return True if the answer is complete."""
        self.take(rest)
        self._end_communicator()
        self._answer.devices = len(self._seen)
        return b'"ras"' in rest

    def take(self, part: bytes) -> None:
        before, is_new, header = part.partition(b'"hash"')
        if self._header is not None:
            self._note_rank(before)
        else:
            self._answer.version = _fields(before).get("nccl_version", "")
        if is_new:
            self._end_communicator()
            self._header, self._is_missing = _fields(b'"hash"' + header), False
        if b'"missing_ranks"' in (header or before):
            self._is_missing = True

    def _note_rank(self, part: bytes) -> None:
        """Add a rank to the group of ranks with the same state: the text from `status` on, which most ranks share."""
        begin = part.find(b'"status"')
        end = part.find(b"}", begin if self._is_missing else part.find(b'"collective_counts"', begin))
        if not 0 <= begin < MAX_WHO or end < 0:
            return
        who, state = part[:begin], part[begin:end]
        if len(self._seen) < MAX_COUNTED:
            self._seen.add(hash(who[who.find(b",") :]))
        if self._answer.wanted and (pid := _rank(who).pid) in self._answer.wanted:
            self._answer.pids.add(pid)
        if state not in self._counts:
            if len(self._counts) >= MAX_GROUPS:
                self._is_scattered = True
                return
            self._counts[state], self._groups[state] = 0, []
        self._counts[state] += 1
        if len(self._groups[state]) < MAX_NAMES:
            self._groups[state].append(who)

    def _end_communicator(self) -> None:
        """At the end of a communicator, compare its groups of ranks."""
        answer, header, counts, groups = self._answer, self._header, self._counts, self._groups
        self._header, self._counts, self._groups = None, {}, {}
        is_scattered, self._is_scattered = self._is_scattered, False
        if header is None:
            return
        missing, failed, is_steady = Group(), Group(), not is_scattered
        launched: dict[bytes, dict[str, int]] = {}
        for state, number in counts.items():
            fields, group = _fields(state), Group(number)
            if "unresponsive" in fields:
                if "true" in fields.values():  # otherwise it answers, but has left the communicator or not joined yet
                    missing = both(missing, self._named(group, groups[state]))
                answer.dead += number * (fields.get("considered_dead") == "true")
                continue
            if int(fields.get("async_error", "0")) not in (0, IN_PROGRESS):
                failed = both(failed, self._named(group, groups[state]))
            is_steady &= "true" not in fields.values() and fields.get("init_state") == "0"  # no rank starts or ends
            launched[state] = {key: int(value) for key, value in fields.items() if key[0].isupper()}
        most = {key: max(each.get(key, 0) for each in launched.values()) for each in launched.values() for key in each}
        behind: dict[tuple[str, int], Group] = {}
        for state, each in launched.items() if is_steady else ():
            for key in (key for key, value in each.items() if value < most[key]):
                group = self._named(Group(counts[state]), groups[state])
                behind[key, each[key]] = both(behind.get((key, each[key]), Group()), group)
        name = header.get("hash", "") + header.get("secondary_hash", "")
        if len(answer.launched) < MAX_COUNTED:
            answer.launched[name] = sum(most.values())
        if (behind or missing.number or failed.number) and len(answer.communicators) < MAX_COMMUNICATORS:
            foremost = (group for state, group in groups.items() if launched.get(state) == most) if behind else ()
            ahead = self._named(Group(), [who for group in foremost for who in group]).ranks
            size = int(header.get("size", "0"))
            answer.communicators[name] = Communicator(name, behind, missing, failed, most, ahead, size)

    def _named(self, group: Group, ranks: list[bytes]) -> Group:
        """Add the names of its ranks to a group, as many as there is room for."""
        ranks = ranks[: self._room]
        self._room -= len(ranks)
        return group._replace(ranks=tuple(map(_rank, ranks)))


def _fields(text: bytes) -> dict[str, str]:
    found = FIELD.findall(text)
    return {key.decode(errors="replace"): value.decode(errors="replace").strip('"') for key, value in found}


def _rank(who: bytes) -> Rank:
    fields = _fields(RANK + who)
    rank, pid, gpu = (int(fields.get(key, "-1")) for key in ("rank", "pid", "nvml_dev"))
    return Rank(rank, fields.get("host", ""), pid, gpu)
