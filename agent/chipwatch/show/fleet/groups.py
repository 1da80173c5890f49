"""Groups of nodes by a label, a job, a user or a verdict: a line with the sums and the worst node of each."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from chipwatch.contract.errors import ConfigError
from chipwatch.show.fleet.node import FleetNode, totals
from chipwatch.show.top.machine import mean_of

Labels = Mapping[str, Sequence[str]]
"""Node -> the values of its label."""
OWN: Final[Mapping[str, Callable[[FleetNode], Sequence[str]]]] = {
    "job": attrgetter("jobs"), "user": attrgetter("users"), "verdict": lambda node: [node.word or "answer"],
}  # fmt: skip
"""Word of --by that does not name a label -> a function for the groups of a node."""
FOLDED: Final = 60
"""Most nodes whose groups are unfolded at first."""


def label_of(by: str) -> str:
    """Return the label that a word of --by names; "" if it names none. Raise ConfigError."""
    if by and not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", by):
        raise ConfigError(f"--by {by}: expected job, user, verdict, or the name of a label, such as rack")
    return "" if by in OWN else by


def groups_of(node: FleetNode, by: str, labels: Labels) -> Sequence[str]:
    """Return the groups of a node; without a label, the number behind its name in the node's: rack7n01 is in rack 7."""
    words = OWN[by](node) if by in OWN else labels.get(node.node) or re.findall(rf"{by}[-_]?(\d+)", node.node)[:1]
    return words or ["-"]


def grouped(nodes: Sequence[FleetNode], by: str, labels: Labels) -> dict[str, tuple[FleetNode, list[FleetNode]]]:
    """Return group -> its line and its nodes, from nodes with the worst one first. A node may be in several groups."""
    members = defaultdict[str, list[FleetNode]](list)
    for node in nodes if by else ():
        for word in groups_of(node, by, labels):
            members[word].append(node)
    groups = {word: (_sum(f"{word}:", each), each) for word, each in members.items()}
    return dict(sorted(groups.items(), key=lambda item: item[1][0].place))


def _sum(name: str, nodes: Sequence[FleetNode]) -> FleetNode:
    """Return the line about a group, from its nodes with the worst one first. An unknown figure counts in no sum."""
    sums, worst = totals(nodes), nodes[0]
    fault = worst.error or worst.reason or (worst.delivery if worst.delivery != "ok" else "")
    many = f"{sums['nodes'][worst.word]} {worst.word}, " if worst.word else ""
    busy, power = ([it for node in nodes if (it := getattr(node, key)) is not None] for key in ("busy", "power"))
    loads = [(node.utilization * node.gpus, node.gpus) for node in nodes if node.utilization is not None and node.gpus]
    return FleetNode(
        name, verdict=worst.word or None, reason=f"{many}{worst.node}: {fault}" if fault else "",
        gpus=sums["gpus"], lost=sums["lost"], idle=dict(sums["idle"]),
        busy=round(sum(busy), 1) if busy else None,
        utilization=sum(load for load, _ in loads) / sum(gpus for _, gpus in loads) if loads else None,
        power=sum(power) if power else None, cpu=mean_of(node.cpu for node in nodes),
    )  # fmt: skip
