"""
Records the picture and the outputs in README (`make picture`): a node of 192 CPUs and 8 H100 under invented load.

A fake driver answers for the GPUs, files for the host, and a fixed clock for the time: each run makes the same files.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from tests.doubles.nvml.driver import Loaded, build

from chipwatch.collectors.cpu import CpuCollector
from chipwatch.collectors.disk import DiskCollector
from chipwatch.collectors.memory import MemoryCollector
from chipwatch.collectors.network import NetworkCollector
from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.commands.answers import jobs_text
from chipwatch.contract.datapoint import Datapoint, Level
from chipwatch.contract.facts import DeviceFacts, DeviceProcess
from chipwatch.contract.owner import SLURM, GroupUse, JobFacts, Owner
from chipwatch.contract.plugin import Given
from chipwatch.engine.sampler import FactsReader
from chipwatch.engine.window import Window
from chipwatch.history.record_file import RecordFile
from chipwatch.jobs.device_key import device_of
from chipwatch.jobs.processor import JobsProcessor
from chipwatch.show.report.devices import device_states
from chipwatch.show.top.machine import ListedProcess, MachineState
from chipwatch.show.top.screen import Notes
from chipwatch_sinks.stdout.table import Table
from tools import charts, screens
from tools.diagram import diagram
from tools.readme import BENCHMARKS, RecordedRun, with_figures, with_log

TICKS, STEP = 450, 2
END: Final = 1_795_430_533 * 10**9
"""The time on the screen: 10:42:13 UTC."""
CPUS, GIB = 192, 2**30
DELIVERED: Final = [("cloudwatch ", "label"), ("ok ", "good"), ("sent 18,432, kept 0", "")]


class Program(NamedTuple):
    """A program of a job, its GPUs, the cores that it uses, its share of the memory (%), and its age (s)."""

    pid: int
    job: str
    user: str
    gpus: range
    cores: float
    command: str
    resident: float
    age: float

    @property
    def owner(self) -> Owner:
        """The job, as the collector `jobs` names it."""
        return Owner(SLURM, self.job, "0", self.user, cgroup=f"/slurm/job_{self.job}")


TRAINING: Final = Program(88123, "41337", "ada", range(5), 41.0, "python train.py --config 70b.yaml", 11.8, 8049)
LOADING: Final = Program(
    90411, "41352", "eve", range(5, 6), 11.9, "python finetune.py --data /mnt/nfs/images", 2.4, 4220
)
FORGOTTEN: Final = Program(
    71002, "41340", "bob", range(6, 7), 0.01, "python -m ipykernel_launcher -f kernel.json", 0.3, 51_720
)
PROGRAMS: Final = (TRAINING, LOADING, FORGOTTEN)


def utilization(n: int, tick: int) -> float:
    """Return the load of a GPU in percent: a training run, one that waits for data, a notebook, and a free one."""
    if n in TRAINING.gpus:
        saves = tick % 150 in range(141, 149)
        return 6.0 if saves else 95 + 3 * math.sin(tick / 7 + n)
    if n in LOADING.gpus:
        return 0.0 if tick % 12 > 4 else 71.0
    return 88.0 if n in FORGOTTEN.gpus and tick < 25 else 0.0


def load_gpus(driver: Loaded, tick: int) -> None:
    """Set the answers of the driver."""
    for n, gpu in enumerate(driver.gpus):
        busy, program = utilization(n, tick), next((item for item in PROGRAMS if n in item.gpus), None)
        used = 61 if n in TRAINING.gpus else 37 if n in LOADING.gpus else 24 if program else 0
        gpu["utilization"] = {"gpu": round(busy), "memory": round(busy / 3)}
        gpu["memory"]["used"] = used * GIB
        gpu["power"] = round(95_000 + busy * 6200)
        gpu["temperature"] = round(36 + busy / 3.4 + (18 if n == 2 else 0))
        gpu["field"].pop("83", None)
        gpu["field"]["75"] = 500_000_000 * tick if n == 2 else 0
        gpu["gpm"] |= {"1": busy, "5": busy * 0.65}
        gpu["processes"] = f"{program.pid}:{(used - 1) * GIB}" if program else ""
        gpu["samples"] = f"{program.pid}:{1000 + tick}:{round(busy)}" if program else ""
    driver.tell()


class Host:
    """The files of a host below `proc`."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._busy = [0.0] * CPUS
        self._bytes = {"read": 0.0, "written": 0.0, "in": 0.0, "out": 0.0}
        for folder in ("driver/nvidia", "self", "net"):
            (proc / folder).mkdir(parents=True)
        (proc / "driver/nvidia/version").touch()
        (proc / "self/mountinfo").write_text("24 1 259:1 / /scratch rw - xfs /dev/nvme0n1 rw\n")

    def load(self, tick: int) -> None:
        """Write the files of a tick."""
        saves = utilization(0, tick) < 10
        rates = {"read": 1.2e9, "written": 9e9 if saves else 2.1e8, "in": 3.1e9, "out": 0.2e9 if saves else 2.9e9}
        cores = 18.0 if saves else 53.0 + 4 * math.sin(tick / 9)
        for name, rate in rates.items():
            self._bytes[name] += rate * STEP
        rows = []
        for n in range(CPUS):
            self._busy[n] += 100 * STEP * min(1.0, max(0.02, cores / CPUS * (1.6 if n % 3 else 0.3)))
            rows.append((round(self._busy[n]), round(100 * STEP * (tick + 1) - self._busy[n])))
        sums = [sum(column) for column in zip(*rows, strict=True)]
        lines = [f"cpu  {sums[0]} 0 0 {sums[1]} 0 0 0 0"]
        lines += [f"cpu{n} {busy} 0 0 {idle} 0 0 0 0" for n, (busy, idle) in enumerate(rows)]
        total, used = 2048 * GIB >> 10, (512 * GIB >> 10) + 40_000 * tick
        sectors = {name: round(count / 512) for name, count in self._bytes.items()}
        files = {
            "stat": "\n".join([*lines, "intr 0\n"]),
            "loadavg": f"{cores:.2f} 52.80 51.10 60/3000 1\n",
            "meminfo": f"MemTotal: {total} kB\nMemFree: {total - used} kB\nMemAvailable: {total - used} kB\n",
            "diskstats": f"259 0 nvme0n1 1 0 {sectors['read']} 0 1 0 {sectors['written']} 0 0 0 0\n",
            "net/dev": f"a\nb\n eth0: {self._bytes['in']:.0f} 0 0 0 0 0 0 0 {self._bytes['out']:.0f} 0 0 0 0 0 0 0\n",
        }
        for name, text in files.items():
            (self._proc / name).write_text(text)


