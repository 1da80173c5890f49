"""Finds the owner of a process: the job, pod, container, unit or user that it belongs to."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.contract.owner import DOCKER, ECS, KINDS, KUBERNETES, SLURM, UNIT, USER, Owner
from chipwatch.host.job_numbers import JOB_ID, JOB_SLUID, SLUID, JobNumbers, mapping_folders
from chipwatch.host.process_tree import stat_of
from chipwatch.host.procfs import epoch, link, read, status_of

MAX_PROCESSES: Final = 16_384
"""Most processes that are remembered; the one whose cgroup was not read for longest is forgotten first."""
SETTLED: Final = 8
"""After this number of readings, a process is expected to stay in its cgroup, which is then read every eighth time."""
MAX_BYTES: Final = 1 << 18
"""Most bytes that are read of a process's environment."""
MAX_ENTRIES: Final = 16_384
"""Most entries of a folder that are read."""
FIRST_NAMESPACE: Final = "pid:[4026531836]"
"""The machine's initial PID namespace: PROC_PID_INIT_INO of Linux's include/linux/proc_ns.h."""
KTHREADD: Final = b"2 (kthreadd) "
"""The start of /proc/2/stat in the initial PID namespace, and in no other."""
UID: Final = r"(?P<job>[0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12})"
ID: Final = r"(?P<container>[0-9a-f]{64}|[0-9a-f]{32}-\d+)"
"""The id of a container; ECS on Fargate uses the second form."""
SLURMD: Final = r"(?:[^/]*slurmstepd\.scope|slurm[^/]*/uid_(?P<uid>\d+))"
"""The cgroup above all jobs of Slurm, in v2 and in v1."""
PBS_JOBS: Final = r"(?:(?:pbs_jobs|pbspro)\.service/job(?:id|s)/|(?:propbs|torque)/|(propbs|pbspro)\.slice/\1-)"
"""The cgroup above all jobs: of PBS, of its older hook and TORQUE, and of that hook under systemd."""
PATHS: Final = (
    (SLURM, re.compile(rf".*/{SLURMD}/(?:job_)?(?P<job>(?<=/job_)[^/]+|{SLUID}(?![^/]))(?:/step_(?P<step>[^/]+))?")),
    ("pbs", re.compile(rf".*/{PBS_JOBS}(?P<job>\d[^/]*?)(?:\.slice)?(?=/|$)")),
    ("htcondor", re.compile(r".*/(?:htcondor|condor\.service)/condor_[^/]*_(?P<job>slot\d+(_\d+)?(@[^/]*)?)(?=/|$)")),
    ("lsf", re.compile(r".*/lsf/[^/]+/job\.(?P<job>\d+)\.")),
    ("nomad", re.compile(rf".*/nomad(?:\.slice)?/(?:(?:share|reserve)(?:\.slice)?/)?{UID}(?=[./]|$)")),
    (KUBERNETES, re.compile(rf"(?=.*kubepods).*[/-]pod{UID}(?:\.slice)?(?:[/:](?:[a-z-]+[-:])?{ID})?")),
    (KUBERNETES, re.compile(rf"(?:/\.\.)+(?:/burstable|/besteffort)?/pod{UID}(?:/{ID})?")),  # as another pod sees it
    (KUBERNETES, re.compile(rf".*/(?:cri-containerd|crio)-{ID}\.scope")),  # as the agent's own pod sees it
    (ECS, re.compile(rf".*/ecs/(?:[^/]+/)?{UID}/{ID}")),
    (ECS, re.compile(rf"(?i:.*/ecstasks\.slice/ecstasks)-{UID}\.slice(?:/docker-{ID})?")),
    ("kata", re.compile(rf".*/kata_overhead/{ID}(?=/|$)")),
    (DOCKER, re.compile(rf".*/(?:(?:docker|libpod|nerdctl|podman)[/-])?{ID}(?=[./]|$)")),
    (DOCKER, re.compile(r".*/lxc(?:\.payload[./]|/)(?P<job>(?P<container>[^/]+))")),
)
"""Patterns of cgroup paths for each kind of owner; tests/fixtures/owners.json has real paths."""
SLUIDS: Final = re.compile(SLUID)
OF_USERS: Final = re.compile(r"/user@\d+\.service/")
"""Below this cgroup, a user may choose any name, so only the user is known."""
POD: Final = re.compile(r"(?P<namespace>[^_]+)_(?P<pod>[^_]+)_(?P<id>[^_]+)")
"""Name of a folder in the host's log/pods: BuildPodLogsDirectory of Kubernetes' pkg/kubelet/kuberuntime."""
LOG: Final = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log")
"""Name of a link in the host's log/containers: LogSymlink of the same package."""
PARTITION, STEP_GPUS, JOB_GPUS = "SLURM_JOB_PARTITION", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
SCRIPT_STEPS: Final = frozenset({"batch", "interactive"})
"""Steps whose JOB_GPUS is about this node; other steps inherit the value from the job's first node."""
VARIABLES: Final = frozenset({PARTITION, STEP_GPUS, JOB_GPUS, VISIBLE, JOB_ID, JOB_SLUID})
MAX_VALUE: Final = 4096
MAX_DEVICES: Final = 256
"""Most devices in one variable."""
SCHEDULED: Final = frozenset({SLURM, KUBERNETES, DOCKER})
"""Kinds of owners whose processes may have these variables."""
DEVICE: Final = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F/-]+|\d{1,4}")
DELETED: Final = re.compile(rb" \(deleted\)$", re.MULTILINE)
"""The kernel adds this to the path of a removed cgroup whose process cannot end."""
RANGE: Final = re.compile(r"(\d{1,4})-(\d{1,4})")
PARTITION_NAME: Final = re.compile(r"[\w.+-]{1,64}")
"""Names of partitions that are accepted, since a process may write anything into its environment."""
PERMISSION: Final = "run the agent as root or with CAP_SYS_PTRACE"

