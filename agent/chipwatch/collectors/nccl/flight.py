"""Reads what PyTorch's flight recorder dumped: which ranks the others wait for, in which collective; docs/why.md."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from operator import index
from pathlib import Path
from pickle import _Unpickler  # the one in Python, whose codes are a table
from typing import Any, ClassVar, Final, NamedTuple

from chipwatch.base.system import SAFE
from chipwatch.contract.errors import os_text
from chipwatch.contract.owner import JobCollectives, Owner, Rank

MAX_BYTES: Final = 1 << 22
"""
Most bytes of a dump, and characters of its groups' ranks: 100,000 have 700,000. A dump of 2,000 collectives with deep
stacks, PyTorch's default, has about 0.5 MB.
"""
MAX_CODES: Final = 1 << 19
"""Most bytes of a dump that may be CODES, which bounds time and memory; a collective has 70 to 150."""
MAX_GROUPS: Final = 128
"""Most groups of ranks of a dump; a rank is in about 30."""
MAX_FILES: Final = 256
"""Most dumps that are read of a job."""
MAX_CPU: Final = 1.0
"""Seconds of CPU after which the other dumps of a job are left to the next reading; 8 of 2,000 collectives take 0.9."""
MAX_WHAT: Final = 128
"""Most characters of a key, and of the name of a collective and its group; the rest is cut off."""
OLDEST: Final = 3600 * 10**9
"""Time (ns) for which a dump says something about a job that still runs."""
APART: Final = 25 * 10**9
"""Time (ns) within which ranks dump together; the older dump of a rank is of another time."""
WAITS: Final = 2 * APART
"""Time (ns) that a collective must have waited when it was dumped: ranks of a job that goes on are apart for less."""
CODES: Final = b"}](\x86\x80N\x88\x89KMJG\x8aXqrhjeu."
"""The codes of a pickle as PyTorch writes it: containers, constants, numbers, texts, the memo, ends."""
FAULT: Final = "not a whole dump of collectives, or too large: docs/why.md has the limits"


class PlainUnpickler(_Unpickler):
    """Makes dictionaries, lists, texts and numbers, and calls nothing; a pair is a list, so that none is a key."""

    dispatch: ClassVar[dict[int, Any]] = {code: _Unpickler.dispatch[code] for code in CODES}

    def load_pair(self: Any) -> None:
        """Make a list of the last two values."""
        self.stack[-2:] = [self.stack[-2:]]

    def load_items(self: Any) -> None:
        """Fill a dictionary; keys are short texts, since long ones take long, and numbers can be made to collide."""
        items = self.pop_mark()
        self.stack[-1].update(zip((key[:MAX_WHAT] for key in items[::2]), items[1::2], strict=True))

    dispatch |= {ord("\x86"): load_pair, ord("u"): load_items}


class Step(NamedTuple):
    """Where a rank is in the collectives of a group of ranks, by its dump."""

    last: int = 0
    """The number of the last collective that it launched; 0 for none."""
    number: int = 0
    """The number of the first one that is not complete and waits for long; 0 if none does."""
    what: str = ""
    """That one, such as `all_reduce 651 of default_pg`."""


Steps = Mapping[tuple[int, int], Step]
"""The hash of a group's name and ranks, and their number, 0 where the dump has none -> the rank's place in it."""


def steps(data: bytes, moment: int) -> Steps:
    """
    Return where a rank is in each group by its dump, written at `moment` (ns since the epoch).

    Messages between two ranks do not count. If it is not a whole dump or too large, any error is raised, or it is {}.
    """
    if len(data) - len(data.translate(None, CODES)) > MAX_CODES:
        raise ValueError
    dump = PlainUnpickler(BytesIO(data)).load()
    entries, ranks = dump["entries"], {name: group["ranks"] for name, group in dump["pg_config"].items()}
    if sum(map(len, ranks.values())) > MAX_BYTES or len(entries) > MAX_CODES // 32:
        raise ValueError
    groups = {name: (hash((name, text)), text.count(",") + 1) for name, text in ranks.items()}
    by_group = dict.fromkeys(groups.values(), Step())
    for entry in entries:
        (name, purpose), operation = entry["process_group"], entry["profiling_name"][:MAX_WHAT].rpartition(":")[2]
        number, place = index(entry["collective_seq_id"]), index(entry["pg_id"])
        group, status = groups.get(name, (hash(name), 0)), dump.get("pg_status", {}).get(str(place), {})
        is_over = entry["state"] == "completed" or number <= status.get("last_completed_collective", -1)
        if not entry["is_p2p"]:
            before = by_group.get(group, Step())
            what = " of ".join((f"{operation} {number}", (purpose or name)[:MAX_WHAT]))
            is_first = not (is_over or before.number) and moment - entry["time_created_ns"] >= WAITS
            by_group[group] = Step(number, number, what[:MAX_WHAT]) if is_first else before._replace(last=number)
    return by_group if len(by_group) <= MAX_GROUPS else {}


def report(owner: Owner, dumps: Mapping[int, Steps]) -> Iterator[JobCollectives]:
    """Yield the ranks that others wait for, and in which collective, if one waits; `dumps`: by rank."""
    waits: list[tuple[str, set[int], set[int]]] = []
    for group in {group for dump in dumps.values() for group in dump}:
        here = {rank: dump[group] for rank, dump in dumps.items() if group in dump}
        number = min((step.number for step in here.values() if step.number), default=0)
        whats = [step.what for step in here.values() if step.number == number]
        what = max(whats, key=whats.count)
        inside = {rank for rank, step in here.items() if step.what == what}
        absent = {rank for rank, step in here.items() if step.last < number or step.number == number} - inside
        if number:
            waits.append((f"{what}, in which {len(inside)} of {group[1] or len(here)} ranks wait", inside, absent))
    waiting = {rank for _, inside, _ in waits for rank in inside}
    waits.sort(key=lambda each: (bool(each[2]), waiting.isdisjoint(each[2]), len(each[1])))
    for lag, _, absent in waits[-1:]:
        problem = "" if absent else f"all ranks whose dumps of PyTorch are here have launched {lag}"
        yield JobCollectives(owner, absent=[*map(Rank, sorted(absent))], lag=lag, problem=problem)


def read_dumps(proc: Path, starts: Iterable[tuple[str, int, Owner]], now: int) -> Iterator[JobCollectives]:
    """
    Yield what the dumps say of each job, and why one says nothing; it may take long.

    `proc`: the host's /proc. `starts`: of each job the start of its dumps' paths, to which PyTorch adds the rank, and a
    process. `now`: ns since the epoch.
    """
    for start, pid, owner in starts:
        dumps: dict[int, Steps] = {}
        fault, path = "", f"{proc}/{pid}/root{start}"
        try:
            uid = Path(f"{proc}/{pid}").stat().st_uid
            written = dict(_written(path, uid, now))
            until = time.thread_time() + MAX_CPU  # not counting the files of others
            oldest = max(owner.since or 0, now - OLDEST, max(written.values(), default=0) - APART)
            for rank in (recent := [rank for rank, at in written.items() if at > oldest][:MAX_FILES]):
                if time.thread_time() > until:
                    raise TimeoutError(f"{len(dumps)} of {len(recent)} are read so far")
                dumps[rank] = found = _read(f"{path}{rank}", uid, written[rank])
                fault = fault if found else f"PyTorch's dump {start}{rank}: {FAULT}"
            yield from report(owner, dumps)
        except OSError as problem:
            fault = f"PyTorch's dumps at {start}: {os_text(problem)}"
        if fault:
            yield JobCollectives(owner, problem=fault)


def _written(start: str, uid: int, now: int) -> Iterator[tuple[int, int]]:
    """Yield the rank of each file of a user, and when it was written (ns since the epoch), until `now`."""
    folder, _, name = start.rpartition("/")
    with os.scandir(folder) as entries:
        for each in entries:
            rank = each.name.removeprefix(name)
            if rank.isdecimal() and f"{name}{int(rank)}" == each.name:
                with suppress(FileNotFoundError):  # anybody may remove a file of a shared folder
                    about = each.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode) and about.st_uid == uid and about.st_mtime_ns <= now:
                        yield int(rank), about.st_mtime_ns


@lru_cache(2 * MAX_FILES)
def _read(path: str, uid: int, written: int) -> Steps:
    """Return what a file of a user says, written at a time (ns since the epoch); {} if it is not a whole dump."""
    # a path opens no device, and waits for no pipe
    with suppress(Exception), open(path, "rb", 0, opener=lambda n, _: os.open(n, getattr(os, "O_PATH", 0) | SAFE)) as f:
        about = os.fstat(f.fileno())
        if stat.S_ISREG(about.st_mode) and about.st_uid == uid and about.st_size <= MAX_BYTES:
            with Path(f"/proc/self/fd/{f.fileno()}").open("rb") as file:
                return steps(file.read(MAX_BYTES), written)
    return {}