def jobs_at(moment: int) -> JobFacts:
    """Return a reading of the jobs at `moment` (ns): the loaders of one use all CPUs that it may use."""
    seconds = moment / 1e9
    uses = [GroupUse(each.owner, cpu=each.cores * seconds, cores=12.0 if each is LOADING else 96.0)
            for each in PROGRAMS]  # fmt: skip
    return JobFacts(moment, {each.pid: each.owner for each in PROGRAMS}, uses=uses)


def listed(processes: Iterable[DeviceProcess]) -> Iterator[ListedProcess]:
    """Yield the processes that the driver lists, with their commands."""
    programs = {each.pid: each for each in PROGRAMS}
    for found in processes:
        each = programs[found.pid]
        cpu, owner, key = 100 * each.cores / len(each.gpus), each.owner, device_of(found.dims)
        row = ListedProcess(key, each.pid, owner.user, found.memory, found.utilization, cpu, each.command, owner.job)
        yield row._replace(resident=each.resident, age=each.age)


def space(_: str) -> Any:
    """Return the space of a file system of 28 TB."""
    return SimpleNamespace(
        f_blocks=28 * 10**9, f_bfree=11 * 10**9, f_bavail=11 * 10**9, f_frsize=1000, f_files=0, f_ffree=0
    )


class Scene(NamedTuple):
    """The node after a made-up quarter of an hour."""

    machine: MachineState
    ticks: list[list[Datapoint]]
    """The points of the last ticks; what changes slowly is in one of them."""
    jobs: Mapping[str, Any]
    """The answer of the processor `jobs`."""
    run: RecordedRun
    summary: str
    log: str


