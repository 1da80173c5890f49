"""Finds the job numbers of Slurm for SLUIDs: since Slurm 26.05, a job's cgroup is named by a SLUID."""

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
"""The id of a run of a job, in Crockford's base32: print_sluid of Slurm's src/common/sluid.c."""
JOB_ID, JOB_SLUID = "SLURM_JOB_ID", "SLURM_JOB_SLUID"
TITLE: Final = re.compile(r"slurmstepd: \[([1-9]\d*)\.")
"""The command line of slurmstepd, which runs a step: _set_job_log_prefix of Slurm's slurmd/slurmstepd/slurmstepd.c."""
NUMBER: Final = re.compile(r"[1-9]\d{0,18}")
MAX_DAEMONS: Final = 16
"""Most processes of a job whose command line is read."""
MAX_JOBS: Final = 16_384
"""Most jobs that are remembered; the oldest is forgotten first."""
FOLDERS: Final = (
    "run/slurm/dcgm-job-mapping",  # AWS ParallelCluster and SageMaker HyperPod
    "var/lib/dcgm-exporter/job-mapping",  # the default of NVIDIA's GPU operator
    "run/nvidia/dcgm-job-mapping",
    "run/dcgm_job_maps",
)
"""Mapping folders below the host's /; the first that exists is read, unless VARIABLE names another one."""
VARIABLE: Final = "DCGM_HPC_JOB_MAPPING_DIR"


def mapping_folders(root: Path, mapping: Path | None, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the folders in which a prolog of Slurm may write; if `mapping` is set, only that."""
    given = mapping or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    return [str(given)] if given else [str(root / folder) for folder in FOLDERS]


class JobNumbers:
    """
    Finds the number of a job: from slurmstepd, from the prolog, or from the environment of a process.

    An answer is remembered, so that the job has the same name for all its life.
    """

    def __init__(self, proc: Path, sys: Path, folders: list[str]) -> None:
        """Take the host's /proc and /sys, and the folders in which a prolog may write."""
        self._proc, self._sys, self._folders = proc, sys, folders
        self._numbers: dict[str, str] = {}
        """Job numbers by SLUID; "" if no source has the number."""
        self.sources: dict[str, None] = {}
        """The sources that named a job so far, in order."""

    def number_of(self, sluid: str, path: str, variables: Mapping[str, str]) -> str:
        """Return the number of a job, or ""; take its cgroup's path, and the environment of one of its processes."""
        if sluid not in self._numbers:
            number, source = next(self._ask(sluid, path, variables), ("", ""))
            if len(self._numbers) >= MAX_JOBS:
                del self._numbers[next(iter(self._numbers))]
            self._numbers[sluid] = number
            if source:
                self.sources[source] = None
        return self._numbers[sluid]

    def _ask(self, sluid: str, path: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield numbers, each with its source; the environment comes last, since the job's user can write it."""
        for pid in islice(self._daemons(path), MAX_DAEMONS):
            if match := TITLE.match(text(self._proc / pid / "cmdline")):
                yield match[1], "slurmstepd"
        for folder in self._folders:
            if NUMBER.fullmatch(number := text(Path(folder, sluid))):
                yield number, "the prolog"
        if variables.get(JOB_SLUID) == sluid and NUMBER.fullmatch(number := variables.get(JOB_ID, "")):
            yield number, "their environment"

    def _daemons(self, path: str) -> Iterator[str]:
        """Yield the pids of a job's slurmstepd, which has a cgroup for itself (slurm.schedmd.com/cgroup_v2.html)."""
        if folder := cgroup.at(self._proc, self._sys, path).folders.get(""):
            for file in folder.chain[0].glob("step_*/slurm/cgroup.procs"):
                yield from (pid for pid in text(file).split() if pid.isdecimal())
