"""Slurm's environment variables of a job (https://slurm.schedmd.com/srun.html, output environment variables)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from agent.identity.source import Answer, Source, Word, fit

VARIABLES: Final = {"slurm_job": "SLURM_JOB_ID", "slurm_rank": "SLURM_PROCID"}


class Slurm(Source):
    """The job and the rank, from the environment."""

    name = "Slurm"
    words = tuple(VARIABLES)

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return both inside a job, neither outside."""
        found: dict[str, Word] = {}
        for word, variable in VARIABLES.items():
            found |= fit({word: self._env.get(variable)}, variable)
        unset = [variable for word, variable in VARIABLES.items() if word in wanted and word not in found]
        return Answer(found, f"{', '.join(unset)} not set" if unset else "")
