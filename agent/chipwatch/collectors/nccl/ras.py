"""Parses an answer of NCCL's RAS: text since NCCL 2.24, JSON since 2.28.7."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice
from typing import Final, NamedTuple

from chipwatch.contract.owner import Rank

MAX_PART: Final = 1 << 12
"""Most bytes of a line of text, or of a rank in JSON, which has about 600."""
MAX_NAMES: Final = 16
"""Most ranks of one state that are named."""
MAX_DIFFERENT: Final = 1024
"""Most groups of ranks that differ from others, and most states of a communicator's ranks; more are not compared."""
BEHIND, MISSING, FAILED = "MISMATCH", "INCOMPLETE", "ERROR"
"""Ranks with fewer launches than others, without an answer, and with an error of NCCL, in the words of the text."""
BEGIN: Final = re.compile(rb"(?:(?:OK|ERROR: Unknown command|SERVER PROTOCOL)[^\n]*\n)*(?:(\{)|NCCL version |$)")
"""Matches the answers to earlier commands, and the start of JSON or text, or nothing."""


class UnreadableAnswer(ValueError):
    """The answer does not come from RAS, or is incomplete."""


class Group(NamedTuple):
    """Ranks of one communicator in the same state."""

    number: int = 0
    ranks: Sequence[Rank] = ()


Key = tuple[str, str, str, int]
"""Communicator, BEHIND, MISSING or FAILED, the operation of ranks behind and its launches by them; or "" and -1."""


class RasAnswer:
    """One answer; of its ranks only the ones that differ from others."""

    def __init__(self) -> None:
        self.devices = 0
        """Number of GPUs of the job."""
        self.dead = 0
        """Number of processes that RAS considers dead."""
        self.groups: dict[Key, Group] = {}
        """The ranks that differ from others."""
        self.most: dict[tuple[str, str], int] = {}
        """Communicator and operation -> the highest number of launches of any rank."""
        self.ahead: dict[str, Group] = {}
        """Communicator with ranks behind -> number of all its ranks, and some that are not; none for text."""
        self.launched: dict[str, int] = {}
        """Communicator -> highest number of collectives that a rank launched; empty for an answer in text."""
        self.pids: set[int] = set()
        """PIDs of `wanted` that a JSON answer has."""

    def add(self, key: Key, number: int, ranks: Iterable[Rank]) -> None:
        """Add ranks to those that differ in the same way: their number, and some of them."""
        if key in self.groups or len(self.groups) < MAX_DIFFERENT:
            old = self.groups.get(key, Group())
            self.groups[key] = Group(old.number + number, (*old.ranks, *islice(ranks, MAX_NAMES - len(old.ranks))))


def parse(data: bytes | bytearray, wanted: Collection[int] = ()) -> RasAnswer:
    """Parse an answer; `wanted`: PIDs to look for in it. Raise UnreadableAnswer."""
    answer, begin = RasAnswer(), BEGIN.match(data)
    if not begin:
        raise UnreadableAnswer("the answer is not one of NCCL's RAS")
    if not (_read_json(answer, data, wanted) if begin[1] else _read_text(answer, data.decode(errors="replace"))):
        raise UnreadableAnswer("the answer is not whole")
    return answer


MAX_COUNTED: Final = 1 << 16
"""Most devices, most communicators, and most ranks of one that are counted."""
HASH, RANK = b'"hash"', b'"rank":'
FIELD: Final = re.compile(r'"(\w+)":\s*(-?\d{1,19}|true|false|"[^"]*")')
IN_PROGRESS: Final = 7
"""The code ncclInProgress of nccl.h, which does not mean an error."""
States = Mapping[bytes, list[bytes]]
"""State of ranks, as its text from `status` on, which most ranks share -> who has it, the first ones."""


