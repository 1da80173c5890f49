"""A machine of files: 192 CPUs, 64 interfaces, 100 disks, 32 EFA devices, 3,000 processes, 8 jobs and 8 GPUs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.jobs import machine, pids_of
from tests.bench.nvidia import fake_driver
from tests.bench.reading import proc_stat
from tests.doubles.sysfs import build, write

CPUS, INTERFACES, DISKS, ADAPTERS, PROCESSES, JOBS, GPUS = 192, 64, 100, 32, 3000, 8, 8
EACH = 100
"""Processes of a job."""
STAT = "{pid} (daemon) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 4 0 500 1000 25 0\n"
MEMORY = "MemTotal: 2113372160 kB\nMemFree: 1000000 kB\nMemAvailable: 1900000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
SNMP = "Tcp: ActiveOpens RetransSegs\nTcp: 1 {second}\n"


@contextmanager
def large_machine() -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the folder with proc, sys and etc, and the environment of its GPUs; its counters move each second."""

    def hold(driver: object) -> None:
        for number, gpu in enumerate(driver.gpus):  # type: ignore[attr-defined]
            gpu["processes"] = ",".join(f"{pid}:1000000000" for pid in pids_of(number, 4))
            gpu["kernels"] = "0.2/5"

    with fake_driver(GPUS, hold) as (folder, env):
        root = Path(folder)
        machine(root, JOBS, EACH)
        for pid in range(50_000, 50_000 + PROCESSES - JOBS * EACH):
            write(root / f"proc/{pid}/stat", STAT.format(pid=pid).strip())
            write(root / f"proc/{pid}/cgroup", "0::/system.slice/daemon.service")
            write(root / f"proc/{pid}/status", "Name:\tdaemon\nUid:\t0\t0\t0\t0")
        write(root / "proc/meminfo", MEMORY.strip())
        write(root / "proc/loadavg", "12.05 11.40 9.87 3/2875 123456")
        captured = build(root / "captured", "rdma_efa") / "class/infiniband"
        (adapter,) = captured.iterdir()
        files = {path.relative_to(adapter): path.read_text().strip() for path in adapter.rglob("*") if path.is_file()}
        for number in range(ADAPTERS):
            for path, text in files.items():
                write(root / f"sys/class/infiniband/rdmap{number}s0" / path, text)
        for number in range(DISKS):
            write(root / f"sys/block/nvme{number}n1/device/model", "disk")
        move(root, 0)
        ended = threading.Event()

        def go_on() -> None:
            second = 0
            while not ended.wait(1.0):
                second += 1
                move(root, second)

        mover = threading.Thread(target=go_on)
        mover.start()
        try:
            yield root, env
        finally:
            ended.set()
            mover.join()


def move(root: Path, second: int) -> None:
    """Write the counters of this second, each file at its width, so that a reader sees a whole one."""
    n = 10**12 + 1000 * second
    interfaces = "".join(f" eth{i}: {n} 1 0 0 0 0 0 0 {n} 1 0 0 0 0 0 0\n" for i in range(INTERFACES))
    disks = "".join(f" 259 {i} nvme{i}n1 {n} 0 {n} 0 {n} 0 {n} 0 0 {n} {n}\n" for i in range(DISKS))
    texts = {"stat": proc_stat(CPUS, second), "diskstats": disks.encode()}
    for of in ("net", "1/net", "self/net"):
        texts[f"{of}/dev"] = f"Inter-\n face\n{interfaces}".encode()
        texts[f"{of}/snmp"] = SNMP.format(second=n).encode()
    for name, data in texts.items():
        path = root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(data)
