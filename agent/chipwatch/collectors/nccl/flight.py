"""Reads what PyTorch's flight recorder dumped: which ranks the others wait for, in which collective; docs/why.md."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from pickle import _Unpickler  # the one in Python, whose codes are a table
from typing import Any, ClassVar, Final, NamedTuple

from chipwatch.base.system import SAFE
from chipwatch.contract.errors import os_text
from chipwatch.contract.owner import JobCollectives, Owner, Rank

MAX_BYTES: Final = 1 << 22
"""Most bytes of a dump; one of 2,000 collectives with deep stacks, PyTorch's default, has about 0.5 MB."""
MAX_CONTAINERS: Final = 1 << 18
"""Most dictionaries, lists and pairs of a dump; a collective has about 20."""
MAX_FILES: Final = 256
"""Most dumps that are read of a job."""
MAX_WHAT: Final = 128
"""Most characters of the name of a collective and its group."""
OLDEST: Final = 3600 * 10**9
"""Time (ns) for which a dump says something about a job that still runs."""
APART: Final = 25 * 10**9
"""Time (ns) within which ranks dump together; the older dump of a rank is of another time."""
WAITS: Final = 2 * APART
"""Time (ns) that a collective must have waited when it was dumped: ranks of a job that goes on are apart for less."""
CONTAINERS: Final = b"}](\x86"
CODES: Final = CONTAINERS + b"\x80N\x88\x89KMJG\x8aXqrhjeu."
"""The codes of a pickle as PyTorch writes it: containers, constants, numbers, texts, the memo, ends."""
FAULT: Final = f"not a whole dump of collectives of the job's user, of at most {MAX_BYTES >> 20} MiB"


class PlainUnpickler(_Unpickler):
    """Makes dictionaries, lists, texts and numbers, and calls nothing; a pair is a list, so that none is a key."""

    dispatch: ClassVar[dict[int, Any]] = {code: _Unpickler.dispatch[code] for code in CODES}

    def load_pair(self: Any) -> None:
        """Make a list of the last two values."""
        self.stack[-2:] = [self.stack[-2:]]

    def load_long(self: Any) -> None:
        """Add a number of at most 64 bits: of longer ones as keys a writer could choose those with the same hash."""
        self.stack.append(int.from_bytes(self.read(ord(self.read(1)))[:8], "little", signed=True))

    dispatch |= {ord("\x86"): load_pair, ord("\x8a"): load_long}


class Step(NamedTuple):
    """Where a rank is in the collectives of a group of ranks, by its dump."""

    last: int = 0
    """The number of the last collective that it launched; 0 for none."""
    number: int = 0
    """The number of the first one that is not complete and waits for long; 0 if none does."""
    what: str = ""
    """That one, such as `all_reduce 651 of default_pg`."""


Steps = Mapping[tuple[str, tuple[str, ...]], Step]
"""The name of a group and its ranks, none where the dump does not have them, as with gloo -> the rank's place in it."""


def steps(data: bytes, moment: int) -> Steps:
    """
    Return where a rank is in each group by its dump, written at `moment` (ns since the epoch).

    Messages between two ranks do not count. Any error is raised if it is not a whole dump.
    """
    if sum(map(data.count, CONTAINERS)) > MAX_CONTAINERS:
        raise ValueError
    dump = PlainUnpickler(BytesIO(data)).load()
    ranks = {name: (*group["ranks"].split(","),) for name, group in dump["pg_config"].items()}
    by_group = dict.fromkeys(ranks.items(), Step())
    for entry in dump["entries"]:
        (name, purpose), number, place = entry["process_group"], int(entry["collective_seq_id"]), int(entry["pg_id"])
        group, status = (name, ranks.get(name, ())), dump.get("pg_status", {}).get(str(place), {})
        is_over = entry["state"] == "completed" or number <= status.get("last_completed_collective", -1)
        if not entry["is_p2p"]:
            before = by_group.get(group, Step())
            what = " of ".join((f"{entry['profiling_name'].rpartition(':')[2]} {number}", purpose or name))
            is_first = not (is_over or before.number) and moment - entry["time_created_ns"] >= WAITS
            by_group[group] = Step(number, number, what[:MAX_WHAT]) if is_first else before._replace(last=number)
    return by_group


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
            waits.append((f"{what}, in which {len(inside)} of {len(group[1]) or len(here)} ranks wait", inside, absent))
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
        folder, _, name = start.rpartition("/")
        dumps: dict[int, Steps] = {}
        fault = ""
        try:
            uid = Path(f"{proc}/{pid}").stat().st_uid
            with os.scandir(f"{proc}/{pid}/root{folder}") as entries:
                files = {each.name.removeprefix(name): each for each in entries if each.name.startswith(name)}
            written = {rank: files[rank].stat(follow_symlinks=False).st_mtime_ns for rank in files if rank.isdecimal()}
            oldest = max(owner.since or 0, now - OLDEST, max(written.values(), default=0) - APART)
            for rank in [rank for rank, at in written.items() if at > oldest][:MAX_FILES]:
                dumps[int(rank)] = found = _read(files[rank].path, uid, written[rank])
                fault = fault if found else f"PyTorch's dump {start}{rank}: {FAULT}"
        except OSError as problem:
            fault = f"PyTorch's dumps at {start}: {os_text(problem)}"
        yield from report(owner, dumps)
        if fault:
            yield JobCollectives(owner, problem=fault)


@lru_cache(4 * MAX_FILES)
def _read(path: str, uid: int, written: int) -> Steps:
    """Return what a file of a user says, written at a time (ns since the epoch); {} if it is not a whole dump."""
    # a path opens no device, and waits for no pipe
    with suppress(Exception), open(path, "rb", 0, opener=lambda name, _: os.open(name, os.O_PATH | SAFE)) as place:
        about = os.fstat(place.fileno())
        if stat.S_ISREG(about.st_mode) and about.st_uid == uid and about.st_size <= MAX_BYTES:
            with Path(f"/proc/self/fd/{place.fileno()}").open("rb") as file:
                return steps(file.read(MAX_BYTES), written)
    return {}