MAX_PASSWD: Final = 1 << 20


class UserNames:
    """Names of users from the host's etc/passwd, which is read again after a change. It asks no directory service."""

    def __init__(self, root: Path) -> None:
        """Take the host's /."""
        self._file = root / "etc/passwd"
        self._names: dict[str, str] = {}
        self._version: tuple[int, int] | None = None

    def name(self, uid: str) -> str:
        """Return the name of the user with this number, or the number if there is none."""
        try:
            status = self._file.stat()
        except OSError:
            return uid
        if (version := (status.st_ino, status.st_mtime_ns)) != self._version:
            rows = (line.split(":") for line in os.fsdecode(read(self._file, MAX_PASSWD)).splitlines())
            self._names = {row[2]: row[0].encode(errors="backslashreplace").decode() for row in rows if len(row) > 3}
            self._version = version
        return self._names.get(uid, uid)


class OwnedProcess(NamedTuple):
    """A process, with the owner that it had when it was first seen in its cgroup."""

    began: float
    """Its start in clock ticks after the boot; a later process with the same pid has another."""
    owner: Owner
    devices: frozenset[str]
    """The devices that the scheduler names in its environment."""
    cgroup: bytes
    """Content of /proc/PID/cgroup, to see whether the process was moved."""
    turn: int = 0
    """Number of the reading in which it was first seen."""


def parse(path: str) -> Owner | None:
    """Return the owner that a cgroup path names: the innermost one of the most important kind; or None."""
    path = OF_USERS.split(path, 1)[0]
    for kind, pattern in PATHS:
        if not (match := pattern.match(path)):
            continue
        words = {key: _plain(value or "") for key, value in match.groupdict().items()}
        container, job = words.get("container", ""), words.get("job", "")
        if kind == KUBERNETES:
            job = job.replace("_", "-")
        end = path.find("/", match.end("job") if job else match.end("container"))
        return Owner(
            kind,
            job or container[:12],
            step=words.get("step", ""),
            user=words.get("uid", ""),
            container=container,
            cgroup=path if end < 0 else path[:end],
        )
    *above, name = [part for part in path.split("/") if part.endswith((".service", ".scope", ".slice"))] or [""]
    if name.endswith((".service", ".scope")) and "user.slice" not in above:
        return Owner(UNIT, _plain(name), unit=_plain(name), cgroup=path[: path.rindex(name)] + name)
    return None


def slurm_job(proc: Path, pid: int) -> str:
    """Return the Slurm job in whose cgroup a process is, or ""."""
    lines = os.fsdecode(read(proc / str(pid) / "cgroup")).splitlines()
    owners = (parse(line.split(":", 2)[-1]) for line in lines)
    return next((owner.job for owner in owners if owner and owner.kind == SLURM), "")


