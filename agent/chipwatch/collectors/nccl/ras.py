"""Parses the answers of NCCL's RAS part by part: text of NCCL 2.24 and later, JSON of 2.28.7 and later."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from chipwatch.contract.owner import Rank

MAX_PART: Final = 1 << 12
"""Bytes of a line of text, or of a rank in JSON, which has about 600."""
MAX_WHO: Final = 512
"""Bytes of a rank in JSON before its state."""
MAX_GROUPS: Final = 512
"""Different states of ranks in a communicator; one with more is not compared."""
MAX_NAMES: Final = 16
"""Ranks of a state that are named."""
MAX_NAMED: Final = 4096
"""Ranks that are named in one answer."""
MAX_COMMUNICATORS: Final = 1024
"""Communicators with differences that are kept."""
MAX_COUNTED: Final = 1 << 16
"""Devices and communicators that are counted."""
RANK: Final = b'"rank":'
FIELD: Final = re.compile(rb'"(\w+)":\s*(-?\d{1,19}|true|false|"[^"]*")')
ROW: Final = re.compile(rb"\s*\d+\s+\d+\s+\d+\s+[\d-]+\s+(\d+)\s+(\d{1,9})\s+(\S+)\s+\S+$")
"""A group of communicators: its ranks in each of them and in all, its status, its errors."""
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
IN_PROGRESS: Final = 7
"""ncclInProgress of nccl.h."""


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
        self.pids: set[int] = set()
        """Processes of `wanted` that are in the answer, in JSON."""
        self._wanted, self._room = wanted, MAX_NAMED
        self._rest = b""
        self._separator, self._is_whole = b"\n", False
        self._begun = False
        self._seen: set[int] = set()
        """Hashes of the places of ranks."""
        self._header: dict[str, str] | None = None
        self._groups: dict[bytes, list[bytes]] = {}
        self._counts: dict[bytes, int] = {}
        self._is_missing = self._is_scattered = False
        self._block, self._kind, self._operation = "", "", ""
        self._value = -1
        self._unsteady: set[str] = set()
        """Communicators, in text, of which some ranks begin or end."""
        self._lost: list[Rank] = []
        """Processes that the text names as unresponsive or dead."""
        self._dead: list[Rank] = []
        """The dead ones of these."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes; raise UnreadableAnswer."""
        self._rest += data
        if not self._begun and not self._begin():
            return
        *parts, self._rest = self._rest.split(self._separator)
        take = self._take_line if self._separator == b"\n" else self._take_rank
        if max(map(len, (*parts, self._rest))) > MAX_PART:
            raise UnreadableAnswer("a part of the answer is too long")
        for part in parts:
            take(part)

    def finish(self) -> RasAnswer:
        """Return this answer; raise UnreadableAnswer if it is not whole."""
        if self._separator == RANK:
            self._take_rank(self._rest)
            self._end_communicator()
            self._is_whole = b'"ras"' in self._rest
            self.devices = len(self._seen)
        else:
            self.communicators = {name: self._compared(item) for name, item in self.communicators.items()}
            if self.dead and not any(item.missing.number for item in self.communicators.values()):
                self.communicators[""] = Communicator("", missing=Group(self.dead, self._dead))
        self._rest = b""
        if not self._is_whole:
            raise UnreadableAnswer("the answer is not whole")
        return self

    def _begin(self) -> bool:
        """Drop the answers to what came before the query; return whether the report has begun."""
        while b"\n" in self._rest:
            line, _, rest = self._rest.partition(b"\n")
            if line.strip() == b"OK" or line.startswith((b"ERROR: Unknown command", b"SERVER PROTOCOL")):
                self._rest = rest
                continue
            if line.startswith(b"{"):
                self._separator = RANK
            elif not line.startswith(b"NCCL version "):
                raise UnreadableAnswer("the answer is not one of NCCL's RAS")
            self._begun = True
            return True
        if len(self._rest) > MAX_PART:
            raise UnreadableAnswer("the answer is not one of NCCL's RAS")
        return False

    # -- JSON: a part is what stands between two ranks ---------------------------------------------------------------

    def _take_rank(self, part: bytes) -> None:
        before, is_new, header = part.partition(b'"hash"')
        if self._header is not None:
            self._note_rank(before)
        else:
            self.version = _fields(before).get("nccl_version", "")
        if is_new:
            self._end_communicator()
            self._header, self._is_missing = _fields(b'"hash"' + header), False
        if b'"missing_ranks"' in (header or before):
            self._is_missing = True

    def _note_rank(self, part: bytes) -> None:
        """Add a rank to the group of its state: its text from `status` on, which most ranks share."""
        begin = part.find(b'"status"')
        end = part.find(b"}", begin if self._is_missing else part.find(b'"collective_counts"', begin))
        if not 0 <= begin < MAX_WHO or end < 0:
            return
        who, state = part[:begin], part[begin:end]
        if len(self._seen) < MAX_COUNTED:
            self._seen.add(hash(who[who.find(b",") :]))
        if self._wanted and (pid := _rank(who).pid) in self._wanted:
            self.pids.add(pid)
        if state not in self._counts:
            if len(self._counts) >= MAX_GROUPS:
                self._is_scattered = True
                return
            self._counts[state], self._groups[state] = 0, []
        self._counts[state] += 1
        if len(self._groups[state]) < MAX_NAMES:
            self._groups[state].append(who)

    def _end_communicator(self) -> None:
        """Compare the groups of the communicator that ends here."""
        header, counts, groups = self._header, self._counts, self._groups
        self._header, self._counts, self._groups = None, {}, {}
        is_scattered, self._is_scattered = self._is_scattered, False
        if header is None:
            return
        missing, failed, is_steady = Group(), Group(), not is_scattered
        launched: dict[bytes, dict[str, int]] = {}
        for state, number in counts.items():
            fields, group = _fields(state), Group(number)
            if "unresponsive" in fields:
                if "true" in fields.values():  # else it answers, and has left the communicator or not yet joined it
                    missing = _both(missing, self._named(group, groups[state]))
                self.dead += number * (fields.get("considered_dead") == "true")
                continue
            if int(fields.get("async_error", "0")) not in (0, IN_PROGRESS):
                failed = _both(failed, self._named(group, groups[state]))
            is_steady &= "true" not in fields.values() and fields.get("init_state") == "0"  # it neither begins nor ends
            launched[state] = {key: int(value) for key, value in fields.items() if key[0].isupper()}
        most = {key: max(each.get(key, 0) for each in launched.values()) for each in launched.values() for key in each}
        behind: dict[tuple[str, int], Group] = {}
        for state, each in launched.items() if is_steady else ():
            for key in (key for key, value in each.items() if value < most[key]):
                group = self._named(Group(counts[state]), groups[state])
                behind[key, each[key]] = _both(behind.get((key, each[key]), Group()), group)
        name = header.get("hash", "") + header.get("secondary_hash", "")
        if len(self.launched) < MAX_COUNTED:
            self.launched[name] = sum(most.values())
        if (behind or missing.number or failed.number) and len(self.communicators) < MAX_COMMUNICATORS:
            foremost = (group for state, group in groups.items() if launched.get(state) == most) if behind else ()
            ahead = self._named(Group(), [who for group in foremost for who in group]).ranks
            size = int(header.get("size", "0"))
            self.communicators[name] = Communicator(name, behind, missing, failed, most, ahead, size)

    def _named(self, group: Group, ranks: list[bytes]) -> Group:
        """Return the group with the names of its ranks."""
        ranks = ranks[: self._room]
        self._room -= len(ranks)
        return group._replace(ranks=tuple(map(_rank, ranks)))

    # -- text: a part is a line --------------------------------------------------------------------------------------

    def _take_line(self, line: bytes) -> None:
        line = line.rstrip()
        if line.startswith(b"NCCL version "):
            self.version = line.split()[2].decode(errors="replace")
        elif line == b"Warnings":
            self._is_whole, self._block, self._kind = True, "", ""
        elif row := ROW.match(line):
            self.devices = max(self.devices, int(row[2]))
        elif block := BLOCK.match(line):
            self._block, self._kind, self._operation, self._value = block[2].decode(), block[3].decode(), "", -1
            if len(self.communicators) < MAX_COMMUNICATORS:
                self.communicators.setdefault(self._block, Communicator(self._block))
        elif line in (b"INCOMPLETE", b"DEAD"):
            self._block, self._kind = "", line.decode()
        elif self._block in self.communicators:
            self.communicators[self._block] = self._detailed(self.communicators[self._block], line)
        elif self._kind == "DEAD" and (number := MISSING.match(line)):
            self.dead = int(number[1])
        elif self._kind and (process := PROCESS.match(line)) and len(self._lost) < MAX_NAMES:
            self._lost.append(Rank(-1, _text(process[2]), int(process[1]), int(process[4] or process[3])))
            self._dead += self._lost[-1:] if self._kind == "DEAD" else ()

    def _detailed(self, item: Communicator, line: bytes) -> Communicator:
        """Return a communicator with what a line below its name says."""
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
            return item._replace(behind={**item.behind, key: _both(item.behind.get(key, Group()), Group(count, ranks))})
        if self._kind == "INCOMPLETE":
            lost, listed = MISSING.match(line), LISTED.match(line)
            ranks += [Rank(int(word)) for word in (listed[1].split(b",") if listed else ())]
            return item._replace(missing=_both(item.missing, Group(int(lost[1]) if lost else 0, ranks)))
        if self._kind == "ERROR":
            wrong = ERRORS.match(line)
            return item._replace(failed=_both(item.failed, Group(int(wrong[1]) if wrong else 0, ranks)))
        return item

    def _compared(self, item: Communicator) -> Communicator:
        """Return a communicator of the text without its foremost ranks, and with the processes of missing ranks."""
        most: dict[str, int] = {}
        for operation, value in item.behind if item.name not in self._unsteady else ():
            most[operation] = max(value, most.get(operation, 0))
        behind = {key: group for key, group in item.behind.items() if key[1] < most.get(key[0], 0)}
        ranks: Sequence[Rank] = item.missing.ranks
        if len(ranks) == len(self._lost) == 1 and not ranks[0].host:  # NCCL 2.24 and 2.25 name them in two places
            ranks = [self._lost[0]._replace(rank=ranks[0].rank)]
        elif not ranks and item.missing.number:  # which RAS does not name where they are many
            ranks = self._dead
        return item._replace(behind=behind, most=most, missing=item.missing._replace(ranks=ranks))


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _fields(text: bytes) -> dict[str, str]:
    return {_text(key): _text(value).strip('"') for key, value in FIELD.findall(text)}


def _rank(who: bytes) -> Rank:
    fields = _fields(RANK + who)
    numbers = (int(fields.get(key, "-1")) for key in ("rank", "pid", "nvml_dev"))
    rank, pid, gpu = numbers
    return Rank(rank, fields.get("host", ""), pid, gpu)


def _both(first: Group, second: Group) -> Group:
    return Group(first.number + second.number, (*first.ranks, *second.ranks)[:MAX_NAMES])
