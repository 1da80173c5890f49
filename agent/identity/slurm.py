"""What Slurm tells the processes of a job (https://slurm.schedmd.com/srun.html, output environment variables)."""

from __future__ import annotations

from collections.abc import Mapping


def words(env: Mapping[str, str]) -> dict[str, str]:
    """Return slurm_job and slurm_rank inside a job, nothing outside."""
    found = {"slurm_job": env.get("SLURM_JOB_ID", ""), "slurm_rank": env.get("SLURM_PROCID", "")}
    return {word: value for word, value in found.items() if value}
