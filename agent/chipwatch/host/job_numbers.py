"""The numbers of Slurm's jobs whose cgroup has a SLUID for its name, as Slurm 26.05 and later make them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from chipwatch.host import cgroup
from chipwatch.host.procfs import text

SLUID: Final = "s[0-9A-HJKMNP-TV-Z]{13}"
"""A job's run: print_sluid of Slurm's src/common/sluid.c, Crockford's base32."""
JOB_ID, JOB_SLUID = "SLURM_JOB_ID", "SLURM_JOB_SLUID"
TITLE: Final = re.compile(r"slurmstepd: \[([1-9]\d*)\.")
"""The command line of a step's slurmstepd: _set_job_log_prefix of Slurm's src/slurmd/slurmstepd/slurmstepd.c."""
NUMBER: Final = re.compile(r"[1-9]\d{0,18}")
MAX_DAEMONS: Final = 16
"""Processes of a job that are asked for their title."""
MAX_JOBS: Final = 16_384
"""Jobs that are remembered; the first one is forgotten first."""
FOLDERS: Final = (
    "run/slurm/dcgm-job-mapping",  # AWS ParallelCluster and SageMaker HyperPod
    "var/lib/dcgm-exporter/job-mapping",  # the default of NVIDIA's GPU operator
    "run/nvidia/dcgm-job-mapping",
    "run/dcgm_job_maps",
)
"""Mapping folders below the host's /; the first one that exists is read, after the agent's own variable."""
VARIABLE: Final = "DCGM_HPC_JOB_MAPPING_DIR"


def mapping_folders(root: Path, mapping: Path | None, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the folders in which a prolog may write; `mapping`: the only one, if given."""
    given = mapping or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    return [str(given)] if given else [str(root / folder) for folder in FOLDERS]


class JobNumbers:
    """Finds the number of a job once, so that its name stays: by slurmstepd, by the prolog, by the environment."""

    def __init__(self, proc: Path, sys: Path, folders: list[str]) -> None:
        """`proc` and `sys`: the host's /proc and /sys; `folders`: where a prolog may write."""
        self._proc, self._sys, self._folders = proc, sys, folders
        self._numbers: dict[str, str] = {}
        """By SLUID; "" if nothing names it."""
        self.sources: dict[str, None] = {}
        """Each source that named a job."""

    def find(self, sluid: str, path: str, variables: Mapping[str, str]) -> str:
        """Return the number of a job by its cgroup's path and the environment of a process, or ""."""
        if sluid not in self._numbers:
            number, source = next(self._ask(sluid, path, variables), ("", ""))
            if len(self._numbers) >= MAX_JOBS:
                del self._numbers[next(iter(self._numbers))]
            self._numbers[sluid] = number
            if source:
                self.sources[source] = None
        return self._numbers[sluid]

    def _ask(self, sluid: str, path: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield numbers and what named them; the environment is last, since the job's user can write it."""
        for pid in islice(self._daemons(path), MAX_DAEMONS):
            if match := TITLE.match(text(self._proc / pid / "cmdline")):
                yield match[1], "slurmstepd"
        for folder in self._folders:
            if NUMBER.fullmatch(number := text(Path(folder, sluid))):
                yield number, "the prolog"
        if variables.get(JOB_SLUID) == sluid and NUMBER.fullmatch(number := variables.get(JOB_ID, "")):
            yield number, "their environment"

    def _daemons(self, path: str) -> Iterator[str]:
        """Yield the pids of a job's slurmstepd; no process of the job is there: slurm.schedmd.com/cgroup_v2.html ."""
        if place := cgroup.at(self._proc, self._sys, path).places.get(""):
            for file in place.chain[0].glob("step_*/slurm/cgroup.procs"):
                yield from (pid for pid in text(file).split() if pid.isdecimal())
