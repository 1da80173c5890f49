"""The charges of each job, in this run of the agent and in earlier runs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from chipwatch.contract.owner import GroupUse, Owner
from chipwatch.jobs.accounting import BUSY, HELD, LOST, SECOND, STALLED, STATES, UNKNOWN, UNSEEN, Key

OTHER: Final = Owner("", "other")
"""Stands for all jobs beyond the limit."""
KEPT: Final = 24 * 3600 * 1_000_000_000
"""Time (ns) for which the account of a job that holds nothing is kept: the job may return, the agent may restart."""
MOST_BYTES: Final = 1 << 20
"""Most bytes of the saved state."""
LATEST: Final = 2**62
"""A time (ns) beyond any clock: 146 years after 1970."""
ENDED_AFTER: Final = 60 * 1_000_000_000
"""Time (ns) after which a job that holds nothing has ended, if nothing of it is alive."""
ZEROS: Final = dict.fromkeys((BUSY, STALLED, HELD, UNSEEN), 0)
"""The states that an account has from the start: a store counts only what a counter gains after its first value."""
IDLE: Final = frozenset((STALLED, HELD, LOST, UNKNOWN))
"""The states without a kernel."""
CAUSE: Final = "cause "
"""Before a cause among the starts of an account."""
Time = Annotated[int, msgspec.Meta(ge=0, le=LATEST)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class Hold(NamedTuple):
    """A job on a device at the end of the agent (ns since the epoch)."""

    last: Time
    """Time of the last reading of the device."""
    ran: Time | None = None
    """Time of the last kernel, as in `Holding`."""


class Account(msgspec.Struct):
    """The charges of a job; times in ns."""

    owner: Owner
    since: Time
    """Start of its oldest process or cgroup (ns since the epoch)."""
    seen: Time
    """When it last held a device (ns since the epoch)."""
    times: dict[str, Time] = {}
    """GPU time by state; these counters go on after a restart of the agent."""
    starts: dict[str, Time] = {}
    """When each of these was zero (ns since the epoch)."""
    idle: dict[str, Time] = {}
    """GPU time without a kernel by cause."""
    energy: Amount = 0.0
    """Joules."""
    earlier: dict[str, Time] = {}
    """The same of before a boot, and of another agent; not in the counters."""
    earlier_idle: dict[str, Time] = {}
    earlier_energy: Amount = 0.0
    memory: Amount = 0.0
    """The most memory of one device that it used, in bytes."""
    held: dict[str, Hold] = {}
    """The devices that it held when the agent stopped, until they are read again."""
    end_unseen: Time = 0
    """Longest time (ns) for which it may have held a device after `seen`: the agent did not run at its end."""
    recorded: Time = 0
    """`seen` of its last record in the state folder."""
    cgroup: dict[str, Amount] = {}
    """Usage of its cgroup, as in a record: CPU seconds, the CPUs that it may use, and the most bytes of memory."""

    def charge(self, states: Mapping[str, int], slices: float, cause: str, at: int) -> None:
        """Add time by state on a device, which is idle for a cause; `at`: when a new state was zero."""
        for state, time in {**ZEROS, **states}.items() if not self.times else states.items():
            weighted = round(time * slices)
            if state not in self.times:
                self.times[state], self.starts[state] = 0, at
            self.times[state] += weighted
            if weighted and state in IDLE:
                if cause not in self.idle:
                    self.idle[cause], self.starts[CAUSE + cause] = 0, at
                self.idle[cause] += weighted

    def total(self, state: str) -> int:
        """Return the time in a state since the job began."""
        return self.times.get(state, 0) + self.earlier.get(state, 0)

    def idle_by_cause(self) -> dict[str, int]:
        """Return the time without a kernel by cause since the job began."""
        return _added(self.earlier_idle, self.idle)


class SavedLedger(msgspec.Struct):
    """Content of the file in the state folder."""

    at: Time
    """Time of the last tick (ns since the epoch)."""
    accounts: list[Account]
    offset: int | None = None
    """From the clock of readings, which goes on until a boot, to ns since the epoch."""
    price: float | None = None
    """Dollars an hour of one accelerator."""


class Clocks:
    """The clock of readings beside the time since the epoch (ns), in this run of the agent and in the one before."""

    def __init__(self) -> None:
        self.ticked = self.offset = 0
        """Time of the tick before this one; time from the clock of readings, which begins at a boot, to the epoch."""
        self.stopped: int | None = None
        """Time of the last tick of an earlier process, until devices are read."""
        self.earlier: int | None = None
        """The offset in that process, unless the machine was booted since."""

    def begin(self, at: int, interval: int) -> None:
        """Note the first tick: counters begin where the earlier process stopped, if that is not long ago."""
        if not self.ticked:
            self.ticked = at if self.stopped is None else min(at, max(self.stopped, at - interval))

    def is_astray(self, at: int, moment: int) -> bool:
        """Return whether the earlier process ran before a boot, or with a clock that was ahead."""
        return self.stopped is not None and not 0 <= at - self.stopped <= moment

    def moment_of(self, then: int, at: int, moment: int) -> int:
        """Return when a reading of the earlier process was, on the clock of a reading of `at`: before that."""
        return min(moment - (at - then) if self.earlier is None else then - self.earlier, moment - 1)


class JobLedger:
    """
    The accounts of at most `most` jobs that hold devices, and as many that no longer do; the rest share one.

    `price` is dollars an hour of one accelerator.
    """

    def __init__(self, most: int, price: float | None = None) -> None:
        self._most, self.price, self.clocks = most, price, Clocks()
        self.accounts: dict[Key, Account] = {}
        self._live: set[Key] = set()
        self.has_held = False
        """True while an account has devices that it held when the agent stopped."""
        self._past = 0
        """Time (ns) charged before this run in accounts, less that of this run in accounts that were forgotten."""
        self._sent: dict[Key, Account] = {}
        """Accounts as an earlier run sent them last, until this run sends them."""

    def account(self, owner: Owner, at: int) -> Account:
        """Return the account of a job, of OTHER if there are too many; it holds a device at `at`."""
        key = owner.key
        if key not in self._live:
            if len(self._live - {OTHER.key}) >= self._most:
                owner, key = OTHER, OTHER.key
            self._live.add(key)
        account = self.accounts.get(key) or self.accounts.setdefault(key, Account(owner, owner.since or at, at))
        account.seen, account.since = at, min(account.since, owner.since or at)
        if owner.user and not account.owner.user:  # a mapping file names only the job
            account.owner = owner
        return account

    def note(self, use: GroupUse) -> None:
        """Take what a job's cgroup used."""
        if account := self.accounts.get(use.owner.key):
            memory = max(account.cgroup.get("host_memory_max", 0), use.memory_max or 0)
            now = {"cpu": use.cpu, "cpus": use.cores, "host_memory_max": memory or None}
            account.cgroup |= {word: figure for word, figure in now.items() if figure is not None}

    def cost(self, seconds: float) -> float | None:
        """Return the price of accelerators for a time."""
        return None if self.price is None else seconds / 3600 * self.price

    def row(self, account: Account) -> dict[str, Any]:
        """Return the charges of a job since it began, for answers and records."""
        owner, seconds = account.owner, {state: account.total(state) / SECOND for state in STATES}
        return {
            "job": owner.job, "kind": owner.kind, "user": owner.user, "partition": owner.partition,
            "namespace": owner.namespace, "since": account.since / SECOND, "until": account.seen / SECOND,
            "end_unseen": account.end_unseen / SECOND, "seconds": seconds,
            "idle": {cause: time / SECOND for cause, time in account.idle_by_cause().items()},
            "memory_max": account.memory, "energy": account.earlier_energy + account.energy,
            "cost": self.cost(sum(seconds.values())),
            **{word: account.cgroup.get(word) for word in ("cpu", "cpus", "host_memory_max")},
        }  # fmt: skip

    def end(self, holding: Iterable[Key], at: int) -> list[Account]:
        """Return the accounts whose jobs hold nothing any more; forget the oldest of those that ended before."""
        holding = {*holding}
        over = self._live - (holding if len(holding) <= self._most else holding | {OTHER.key})
        self._live -= over
        for account in self.accounts.values():
            account.seen = min(account.seen, at)  # the clock was ahead
        past = sorted((account.seen, key) for key, account in self.accounts.items() if key not in self._live | over)
        for n, (seen, key) in enumerate(past):
            if seen < at - KEPT or n < len(past) - self._most:
                self._past -= sum(self.accounts.pop(key).times.values())
                self._sent.pop(key, None)
        return [self.accounts[key] for key in over]

    def unrecorded(self) -> list[Account]:
        """Return the accounts of jobs that hold nothing and have no record of their end yet."""
        past = (account for key, account in self.accounts.items() if key not in self._live and key != OTHER.key)
        unrecorded = (account for account in past if account.recorded != account.seen)
        return [account for account in unrecorded if any((*account.times.values(), *account.earlier.values()))]

    def ended(self, alive: Container[Key], at: int) -> list[Account]:
        """Return the accounts whose record is due; at once where so many wait that some would be forgotten."""
        waiting = self.unrecorded()
        before = at - (ENDED_AFTER if 2 * len(waiting) < self._most else 0)
        return [account for account in waiting if account.owner.key not in alive and account.seen <= before]

    def holding(self) -> list[Account]:
        """Return the accounts of jobs that hold a device."""
        return [self.accounts[key] for key in sorted(self._live)]

    def holds(self, place: str) -> list[tuple[Owner, Hold]]:
        """Return the jobs that held a device when the agent stopped, until it is read."""
        accounts = self.accounts.values() if self.has_held else ()
        return [(account.owner, account.held[place]) for account in accounts if place in account.held]

    def resume(self, place: str) -> list[tuple[Owner, Hold]]:
        """Return, once, the jobs that held a device when the agent stopped."""
        holds = self.holds(place)
        for account in self.accounts.values() if holds else ():
            account.held.pop(place, None)
        self.has_held = any(account.held for account in self.accounts.values())
        return holds

    @property
    def charged(self) -> int:
        """Time (ns) charged in this run."""
        return sum(sum(account.times.values()) for account in self.accounts.values()) - self._past

    def begin(self, at: int) -> None:
        """Note the first reading of this run: jobs that held a device before it may have ended at any time since."""
        for account in self.accounts.values():
            if account.held:
                account.end_unseen = max(0, at - account.seen)

    def open_at_zero(self, account: Account, at: int) -> None:
        """Send the values from before the first charge of an account first, with their start."""
        starts = dict.fromkeys(ZEROS, at)
        self._sent[account.owner.key] = Account(account.owner, account.since, account.seen, {**ZEROS}, starts)

    def to_send(self, account: Account) -> Account:
        """Return the account as it is to be sent: at first as the earlier run sent it last, so that it only grows."""
        return self._sent.pop(account.owner.key, account)

    def saved(self, at: int, holds: Mapping[Key, Mapping[str, Hold]]) -> bytes:
        """
        Return the accounts as JSON; `holds` by device, the rest as in `SavedLedger`.

        If the result is too long, the jobs that held a device least recently are left out.
        """
        accounts = []
        for account in sorted(self.accounts.values(), key=lambda account: account.seen, reverse=True):
            owner = account.owner._replace(cgroup="")  # the next run finds it again
            held = {**account.held, **holds.get(account.owner.key, {})}
            accounts.append(msgspec.structs.replace(account, owner=owner, held=held))
        state = SavedLedger(at, accounts, self.clocks.offset or self.clocks.earlier, self.price)
        while len(saved := msgspec.json.encode(state)) > MOST_BYTES:
            accounts.pop()
        return saved

    def restore(self, saved: bytes) -> None:
        """
        Restore the accounts and clocks of an earlier run; raise ValueError.

        Where another agent kept them while this one ran, what both have charged counts once.
        """
        try:
            state = msgspec.json.decode(saved[: MOST_BYTES + 1], type=SavedLedger)
        except (msgspec.MsgspecError, RecursionError) as problem:
            raise ValueError(f"the ledger of jobs cannot be read: {problem}") from None
        for old in state.accounts[: 2 * self._most]:
            key = old.owner.key
            self.has_held |= bool(old.held)
            if (account := self.accounts.get(key)) is None:
                self.accounts[key] = old
                self._sent[key] = msgspec.structs.replace(old, times={**old.times}, idle={**old.idle})
                self._past += sum(old.times.values())
                continue
            account.since = min(account.since, old.since)
            both = min(account.starts.values(), default=state.at) < state.at
            account.earlier = _less(_added(old.earlier, old.times), account.times if both else {})
            account.earlier_idle = _less(old.idle_by_cause(), account.idle if both else {})
            account.earlier_energy = max(0.0, old.earlier_energy + old.energy - account.energy * both)
            account.recorded, account.cgroup, account.held = old.recorded, old.cgroup, old.held
            account.memory = max(account.memory, old.memory)
        if state.price != self.price:
            self.begin_again()  # the cost would fall, or jump
        self.clocks.stopped, self.clocks.earlier = state.at or None, state.offset

    def begin_again(self) -> None:
        """Let the counters that this run has not sent begin at zero; what they counted stays in the sums of jobs."""
        for key in self._sent:
            account = self.accounts[key]
            self._past -= sum(account.times.values())
            account.earlier = _added(account.earlier, account.times)
            account.earlier_idle, account.idle = account.idle_by_cause(), {}
            account.earlier_energy, account.energy = account.earlier_energy + account.energy, 0.0
            account.times, account.starts = {}, {}
        self._sent.clear()


def _added(times: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {word: times.get(word, 0) + others.get(word, 0) for word in {**times, **others}}


def _less(times: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {word: max(0, time - others.get(word, 0)) for word, time in times.items()}
