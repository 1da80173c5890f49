"""The accounts of jobs: how the device time of each was spent, in this run of the agent and in earlier runs."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from chipwatch.contract.owner import GroupUse, Owner
from chipwatch.jobs.accounting import BUSY, HELD, LOST, SECOND, STALLED, STATES, UNKNOWN, UNSEEN, JobKey, added

OTHER: Final = Owner("", "other")
"""The owner of the account that all jobs beyond the limit share."""
KEPT: Final = 24 * 3600 * 1_000_000_000
"""Time (ns) for which the account of a job without a device is kept: the job may come back."""
MOST_BYTES: Final = 1 << 20
"""Most bytes of the saved state."""
LATEST: Final = 2**62
"""A time (ns) beyond any clock: 146 years after 1970."""
ENDED_AFTER: Final = 60 * 1_000_000_000
"""Time (ns) without a device after which a job has ended, if no process and no cgroup of it is left."""
ZEROS: Final = dict.fromkeys((BUSY, STALLED, HELD, UNSEEN), 0)
"""States that a new account sends as 0: a store counts only the growth of a counter after its first value."""
IDLE: Final = frozenset((STALLED, HELD, LOST, UNKNOWN))
"""The states without a kernel."""
STATE, CAUSE, ENERGY = "state ", "cause ", "energy "
"""Prefixes of keys of `Account.sums`: a state or a cause follows."""
MEASURED, EFFECTIVE = "measured", "effective"
"""Keys of `Account.sums`: time with a known efficiency, and the time that its work would take at the devices' peak."""
JOULE: Final = 1_000_000
"""Microjoules."""
Time = Annotated[int, msgspec.Meta(ge=0, le=LATEST)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class Hold(NamedTuple):
    """A job on a device when the agent stopped (ns since the epoch)."""

    last: Time
    """Time of the last reading of the device."""
    ran: Time | None = None
    """Time of the last kernel, as in `Holding`."""


class Account(msgspec.Struct):
    """The account of one job: sums over its devices. Times are in ns, energies in microjoules."""

    owner: Owner
    since: Time
    """Start of the job's oldest process or cgroup (ns since the epoch)."""
    seen: Time
    """Time at which the job last held a device (ns since the epoch)."""
    sums: dict[str, Time] = {}
    """
    Device time by state and, without a kernel, by cause; energy by state; MEASURED and EFFECTIVE.

    These counters continue after a restart of the agent.
    """
    starts: dict[str, Time] = {}
    """Key of `sums` -> start time of that counter (ns since the epoch)."""
    earlier: dict[str, Time] = {}
    """Sums before a boot or under another agent; they are in the job's sums, not in its counters."""
    memory: Amount = 0.0
    """Most bytes of one device's memory that the job used."""
    held: dict[str, Hold] = {}
    """Devices that the job held when the agent stopped; each is removed when it is read again."""
    end_unseen: Time = 0
    """Time (ns) after `seen` in which the job may still have held a device: the agent did not run then."""
    recorded: Time = 0
    """The value of `seen` in the last record of the job's end; 0 if there is none."""
    cgroup: dict[str, Amount] = {}
    """Usage of the job's cgroup: CPU seconds, the CPUs that it may use, and most bytes of memory."""

    def charge(
        self, states: Mapping[str, int], slices: float, cause: str, at: int,
        *, power: float = 0.0, percent: float | None = None,
    ) -> None:  # fmt: skip
        """
        Add time (ns) by state on a device that is idle for `cause`; `at`: start time of new counters.

        `power`: watts; `percent`: its efficiency, None if unknown.
        """
        for state, time in states.items() if self.sums else {**ZEROS, **states}.items():
            spent = round(time * slices)
            amounts = {STATE + state: spent, ENERGY + state: round(time * power / 1000)}  # W x ns are nanojoules
            if spent and state in IDLE:
                amounts[CAUSE + cause] = spent
            if percent is not None:
                amounts |= {MEASURED: spent, EFFECTIVE: round(spent * percent / 100)}
            for key, amount in amounts.items():
                self.starts.setdefault(key, at)
                self.sums[key] = self.sums.get(key, 0) + amount


class SavedLedger(msgspec.Struct):
    """The ledger as the state folder keeps it."""

    at: Time
    """Time of the last tick (ns since the epoch)."""
    accounts: list[Account]
    offset: int | None = None
    """Nanoseconds to add to the clock of readings, which starts at a boot, for time since the epoch."""
    price: float | None = None
    """Dollars per hour of one accelerator."""


class Clocks:
    """Converts between the clock of readings and time since the epoch (ns), for this run and the one before."""

    def __init__(self) -> None:
        self.ticked = self.offset = 0
        """Time of the last tick; nanoseconds to add to the clock of readings for time since the epoch."""
        self.stopped: int | None = None
        """Time of the last tick of an earlier run; None once devices were read."""
        self.earlier: int | None = None
        """The offset in that run; None if the machine was booted since."""

    def begin(self, at: int, interval: int) -> None:
        """Start at the first tick: counters begin where the earlier run stopped, but at most one interval ago."""
        if not self.ticked:
            self.ticked = at if self.stopped is None else min(at, max(self.stopped, at - interval))

    def moment_of(self, then: int, at: int, moment: int) -> int:
        """Convert `then`, a time of the earlier run, to the clock of readings; `moment` is `at` on that clock."""
        return min(moment - (at - then) if self.earlier is None else then - self.earlier, moment - 1)


class JobLedger:
    """
    The accounts of at most `most` jobs that hold devices, and of as many that no longer do; the rest share one.

    `price` is dollars per hour of one accelerator.
    """

    def __init__(self, most: int, price: float | None = None) -> None:
        self._most, self.price, self.clocks = most, price, Clocks()
        self.accounts: dict[JobKey, Account] = {}
        self._live: set[JobKey] = set()
        self.has_held = False
        """True while an account has devices of an earlier run that were not read yet."""
        self.charged = 0
        """Time (ns) that was charged in this run."""
        self._sent: dict[JobKey, Account] = {}
        """Accounts as an earlier run last sent them; each is removed once this run has sent it."""

    def account(self, owner: Owner, at: int) -> Account:
        """Return the account of a job that holds a device at `at`; the account of OTHER if there are too many jobs."""
        key = owner.key
        if key not in self._live:
            if len(self._live - {OTHER.key}) >= self._most:
                owner, key = OTHER, OTHER.key
            self._live.add(key)
        account, since = self.accounts.get(key), owner.since or at
        if account is None or (owner.user and not account.owner.user):  # a mapping file names only the job
            named = owner._replace(cgroup="") if owner.cgroup else owner  # the next run finds the cgroup again
            account = account or self.accounts.setdefault(key, Account(named, since, at))
            account.owner = named
        account.seen, account.since = at, min(account.since, since)
        return account

    def note(self, use: GroupUse) -> None:
        """Store the usage of a job's cgroup in its account."""
        if account := self.accounts.get(use.owner.key):
            memory = max(account.cgroup.get("host_memory_max", 0), use.memory_max or 0)
            now = {"cpu": use.cpu, "cpus": use.cores, "host_memory_max": memory or None}
            account.cgroup |= {word: figure for word, figure in now.items() if figure is not None}

    def cost(self, seconds: float) -> float | None:
        """Return the price (dollars) of accelerators for a time; None without a price per hour."""
        return None if self.price is None else seconds / 3600 * self.price

    def row(self, account: Account) -> dict[str, Any]:
        """Return a job's account since the job began, for JSON: answers and records."""
        owner, whole = account.owner, added((account.earlier, account.sums))
        seconds = {state: whole.get(STATE + state, 0) / SECOND for state in STATES}
        joules = {state: energy / JOULE for state, energy in sums_of(whole, ENERGY).items()}
        return {
            "job": owner.job, "kind": owner.kind, "user": owner.user, "partition": owner.partition,
            "namespace": owner.namespace, "since": account.since / SECOND, "until": account.seen / SECOND,
            "end_unseen": account.end_unseen / SECOND, "seconds": seconds,
            "idle": {cause: time / SECOND for cause, time in sums_of(whole, CAUSE).items()},
            "memory_max": account.memory, "energy": sum(joules.values()), "joules": joules,
            "efficiency": 100 * whole[EFFECTIVE] / whole[MEASURED] if whole.get(MEASURED) else None,
            "cost": self.cost(sum(seconds.values())),
            **{word: account.cgroup.get(word) for word in ("cpu", "cpus", "host_memory_max")},
        }  # fmt: skip

    def end(self, holding: set[JobKey], at: int) -> list[Account]:
        """Return the accounts of jobs that no longer hold a device; forget the oldest that ended before."""
        over = self._live - (holding if len(holding) <= self._most else holding | {OTHER.key})
        self._live -= over
        for account in self.accounts.values():
            account.seen = min(account.seen, at)  # it lies in the future if the clock was ahead
        past = sorted((account.seen, key) for key, account in self.accounts.items() if key not in self._live | over)
        for n, (seen, key) in enumerate(past):
            if seen < at - KEPT or n < len(past) - self._most:
                del self.accounts[key]
                self._sent.pop(key, None)
        return [self.accounts[key] for key in over]

    def unrecorded(self) -> list[Account]:
        """Return the accounts of jobs without a device whose end has no record yet."""
        past = (account for key, account in self.accounts.items() if key not in self._live and key != OTHER.key)
        unrecorded = (account for account in past if account.recorded != account.seen)
        return [account for account in unrecorded if any((*account.sums.values(), *account.earlier.values()))]

    def ended(self, alive: Container[JobKey], at: int) -> list[Account]:
        """Return the accounts of ended jobs to record now: after a minute, or at once if too many wait."""
        waiting = self.unrecorded()
        before = at - (ENDED_AFTER if 2 * len(waiting) < self._most else 0)
        return [account for account in waiting if account.owner.key not in alive and account.seen <= before]

    def holding(self) -> list[Account]:
        """Return the accounts of jobs that hold a device."""
        return [self.accounts[key] for key in sorted(self._live)]

    def holds(self, place: str) -> list[tuple[Owner, Hold]]:
        """Return the jobs that held a device when the agent stopped; none once the device was read."""
        accounts = self.accounts.values() if self.has_held else ()
        return [(account.owner, account.held[place]) for account in accounts if place in account.held]

    def resume(self, place: str) -> list[tuple[Owner, Hold]]:
        """Return the jobs that held a device when the agent stopped, and forget them."""
        holds = self.holds(place)
        for account in self.accounts.values() if holds else ():
            account.held.pop(place, None)
        self.has_held = any(account.held for account in self.accounts.values())
        return holds

    def begin(self, at: int) -> None:
        """Start at the first reading of this run: jobs that held a device may have ended at any time since the stop."""
        for account in self.accounts.values():
            if account.held:
                account.end_unseen = max(0, at - account.seen)

    def open_at_zero(self, account: Account, at: int) -> None:
        """Have the account of a resumed job sent as zeros first, so that a store sees its counters grow."""
        self._sent[account.owner.key] = zeros = Account(account.owner, account.since, account.seen)
        zeros.charge({}, 1.0, "", at)

    def to_send(self, account: Account) -> Account:
        """Return the values to send: once those that the earlier run sent last, then present ones; they only grow."""
        return self._sent.pop(account.owner.key, account)

    def saved(self, at: int, holds: Mapping[JobKey, Mapping[str, Hold]]) -> bytes:
        """
        Return the ledger as JSON, a `SavedLedger`, with the devices that each job holds.

        If it is longer than MOST_BYTES, the jobs that held a device least recently are left out.
        """
        latest = sorted(self.accounts.items(), key=lambda item: item[1].seen, reverse=True)
        accounts = [msgspec.structs.replace(each, held={**each.held, **holds.get(key, {})}) for key, each in latest]
        state = SavedLedger(at, accounts, self.clocks.offset or self.clocks.earlier, self.price)
        while len(saved := msgspec.json.encode(state)) > MOST_BYTES:
            accounts.pop()
        return saved

    def restore(self, saved: bytes) -> None:
        """
        Restore the accounts and clocks of an earlier run; raise ValueError if they cannot be read.

        If another agent kept the ledger while this one ran, time that both have charged counts once.
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
                self._sent[key] = msgspec.structs.replace(old, sums={**old.sums})
                continue
            account.since = min(account.since, old.since)
            both = min(account.starts.values(), default=state.at) < state.at
            account.earlier = _less(added((old.earlier, old.sums)), account.sums if both else {})
            account.recorded, account.cgroup, account.held = old.recorded, old.cgroup, old.held
            account.memory = max(account.memory, old.memory)
        if state.price != self.price:
            self.begin_again()  # the cost would fall, or jump
        self.clocks.stopped, self.clocks.earlier = state.at or None, state.offset

    def begin_again(self) -> None:
        """Start the counters that this run has not sent at zero; what they had counted stays in the jobs' sums."""
        for key in self._sent:
            account = self.accounts[key]
            account.earlier = added((account.earlier, account.sums))
            account.sums, account.starts = {}, {}
        self._sent.clear()


def sums_of(sums: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Return the sums of an account with a prefix, by their words."""
    return {key.removeprefix(prefix): amount for key, amount in sums.items() if key.startswith(prefix)}


def _less(times: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {word: max(0, time - others.get(word, 0)) for word, time in times.items()}
