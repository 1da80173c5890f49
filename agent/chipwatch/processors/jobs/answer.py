"""Jobs and devices as JSON, for `agent jobs` and `agent top`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chipwatch.processors.jobs.accounting import SECOND, STATES
from chipwatch.processors.jobs.device import JobDevice, Place
from chipwatch.processors.jobs.ledger import Account


def of_job(account: Account, price: float | None) -> dict[str, Any]:
    """Return the charges of a job since it began; `price` is dollars an hour of one accelerator."""
    owner, seconds = account.owner, {state: account.total(state) / SECOND for state in STATES}
    return {
        "job": owner.job,
        "kind": owner.kind,
        "user": owner.user,
        "partition": owner.partition,
        "namespace": owner.namespace,
        "since": account.since / SECOND,
        "seconds": seconds,
        "memory_max": account.memory,
        "energy": account.earlier_energy + account.energy,
        "cost": None if price is None else sum(seconds.values()) / 3600 * price,
    }


def of_device(place: Place, device: JobDevice, holding: Iterable[Account]) -> dict[str, Any]:
    """Return the holders of a device, and its state."""
    owners = [account.owner for account in holding]
    idle = None if device.ran is None or device.last is None else (device.last.moment - device.ran) / SECOND
    return {
        "device": ".".join(number for _, number in place),
        "place": dict(place),
        "slices": device.slices,
        "holders": [{"kind": holder.kind, "namespace": holder.namespace, "job": holder.job} for holder in owners],
        "jobs": [*dict.fromkeys(owner.job for owner in owners)],
        "users": [*dict.fromkeys(owner.user for owner in owners if owner.user)],
        "state": device.state,
        "cause": device.cause,
        "seconds_since_kernel": idle,
    }


def by_number(item: tuple[Place, object]) -> list[tuple[str, int, str]]:
    """Return the key that sorts devices by their numbers."""
    return [(key, len(number), number) for key, number in item[0]]
