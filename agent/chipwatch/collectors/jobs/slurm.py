"""Finds Slurm's jobs on this machine by their cgroups, also jobs without an accelerator."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from glob import glob
from itertools import islice
from pathlib import Path
from typing import Final

from chipwatch.contract.owner import SLURM, Owner
from chipwatch.host import cgroup
from chipwatch.host.job_numbers import SLUID
from chipwatch.host.owners import Owners
from chipwatch.host.procfs import read

REFRESH: Final = 60 * 10**9
"""Interval (ns) between searches for slurmd's folders, and between readings of known jobs."""
MAX_FOLDERS: Final = 64
MAX_ENTRIES: Final = 4096
"""Most entries that are read in a folder of jobs."""
MAX_TASKS: Final = 16
"""Most tasks of a job whose processes are read."""
FOLDERS: Final = "*.slice/*slurmstepd.scope", "*.slice/*.slice/*slurmstepd.scope", "slurm*/uid_*"
"""Folders with Slurm's jobs in cgroup v2 (CgroupSlice of slurm.schedmd.com/cgroup.conf.html), and in v1."""
JOB: Final = re.compile(f"job_.+|{SLUID}")
TASKS: Final = "step_*/user/task_*", "step_*/task_*", "step_*"
"""Folders with a job's processes, below the job's folder."""


class SlurmJobs:
    """Finds jobs with their owners, and the devices that the environment variables of their steps name."""

    def __init__(self, proc: Path, sys: Path, owners: Owners) -> None:
        """`proc` and `sys`: the host's /proc and /sys."""
        self._proc, self._sys, self._owners = proc, sys, owners
        self.folders: dict[str, Path] = {}
        """slurmd's folders, by their paths as in /proc/PID/cgroup; found by `find`."""
        self._due = 0
        self.devices: dict[str, set[str]] = {}
        """Path of a job's cgroup -> devices that its environment names."""

    def find(self, now: int, followed: Collection[str], room: int) -> dict[str, Owner]:
        """
        Return the owner of each job that is not `followed`, by the path of the job's cgroup as in /proc/PID/cgroup.

        `now`: monotonic ns. `room`: number of new jobs whose processes are read; further jobs wait.
        """
        is_due = now >= self._due
        if is_due:
            self._due, self.folders = now + REFRESH, self._find_folders()
        jobs_by_path: dict[str, Owner] = {}
        jobs = [*self._list()]
        for folder, path in jobs:
            name = path.rpartition("/")[2]
            plain = Owner(SLURM, name.removeprefix("job_"), cgroup=path)
            if path in followed:
                if is_due:
                    self._ask(folder / name, path)
            elif len(jobs_by_path) >= room:
                jobs_by_path[path] = plain
            elif (owner := self._ask(folder / name, path)) or not self._owners.has_host_pids:
                jobs_by_path[path] = owner or self._owners.numbered(plain, {})  # without a process, take it next time
        if is_due:
            paths = {path for _, path in jobs}
            self.devices = {path: devices for path, devices in self.devices.items() if path in paths}
        return jobs_by_path

    def _find_folders(self) -> dict[str, Path]:
        folder_by_path: dict[str, Path] = {}
        for root, point, _ in cgroup.cgroup_mounts(self._proc, self._sys):
            for folder in islice((match for name in FOLDERS for match in point.glob(name)), MAX_FOLDERS):
                folder_by_path.setdefault(f"{root.rstrip('/')}/{folder.relative_to(point)}", folder)
        return folder_by_path

    def _list(self) -> Iterator[tuple[Path, str]]:
        """Yield slurmd's folder and the cgroup path of each job."""
        for path, folder in self.folders.items():
            with suppress(OSError), os.scandir(folder) as entries:
                names = sorted(entry.name for entry in islice(entries, MAX_ENTRIES) if JOB.fullmatch(entry.name))
                yield from ((folder, f"{path}/{name}") for name in names)

    def _ask(self, folder: Path, path: str) -> Owner | None:
        """Return the owner of a job from its processes, None without one; note the devices of its steps."""
        owners: list[Owner] = []
        matches = (match for tasks in TASKS for match in sorted(glob(tasks, root_dir=folder)))  # noqa: PTH207  # in half the time of a Path
        for task in islice(matches, MAX_TASKS):
            pids = read(f"{folder}/{task}/cgroup.procs").split(maxsplit=1)
            process = self._owners.process(int(pids[0])) if pids and pids[0].isdigit() else None
            if process and process.owner.cgroup == path:
                owners.append(process.owner)
                self.devices.setdefault(path, set()).update(process.devices)
        return max(owners, key=lambda owner: (owner.partition, owner.user), default=None)