class Owners:
    """Finds the owners of processes, and remembers them while the processes run."""

    def __init__(
        self, proc: Path, root: Path, logs: Path, sys: Path = Path("/sys"), mapping: Path | None = None
    ) -> None:
        """
        Take the host's /proc, / (for etc/passwd), /var/log (for names of pods) and /sys.

        `mapping` is the folder in which Slurm's prolog writes, if it is not one of the usual ones.
        """
        self._proc, self._logs = proc, logs
        self._known: dict[int, OwnedProcess] = {}
        """Processes by pid; the one whose cgroup was not read for longest is first."""
        self._turn = 0
        self._users = UserNames(root)
        self._names: dict[str, tuple[str, str, str]] = {}
        """Namespace, pod and container, by the pod's uid (then the container is "") or by the container's id."""
        self.numbers = JobNumbers(proc, sys, mapping_folders(root, mapping))
        self._unnamed: set[str] = set()
        """Uids and ids without a name in the log folder."""
        self.missing: dict[str, str] = {}
        """The reason for each kind of fact that is unknown."""

    def of_drivers(self, pids: Collection[int], same: Mapping[int, bytes] = {}) -> dict[int, OwnedProcess]:
        """
        Return the processes with these pids, as drivers report them; none if /proc has other pids.

        A pid in `same` belongs to the same process as at the last call; its text of /proc/PID/stat is there.
        """
        if not self.has_host_pids:
            self.missing["pids"] = (
                f"{self._proc} does not have the machine's process ids, which drivers report: share them"
                " (hostPID: true in Kubernetes, --pid=host in Docker)"
            )
            return {}
        self._turn += 1
        known = {pid: self._settled(pid, self._turn) if pid in same else None for pid in pids}
        found = ((pid, process or self.process(pid, self._turn, same.get(pid))) for pid, process in known.items())
        processes = {pid: process for pid, process in found if process}
        if len(processes) < len(pids) and not (self._proc / "1").exists():
            self.missing["processes"] = (
                f"{self._proc} hides the processes of other users (hidepid): run the agent as root"
            )
        return processes

    def process(self, pid: int, turn: int = 0, text: bytes | None = None) -> OwnedProcess | None:
        """
        Return a process with its owner, or None if it has ended.

        `turn` is the number of this reading, `text` what was read already of /proc/PID/stat.
        """
        if not (stat := stat_of(self._proc, pid, text)):
            self._known.pop(pid, None)
            return None
        if (process := self._settled(pid, turn)) and process.began == stat.began:
            return process
        process = self._known.pop(pid, None)
        cgroup = DELETED.sub(b"", read(f"{self._proc}/{pid}/cgroup"))
        if process is None or process.began != stat.began:
            process = self._read(pid, stat.began, cgroup)
        elif cgroup != process.cgroup:
            moved = self._read(pid, stat.began, cgroup)
            process = process._replace(cgroup=cgroup)
            # In cgroup v1, a process that is ending moves to the root cgroup; it still belongs to its job.
            if moved and KINDS.index(moved.owner.kind) <= KINDS.index(process.owner.kind):
                process = moved
        if process:
            self._known[pid] = process
            if len(self._known) > MAX_PROCESSES:
                del self._known[next(iter(self._known))]
        return process

    def _settled(self, pid: int, turn: int) -> OwnedProcess | None:
        """Return what is known of a process whose cgroup need not be read in this turn, else None."""
        process = self._known.get(pid)
        return process if process and turn - process.turn >= SETTLED and (turn + pid) % SETTLED else None

    @cached_property
    def has_host_pids(self) -> bool:
        """True if /proc belongs to the machine's initial PID namespace."""
        if read(self._proc / "2/stat").startswith(KTHREADD):
            return True
        # A /proc that hides the processes of others (hidepid) has no process 2.
        first = link(self._proc / "self/ns/pid") == FIRST_NAMESPACE
        return first and len(status_of(self._proc, "self", "NSpid:").split()) < 2

    def _read(self, pid: int, began: float, cgroup: bytes) -> OwnedProcess | None:
        uid = "".join(status_of(self._proc, pid, "Uid:").split()[:1])
        lines = os.fsdecode(cgroup).splitlines()
        if not uid or not lines:
            return None  # the process has ended in the meantime
        owners = filter(None, (parse(line.split(":", 2)[-1]) for line in lines))
        user = Owner(USER, self._users.name(uid))
        owner = min(owners, key=lambda candidate: KINDS.index(candidate.kind), default=user)
        owner = owner._replace(since=epoch(self._proc, began))
        variables = self._environment(self._proc / str(pid) / "environ") if owner.kind in SCHEDULED else {}
        if owner.kind == KUBERNETES:
            owner = self._named(owner)
        elif owner.kind == SLURM:
            named = PARTITION_NAME.fullmatch(variables.get(PARTITION, ""))
            owner = self.numbered(owner, variables)
            owner = owner._replace(user=self._users.name(owner.user or uid), partition=named[0] if named else "")
        elif owner.kind != ECS and (owner.kind != DOCKER or uid != "0"):  # root in a container says nothing
            owner = owner._replace(user=self._users.name(uid))
        return OwnedProcess(began, owner, _devices(owner, variables), cgroup, self._turn)

    def numbered(self, owner: Owner, variables: Mapping[str, str]) -> Owner:
        """Return the owner with its job's number in place of a SLUID, if that can be found."""
        if not SLUIDS.fullmatch(owner.job):
            return owner
        if number := self.numbers.number_of(owner.job, owner.cgroup, variables):
            return owner._replace(job=number)
        self.missing["sluid"] = (
            "jobs of Slurm are shown by SLUID: the command line of slurmstepd cannot be read; set"
            " CgroupJobIdPaths=yes in cgroup.conf, or use slurm/prolog.sh"
        )
        return owner

    def _environment(self, file: Path) -> dict[str, str]:
        """Return the variables of a process that are used here; note it if a permission is missing."""
        try:
            with file.open("rb") as opened:
                pairs = opened.read(MAX_BYTES).split(b"\0")
        except PermissionError:
            self.missing["environment"] = f"the environment of jobs' processes cannot be read: {PERMISSION}"
            return {}
        except OSError:
            return {}
        variables = (os.fsdecode(pair).partition("=") for pair in pairs)
        return {name: value[:MAX_VALUE] for name, _, value in variables if name in VARIABLES}

    def _named(self, owner: Owner) -> Owner:
        """Return the owner with the names of its pod and container, if the host's log folder has them."""
        if not {owner.job, owner.container} & (self._names.keys() | self._unnamed):
            self._names = dict(islice(self._list_names(), MAX_ENTRIES))
        namespace, pod, container = self._names.get(owner.container) or self._names.get(owner.job) or ("", "", "")
        if not pod:
            self._unnamed = {*islice(self._unnamed, MAX_ENTRIES), owner.job, owner.container}
            self.missing["pods"] = (
                f"pods are shown by uid: {self._logs}/pods does not name them; mount the host's /var/log, set `logs`"
            )
            return owner
        return owner._replace(job=pod, pod=pod, namespace=namespace, container=container or owner.container[:12])

    def _list_names(self) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Yield a uid or id, then namespace, pod and container, for each entry in the host's log folder."""
        for folder, pattern in ("pods", POD), ("containers", LOG):
            with suppress(OSError), os.scandir(self._logs / folder) as entries:
                for entry in islice(entries, MAX_ENTRIES):
                    if match := pattern.fullmatch(entry.name):
                        yield match["id"], (match["namespace"], match["pod"], match.groupdict().get("container", ""))


def _devices(owner: Owner, variables: Mapping[str, str]) -> frozenset[str]:
    """Return the devices that the scheduler gave to a process, by its environment."""
    if owner.kind != SLURM:
        listed = variables.get(VISIBLE, "")
    else:
        listed = variables.get(STEP_GPUS) or variables.get(JOB_GPUS if owner.step in SCRIPT_STEPS else "", "")
    return frozenset(device for word in listed.split(",")[:MAX_DEVICES] for device in _expanded(word))


def _expanded(word: str) -> Iterable[str]:
    """Return the devices that a word of a list names: `3`, `0-3` or a UUID; none for another word."""
    if match := RANGE.fullmatch(word):
        first, last = map(int, match.groups())
        return map(str, range(first, min(last + 1, first + MAX_DEVICES)))
    return (word,) if DEVICE.fullmatch(word) else ()


def _plain(text: str) -> str:
    """Return `text` with escapes for bytes that are not UTF-8, which a file name may have."""
    return text.encode(errors="backslashreplace").decode()
