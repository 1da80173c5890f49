"""
Reckons the requests of a fleet for docs/fleet.md: `python tools/fleet_requests.py`. It takes no network and a few seconds.

A host sends at a moment of each minute that a hash of its name decides. The worst case is a fleet that starts in one
moment: then only this hash spreads it.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections import Counter
from collections.abc import Iterable

from chipwatch.engine.build import FIRST_WAIT, FIRST_WINDOW, delivery_offset

FLUSH = 60
"""Seconds between two deliveries of a host."""
BASE, CAP = 1.0, 60.0
"""A host waits a random share of `BASE` seconds after a throttled request, doubled each time up to `CAP`."""
QUOTA = 500
"""PutMetricData requests a second of an account in a region, https://docs.aws.amazon.com/general/latest/gr/cw_region.html."""
NAMES = {
    "EC2": lambda n: f"ip-10-{n >> 16}-{n >> 8 & 255}-{n & 255}.ec2.internal",
    "Slurm": lambda n: f"gpu{n:06}",
    "Kubernetes": lambda n: f"chipwatch-{random.Random(n).getrandbits(25):05x}",
}
"""Pattern of the hosts' names."""


def busiest_second(hosts: int, name: str, period: float) -> int:
    """Return the most requests in one second of a period in which each host sends once."""
    return max(Counter(int(delivery_offset(NAMES[name](n)) * period) for n in range(hosts)).values())


def seconds_to_deliver(due: Iterable[float], requests: int, quota: int = QUOTA) -> tuple[float, int]:
    """
    Return after how many seconds the service has taken `requests` from each host, and how many it throttled.

    A host sends its next request at once after one that was taken, at most ten a second; the service takes `quota`
    in each second.
    """
    dice = random.Random(1)
    queue = [(at, n, requests, 0) for n, at in enumerate(due)]
    heapq.heapify(queue)
    taken, throttled, second, last = 0, 0, -1, 0.0
    while queue:
        at, n, left, failures = heapq.heappop(queue)
        if int(at) != second:
            second, taken = int(at), 0
        if taken >= quota:
            throttled += 1
            heapq.heappush(queue, (at + dice.uniform(0, min(CAP, BASE * 2**failures)), n, left, failures + 1))
            continue
        taken, last = taken + 1, at
        if left > 1:
            heapq.heappush(queue, (at + 0.1, n, left - 1, 0))
    return last, throttled


def main(most: int = 100_000) -> None:
    """Print the tables of fleets of `most` hosts at most."""
    out, fleets = sys.stdout.write, [hosts for hosts in (100, 10_000, 100_000) if hosts <= most]
    out(f"requests in the busiest second; on average; the quota is {QUOTA}\n")
    for hosts in fleets:
        requests = {name: busiest_second(hosts, name, FLUSH) for name in NAMES}
        out(f"  {hosts:>7,} hosts: {requests}, average {hosts / FLUSH:.1f}\n")
    out("all hosts start in one moment: seconds until the last one's first points are taken, throttled requests\n")
    for hosts in fleets:
        due = [FIRST_WINDOW + 1 + FIRST_WAIT * delivery_offset(NAMES["EC2"](n)) for n in range(hosts)]
        took, throttled = seconds_to_deliver(due, 1)
        out(f"  {hosts:>7,} hosts: {took:.0f} s, {throttled:,} throttled\n")
    out("after an outage of an hour at 96 series, six requests a host: seconds until all is delivered, throttled\n")
    for hosts in fleets[:2]:
        took, throttled = seconds_to_deliver([random.Random(n).uniform(0, CAP) for n in range(hosts)], 6)
        out(f"  {hosts:>7,} hosts: {took:.0f} s, {throttled:,} throttled\n")


if __name__ == "__main__":
    main()
