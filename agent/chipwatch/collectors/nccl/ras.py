"""Parses an answer of NCCL's RAS while it arrives: text since NCCL 2.24, JSON since 2.28.7."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from chipwatch.contract.owner import Rank

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
    """Parses JSON, and groups the ranks of each communicator by state. A part is the text between two keys "rank"."""

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


ROW: Final = re.compile(rb"\s*\d+\s+\d+\s+\d+\s+[\d-]+\s+(\d+)\s+(\d{1,9})\s+(\S+)\s+\S+$")
"""Matches a row about a group of communicators: ranks in each, ranks in all, status, errors."""
BLOCK: Final = re.compile(rb"#(\d+-\d+) \(([0-9a-f]+)\) (\w+)")
NAME: Final = re.compile(
    rb"  Rank (\d+)\b.*?(?:-- GPU (\d+)(?: \(NVML (\d+)\))? managed by process (\d+) on node (\S+))?$"
)
PROCESS: Final = re.compile(rb"  Process (\d+) on node (\S+) managing GPUs? (\d+)[\d,]*(?: \(NVML (\d+))?")
COUNT: Final = re.compile(
    rb"  (?:Rank \d+ has|(\d{1,9}) ranks have) (?:launched up to operation (\d{1,19})|not launched any operations)"
)
KIND: Final = re.compile(rb"  Communicator ranks have different (\w+)(?: operation counts)?")
MISSING: Final = re.compile(rb"  (?:Missing communicator data from )?(\d{1,9}) (?:job )?(?:rank|process)")
LISTED: Final = re.compile(rb"  The missing ranks?: ([\d,]+)")
ERRORS: Final = re.compile(rb"  (?:Initialization|Asynchronous) errors? on (\d{1,9}) rank")


class RasText:
    """Parses text: the lines below the name of each communicator. A part is a line."""

    separator = b"\n"

    def __init__(self, answer: RasAnswer) -> None:
        self._answer, self._is_whole = answer, False
        self._block, self._kind, self._operation = "", "", ""
        self._value = -1
        self._unsteady: set[str] = set()
        """Communicators with ranks that are starting or ending."""
        self._lost: list[Rank] = []
        """Processes that the answer names as unresponsive or dead."""
        self._dead: list[Rank] = []
        """Processes that the answer names as dead."""

    def end(self, rest: bytes) -> bool:
        """Compare the communicators; return True if the answer is complete."""
        del rest  # an unfinished line
        answer = self._answer
        answer.communicators = {name: self._compared(item) for name, item in answer.communicators.items()}
        if answer.dead and not any(item.missing.number for item in answer.communicators.values()):
            answer.communicators[""] = Communicator("", missing=Group(answer.dead, self._dead))
        return self._is_whole

    def take(self, part: bytes) -> None:
        line, answer = part.rstrip(), self._answer
        if line == b"Warnings":
            self._is_whole, self._block, self._kind = True, "", ""
        elif row := ROW.match(line):
            answer.devices = max(answer.devices, int(row[2]))
        elif block := BLOCK.match(line):
            self._block, self._kind, self._operation, self._value = block[2].decode(), block[3].decode(), "", -1
            if len(answer.communicators) < MAX_COMMUNICATORS:
                answer.communicators.setdefault(self._block, Communicator(self._block))
        elif line in (b"INCOMPLETE", b"DEAD"):
            self._block, self._kind = "", line.decode()
        elif self._block in answer.communicators:
            answer.communicators[self._block] = self._detailed(answer.communicators[self._block], line)
        elif self._kind == "DEAD" and (number := MISSING.match(line)):
            answer.dead = int(number[1])
        elif self._kind and (process := PROCESS.match(line)) and len(self._lost) < MAX_NAMES:
            self._lost.append(Rank(-1, _text(process[2]), int(process[1]), int(process[4] or process[3])))
            self._dead += self._lost[-1:] if self._kind == "DEAD" else ()

    def _detailed(self, item: Communicator, line: bytes) -> Communicator:
        """Add the content of a line to its communicator."""
        if kind := KIND.match(line):
            self._operation, self._value = _text(kind[1]), -1
            self._unsteady |= {self._block} if self._operation == "status" else set()
            return item
        if number := COUNT.match(line):
            self._value = int(number[2] or 0)
        name = NAME.match(line)
        ranks: list[Rank] = []
        if name:
            ranks.append(Rank(int(name[1]), _text(name[5] or b""), int(name[4] or -1), int(name[3] or name[2] or -1)))
        count = int(number[1] or 1) if number else 0
        if self._kind == "MISMATCH" and self._value >= 0:
            key = self._operation, self._value
            return item._replace(behind={**item.behind, key: both(item.behind.get(key, Group()), Group(count, ranks))})
        if self._kind == "INCOMPLETE":
            lost, listed = MISSING.match(line), LISTED.match(line)
            ranks += [Rank(int(word)) for word in (listed[1].split(b",") if listed else ())]
            return item._replace(missing=both(item.missing, Group(int(lost[1]) if lost else 0, ranks)))
        if self._kind == "ERROR":
            wrong = ERRORS.match(line)
            return item._replace(failed=both(item.failed, Group(int(wrong[1]) if wrong else 0, ranks)))
        return item

    def _compared(self, item: Communicator) -> Communicator:
        """Remove the ranks that are ahead from those behind, and name the processes of missing ranks."""
        most: dict[str, int] = {}
        for operation, value in item.behind if item.name not in self._unsteady else ():
            most[operation] = max(value, most.get(operation, 0))
        behind = {key: group for key, group in item.behind.items() if key[1] < most.get(key[0], 0)}
        ranks: Sequence[Rank] = item.missing.ranks
        if len(ranks) == len(self._lost) == 1 and not ranks[0].host:  # NCCL 2.24, 2.25: rank and process are apart
            ranks = [self._lost[0]._replace(rank=ranks[0].rank)]
        elif not ranks and item.missing.number:  # RAS does not name many missing ranks
            ranks = self._dead
        return item._replace(behind=behind, most=most, missing=item.missing._replace(ranks=ranks))


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
