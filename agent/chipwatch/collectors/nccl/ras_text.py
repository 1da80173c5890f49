"""Parses an answer of RAS in text. A part is a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from chipwatch.collectors.nccl.ras import MAX_COMMUNICATORS, MAX_NAMES, Communicator, Group, RasAnswer, both
from chipwatch.contract.owner import Rank

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
    """Parses the lines below the name of each communicator."""

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
        if line.startswith(b"NCCL version "):
            answer.version = line.split()[2].decode(errors="replace")
        elif line == b"Warnings":
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
