"""Cost of reading the kernel's log."""

import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from tests.bench.figure import CannotMeasure, Effort, Figure

from chipwatch.collectors.kernel import KernelCollector
from chipwatch.contract.plugin import Given

LINES = 10_000
ASKED = 60.0
CHUNK = 250
"""Records between two readings: as many as the pipe holds."""


def kernel_log(effort: Effort) -> list[Figure]:
    """Read 10,000 messages, an event in each hundred; a pipe returns them one by one, as /dev/kmsg does."""
    if sys.platform != "linux":
        raise CannotMeasure("the log of Linux")
    from tests.doubles.kmsg.log import Pipe, messages, record

    events = cycle([message for kind, message in messages() if kind != "-"])
    plain = cycle(BOOT)
    values = []
    for _ in range(effort.rounds):
        lines = [next(events) if n % 100 == 0 else next(plain) for n in range(LINES)]
        records = iter([record(n, line, priority=6) for n, line in enumerate(lines)])
        pipe = Pipe()
        with tempfile.TemporaryDirectory() as folder:
            collector = KernelCollector(KernelCollector.Config(path=pipe.path, proc=Path(folder)))
            collector.open(Given())
            spent = 0.0
            while chunk := [*islice(records, CHUNK)]:
                pipe.write(*chunk)
                begun = time.thread_time()
                points = [*collector.collect(1)]
                spent += time.thread_time() - begun
            collector.close()
        pipe.close()
        if sum(point.value for point in points if point.dims) != LINES // 100:
            raise CannotMeasure("not every event was counted")
        values.append(1000 * spent)
    how = f"CPU of KernelCollector.collect for {LINES:,} records of which one in a hundred is an event, {CHUNK} a tick"
    return [Figure(f"kernel log, {LINES:,} lines", "ms", ASKED, values, how)]


BOOT = (
    "pci 0000:00:01.3: [8086:7113] type 00 class 0x068000 conventional PCI endpoint",
    "ACPI: bus type PCI registered",
    'audit: type=1400 audit(1700000000.123:4): apparmor="STATUS" operation="profile_load" profile="unconfined"',
    "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
    "EXT4-fs (nvme0n1p1): mounted filesystem 4d2b r/w with ordered data mode. Quota mode: none.",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15  Tue Jan  7 15:04:59 UTC 2025",
    "cni0: port 3(veth1b2c3d4e) entered forwarding state",
    "nvme nvme0: 16/0/0 default/read/poll queues",
)
"""Messages of a start that are not events; some begin as events do."""