def _read_json(answer: RasAnswer, data: bytes | bytearray, wanted: Collection[int]) -> bool:
    """Take JSON, which may lack commas; return True if it is complete."""
    seen: set[int] = set()  # hashes of the devices of ranks: host, process, GPU
    for text in _communicators(data):
        head = text[:MAX_PART].partition(RANK)[0]
        counts, states = Counter[bytes](), defaultdict[bytes, list[bytes]](list)
        is_missing = b'"missing_ranks"' in head
        for part in text.split(RANK, MAX_COUNTED)[1:]:
            begin = part.find(b'"status"')
            end = part.find(b"}", begin if is_missing else part.find(b'"collective_counts"', begin))
            if 0 <= begin < end < MAX_PART:
                who, state = part[:begin], part[begin:end]
                if len(seen) < MAX_COUNTED:
                    seen.add(hash(who[who.find(b",") :]))
                if wanted and (pid := _rank(who).pid) in wanted:
                    answer.pids.add(pid)
                state = state if state in counts or len(counts) < MAX_DIFFERENT else b""
                counts[state] += 1
                if counts[state] <= MAX_NAMES:
                    states[state].append(who)
            is_missing |= b'"missing_ranks"' in part
        _compare(answer, _fields(HASH + head), counts, states)
    answer.devices = len(seen)
    return data.find(b'"ras"', max(0, data.rfind(RANK))) >= 0


def _communicators(data: bytes | bytearray) -> Iterator[bytes]:
    """Yield the text about each communicator after the key `hash`."""
    begin = data.find(HASH)
    while begin >= 0:
        end = data.find(HASH, begin + 1)
        yield bytes(memoryview(data)[begin + len(HASH) : end if end >= 0 else len(data)])
        begin = end


def _compare(answer: RasAnswer, header: Mapping[str, str], counts: Counter[bytes], states: States) -> None:
    """Compare the ranks of a communicator by their states; `counts` has "" for states that are too many."""
    name, is_steady = header.get("hash", "") + header.get("secondary_hash", ""), not counts.pop(b"", 0)
    launched: dict[bytes, dict[str, int]] = {}
    for state, number in counts.items():
        fields = _fields(state)
        if "unresponsive" in fields:
            if "true" in fields.values():  # otherwise it answers, but has left the communicator or not joined yet
                answer.add((name, MISSING, "", -1), number, map(_rank, states[state]))
            answer.dead += number * (fields.get("considered_dead") == "true")
            continue
        if int(fields.get("async_error", "0")) not in (0, IN_PROGRESS):
            answer.add((name, FAILED, "", -1), number, map(_rank, states[state]))
        is_steady &= "true" not in fields.values() and fields.get("init_state") == "0"  # no rank starts or ends
        launched[state] = {key: int(value) for key, value in fields.items() if key[0].isupper()}
    most = {key: max(each.get(key, 0) for each in launched.values()) for each in launched.values() for key in each}
    if len(answer.launched) < MAX_COUNTED:
        answer.launched[name] = sum(most.values())
    for state, each in launched.items() if is_steady else ():
        for key in (key for key, value in each.items() if value < most[key]):
            answer.add((name, BEHIND, key, each[key]), counts[state], map(_rank, states[state]))
            answer.most[name, key] = most[key]
    if any(each != most for each in launched.values()) and is_steady and len(answer.ahead) < MAX_DIFFERENT:
        foremost = [who for state, group in states.items() if launched.get(state) == most for who in group]
        answer.ahead[name] = Group(int(header.get("size", "0")), [*map(_rank, foremost[:MAX_DIFFERENT])])


def _fields(text: bytes) -> dict[str, str]:
    return {key: value.strip('"') for key, value in FIELD.findall(text.decode(errors="replace"))}


def _rank(who: bytes) -> Rank:
    fields = _fields(RANK + who)
    rank, pid, gpu = (int(fields.get(key, "-1")) for key in ("rank", "pid", "nvml_dev"))
    return Rank(rank, fields.get("host", ""), pid, gpu)