def record(folder: Path, listen: Callable[[list[Datapoint], int], None] = lambda *_: None) -> Scene:
    """Return the node at END; `listen` gets the points and the time of each tick."""
    host, driver = Host(folder), Loaded(build(folder), folder, "h100", 8)
    at = END - TICKS * STEP * 10**9
    nvidia = NvidiaCollector(NvidiaCollector.Config(proc=folder))
    nvidia._clock = lambda: at
    collectors = [
        CpuCollector(CpuCollector.Config(proc=folder)),
        MemoryCollector(MemoryCollector.Config(proc=folder)),
        DiskCollector(DiskCollector.Config(("/scratch",), folder, folder), space),
        NetworkCollector(NetworkCollector.Config(proc=folder, sys=folder)),
        nvidia,
    ]
    processor, machine, window = (
        JobsProcessor(JobsProcessor.Config(dollars_per_hour=2.5, interval=STEP)),
        MachineState(),
        Window(0, born=at),
    )
    ticks: list[list[Datapoint]] = []
    run = RecordedRun(at, STEP)
    load_gpus(driver, 0)
    host.load(0)
    for collector in collectors:
        collector.open(Given())
    facts = FactsReader("nvidia", nvidia)
    facts.want()
    for tick in range(1, TICKS + 1):
        load_gpus(driver, tick)
        host.load(tick)
        at += STEP * 10**9
        points = [point for collector in collectors for point in collector.collect(at)]
        (told,) = facts.read()
        assert isinstance(told, DeviceFacts)
        devices, processes = told.devices, told.processes or ()
        points += processor.derive(points, at, (jobs_at(at), told._replace(moment=at)))
        listen(points, at)
        run.take(points, at, {"cpus": 12, "cores": LOADING.cores, "gpus": LOADING.gpus, "read": 2.1e8})
        for device in devices:
            machine.device(device_of(device.dims)).model = device.model
        holding = {device.key: device for device in device_states(processor.answer())}
        ticks = [*ticks[-2:], window.add(points, at)]
        machine.take(ticks[-1], at, listed(processes), holding)
    names = ("cpu", "memory", "disk", "network", "nvidia")
    log = run.log({name: collector.describe() for name, collector in zip(names, collectors, strict=True)})
    for collector in collectors:
        collector.close()
    summary = run.summary(LOADING.command.split(), LOADING.cores, processor)
    return Scene(machine, ticks, processor.answer(), run, summary, log)


def screen(ticks: list[list[Datapoint]]) -> str:
    """Return what `chipwatch` prints on a terminal of 100 columns."""
    table = Table(None, is_terminal=True, own=False, machine=f"node-7  {CPUS} CPUs")
    os.environ |= {"COLUMNS": "100", "LINES": "40", "TERM": "dumb"}
    shown = [[point for point in tick if point.metric.level <= Level.BASIC] for tick in ticks]
    return [table.draw([point for point in tick if not point.metric.name.startswith("job.")], []) for tick in shown][-1]


def output(*words: str) -> str:
    """Return what a command prints."""
    return subprocess.run(
        [sys.executable, "-m", "chipwatch", *words], capture_output=True, text=True, check=True
    ).stdout


def page(text: str, outputs: Mapping[str, str]) -> str:
    """Return README with these outputs below their commands."""
    for command, made in outputs.items():
        block = "\n".join(line.rstrip() for line in [f"$ {command}", *made.strip("\n").splitlines()])
        text, count = re.subn(
            rf"(?ms)^```console\n\$ {re.escape(command)}\n.*?^```$",
            lambda _, block=block: f"```console\n{block}\n```", text,
        )  # fmt: skip
        assert count == 1, command
    return text


def main(folder: str) -> None:
    """Write the outputs and pictures into `folder`, which has README and a folder docs."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    place = Path(folder)
    watched = f"chipwatch --sink cloudwatch -- {LOADING.command}"
    with tempfile.TemporaryDirectory() as temporary:
        recording = Path(temporary) / "run.chipwatch"
        header = {"chipwatch": 1, "version": "", "host": {"hostname": "node-7"}, "interval": STEP}
        file = RecordFile(recording, lambda: header)
        scene = record(
            Path(temporary), lambda points, at: file.add([p._replace(value=float(p.value)) for p in points], at)
        )
        file.close()
        pictures = screens.screens(scene.jobs, (watched, scene.summary), recording, END)
    plan = ("plan", "--sink", "cloudwatch", "--common-dims", "instance_id", "--for", "host,nvidia", "--hosts", "200")
    outputs = {
        "chipwatch --interval 2": screen(scene.ticks),
        "chipwatch jobs": jobs_text(scene.jobs),
        watched: scene.summary,
        f"chipwatch {' '.join(plan)}": output(*plan, "--region", "us-east-1"),
    }
    readme = place / "README.md"
    text = with_log(page(readme.read_text(), outputs), scene.log)
    readme.write_text(with_figures(text, BENCHMARKS.read_text()))
    notes = Notes("node-7", "2 s", [DELIVERED])
    (place / "docs/top.svg").write_text(screens.drawn(screens.top(scene.machine, notes), "top", "chipwatch top"))
    (place / "docs/diagram.svg").write_text(diagram())
    media = place / "docs/media"
    media.mkdir(exist_ok=True)
    for name, text in pictures.items():
        (media / f"{name}.svg").write_text(text)
    (media / "jobs.svg").write_text(charts.jobs(scene.jobs))
    (media / "dashboard.svg").write_text(charts.dashboard(scene.run.minutes))
    (media / "prometheus.svg").write_text(charts.prometheus(scene.run.minutes))


if __name__ == "__main__":
    main(*sys.argv[1:])
