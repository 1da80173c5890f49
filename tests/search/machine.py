"""A node with eight GPUs of a fake driver, and what happens to it: jobs, GPUs and interfaces that come and go."""

import shutil
import time
from pathlib import Path

from tests.doubles.nvml.driver import CannotBuild, build
from tools.nodes import GROUPS, JOBS, Node

GPUS, PRICE = 8, 2.5
"""GPUs, and dollars for an hour of one."""
GIB = 2**30
HAPPENS = ("a job ends", "a job begins", "a GPU is lost", "a GPU is back", "an interface comes", "an interface goes",
           "counters begin again", "a GPU has an Xid")  # fmt: skip
HOSTILE = 've\x1b[31m"\\th'
"""Name of an interface with what a terminal would obey."""
BYTES = 10_000
"""Bytes that an interface moves at each look."""


class Machine(Node):
    """Knows the truth about itself, which an agent must not exceed."""

    def __init__(self, folder: Path) -> None:
        """Write the files below `folder`."""
        self._moved, self.real = {"eth0": 10**12}, 0
        self.happened: set[str] = set()
        self.held: dict[int, list[list[float]]] = {}
        """Job -> the stretches of time in which it holds its GPUs: from, to (monotonic seconds)."""
        try:
            library = build(folder)
        except CannotBuild:
            library = None
        self._folder = folder
        super().__init__(folder, 0, library)
        self._write("proc/sys/kernel/random/boot_id", "a boot\n")
        for job in self._jobs:
            self.held[job.number] = [[time.monotonic(), float("inf")]]
        self._table = folder / "nvml.txt"

    def load(self) -> None:
        """Let a moment pass: what moves over the interfaces is known to a byte."""
        for name in self._moved:
            self._moved[name] += BYTES
            self.real += BYTES
        super().load()

    def _write(self, path: str, text: str) -> None:
        if path == "proc/1/net/dev":
            rows = (f" {name}: {n} {n} 0 0 0 0 0 0 {n} {n} 0 0 0 0 0 0\n" for name, n in self._moved.items())
            text = "a\nb\n" + "".join(rows)
        super()._write(path, text)

    def happen(self, what: str, n: int) -> None:
        """Let one of HAPPENS be so; `n` chooses of whom."""
        self.happened.add(what)
        job = JOBS[0][n % len(JOBS[0])]
        pid, now = job.number, time.monotonic()
        if what == "a job ends" and self.has_gpus and self.held[pid][-1][1] > now:
            shutil.rmtree(self._folder / f"proc/{pid}", ignore_errors=True)
            shutil.rmtree(self._folder / f"sys/fs/cgroup{GROUPS}/job_{pid}", ignore_errors=True)
            self._jobs = tuple(one for one in self._jobs if one is not job)
            self._tell({f"{gpu}.processes": None for gpu in job.gpus})
            self.held[pid][-1][1] = time.monotonic()
        elif what == "a job begins" and self.has_gpus and self.held[pid][-1][1] < now:
            self.held[pid].append([now, float("inf")])
            self._processes(job)
            self._jobs = (*self._jobs, job)
            self._tell({f"{gpu}.processes": f"{pid}:{job.memory * GIB}" for gpu in job.gpus})
        elif what in {"a GPU is lost", "a GPU is back"}:
            self._tell({f"{n % GPUS}.lost": "1" if what == "a GPU is lost" else None})
        elif what == "a GPU has an Xid":
            self._tell({"events": f"{n % GPUS}:{(79, 13, 48)[n % 3]}"})
        elif what == "an interface comes":
            self._moved.setdefault(("veth1", "veth2", HOSTILE)[n % 3], n * 1000)
        elif what == "an interface goes":
            self._moved.pop(("veth1", "veth2", HOSTILE)[n % 3], None)
        elif what == "counters begin again":
            self._moved["eth0"] = 0
        self.load()

    def _tell(self, changes: dict[str, str | None]) -> None:
        """Change answers of the driver; the agent's process has it read them again."""
        if self.has_gpus:
            rows = dict(line.split("=", 1) for line in self._table.read_text().splitlines())
            rows = {key: value for key, value in (rows | changes).items() if value is not None}
            new = self._table.with_suffix(".new")
            new.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
            new.replace(self._table)

    @property
    def holders(self) -> dict[str, list[str]]:
        """Return the jobs of each GPU now."""
        numbers = range(GPUS if self.has_gpus else 0)
        return {str(gpu): [str(job.number) for job in self._jobs if gpu in job.gpus] for gpu in numbers}

    @property
    def stayed(self) -> list[int]:
        """Return the jobs that held their GPUs all the time."""
        return [pid for pid, stretches in self.held.items() if len(stretches) == 1 and stretches[0][1] == float("inf")]

    @property
    def kept(self) -> set[str]:
        """Return the GPUs that one job held all the time, if none was lost."""
        kept = {str(gpu) for job in self._jobs if job.number in self.stayed for gpu in job.gpus}
        return set() if self.happened & {"a GPU is lost", "a GPU has an Xid"} else kept

    def gpus_of(self, job: str) -> int:
        """Return how many GPUs a job holds."""
        return next((len(one.gpus) for one in JOBS[0] if str(one.number) == job), 0)

    def held_seconds(self, job: str, until: float) -> float:
        """Return the GPU seconds that a job has had until a time (monotonic seconds)."""
        stretches = self.held.get(int(job), []) if job.isdigit() else []
        return self.gpus_of(job) * sum(min(end, until) - begin for begin, end in stretches)