ROW: Final = re.compile(r"\s*\d+\s+\d+\s+\d+\s+[\d-]+\s+(\d+)\s+(\d{1,9})\s+(\S+)\s+\S+$")
"""Matches a row about a group of communicators: ranks in each, ranks in all, status, errors."""
BLOCK: Final = re.compile(r"(?:#\d+-\d+ \(([0-9a-f]+)\) (\w+)|(INCOMPLETE|DEAD)$)")
"""Matches the head of a block: about a communicator, or about processes."""
NAME: Final = re.compile(
    r"  Rank (\d+)\b.*?(?:-- GPU (\d+)(?: \(NVML (\d+)\))? managed by process (\d+) on node (\S+))?$"
)
PROCESS: Final = re.compile(r"  Process (\d+) on node (\S+) managing GPUs? (\d+)[\d,]*(?: \(NVML (\d+))?")
COUNT: Final = re.compile(r"  (?:\D* )?(\d{1,9}) (?:job )?(?:rank|process)")
LAUNCHED: Final = re.compile(r".* (?:launched up to operation (\d{1,19})|not launched any operations)")
KIND: Final = re.compile(r"  Communicator ranks have different (\w+)(?: operation counts)?")
LISTED: Final = re.compile(r"  The missing ranks?: ([\d,]+)")


def _read_text(answer: RasAnswer, text: str) -> bool:
    """Take text: blocks about a communicator each, "" for processes, with groups of ranks; return True if complete."""
    name, kind, operation, value = "", "", "", -1
    for line in map(str.rstrip, StringIO(text[: text.rfind("\n") + 1])):
        if len(line) > MAX_PART:
            raise UnreadableAnswer("a part of the answer is too long")
        if row := ROW.match(line):
            answer.devices = max(answer.devices, int(row[2]))
        elif block := BLOCK.match(line):
            name, kind, operation, value = block[1] or "", block[2] or block[3], "", -1
        elif word := KIND.match(line):
            operation, value = word[1], -1
        elif kind:
            count, launched = COUNT.match(line), LAUNCHED.match(line)
            value = int(launched[1] or 0) if launched else value
            answer.add((name, kind, operation, value), int(count[1]) if count else int(bool(launched)), _named(line))
    _settle(answer)
    return "\nWarnings\n" in text


def _settle(answer: RasAnswer) -> None:
    """Remove the groups of text that are not behind, and name the processes of missing ranks."""
    groups, most = answer.groups, answer.most
    dead, lost = (groups.pop(("", kind, "", -1), Group()) for kind in ("DEAD", MISSING))
    for name, _kind, operation, value in groups:
        most[name, operation] = max(value, most.get((name, operation), -1))
    for (name, kind, operation, value), group in [*groups.items()]:
        is_behind = (name, "status") not in most and -1 < value < most[name, operation]  # no rank starts or ends
        if not group.number or not (is_behind if kind == BEHIND else kind in (MISSING, FAILED)):
            del groups[name, kind, operation, value]
        elif kind == MISSING and not group.ranks:  # RAS does not name many
            groups[name, kind, operation, value] = group._replace(ranks=dead.ranks)
        elif kind == MISSING and len(group.ranks) == len(both := (*lost.ranks, *dead.ranks)) == 1:
            groups[name, kind, operation, value] = group._replace(ranks=[both[0]._replace(rank=group.ranks[0].rank)])
    answer.dead = dead.number
    if dead.number and not any(kind == MISSING for _, kind, *_ in groups):
        groups["", MISSING, "", -1] = dead


def _named(line: str) -> list[Rank]:
    """Return the ranks that a line names."""
    if name := NAME.match(line):
        return [Rank(int(name[1]), name[5] or "", int(name[4] or -1), int(name[3] or name[2] or -1))]
    if process := PROCESS.match(line):
        return [Rank(-1, process[2], int(process[1]), int(process[4] or process[3]))]
    listed = LISTED.match(line)
    return [Rank(int(word)) for word in listed[1].split(",")] if listed else []
