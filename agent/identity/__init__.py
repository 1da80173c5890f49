"""Who this machine is: the words of `--common-dims`, and the sources that know them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agent.datapoint import Dimensions
from agent.identity import slurm, static

WORDS: Final = (
    "instance_id", "instance_type", "ami_id", "neuron_runtime_tag",
    "region", "availability_zone", "account_id", "autoscaling_group", "hostname",
    "ecs_cluster", "ecs_service", "ecs_task", "ecs_task_family", "ecs_container",
    "k8s_cluster", "k8s_node", "k8s_namespace", "k8s_pod", "k8s_container",
    "gcp_project", "gcp_zone", "slurm_job", "slurm_rank", "run_id",
)  # fmt: skip
"""Every word that `--common-dims` takes."""

Source = Callable[[Mapping[str, str]], Mapping[str, str]]
SOURCES: Final[Mapping[str, Source]] = {"static": static.words, "slurm": slurm.words}
"""Each gives the words that it knows from the environment; one that is not there gives none."""


class UnknownIdentity(Exception):
    """A word was asked for that nothing on this machine knows; the message says what to do."""


def resolve(words: Sequence[str], given: Mapping[str, str], env: Mapping[str, str] | None = None) -> Dimensions:
    """
    Return the dimensions `words` of this machine, overlaid by those `given`; raise UnknownIdentity.

    Nothing is ever published under a half-known identity, so one unknown word is the end.
    """
    env = os.environ if env is None else env
    known: dict[str, str] = {}
    for source in SOURCES.values():
        known |= source(env)
    known |= given
    missing = [word for word in words if word not in known]
    if missing:
        raise UnknownIdentity(
            f"--common-dims: nothing here knows {', '.join(missing)} (asked: {', '.join(SOURCES)});"
            f" give it with --dim {missing[0]}=VALUE, or leave it out"
        )
    return Dimensions({word: known[word] for word in words} | dict(given))
