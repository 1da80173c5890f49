"""Situations of a machine, and what each caller of `chipwatch verdict` gets for them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chipwatch.collectors.kernel import kind_of
from chipwatch.host.xid import action_of
from chipwatch.jobs.verdict import expect
from chipwatch.jobs.verdict.callers import CALLERS, DEGRADED, FIT, NOT_FIT, UNKNOWN, code_of, code_of_failure
from chipwatch.jobs.verdict.judge import Verdict, judge
from chipwatch.jobs.verdict.rules import Seen

TABLE = Path(__file__).with_name("situations.txt")
AT = 1_800_000_000 * 10**9
NOWHERE = Path("/nonexistent")


def collector(name: str, metric: str, state: str = "ok", error: str | None = None, **more: bool) -> dict[str, Any]:
    """Return the state of a collector, as History tells it."""
    return {name: {"state": state, "error": error, "metrics": [metric], **more}}


def gpus(many: int, *, lost: Sequence[int] = ()) -> list[Seen]:
    return [Seen("gpu.state", {"gpu": str(n)}, n not in lost) for n in range(many)]


def ports(many: int, *, rate: float = 400, slow: int = 0, down: int = 0) -> list[Seen]:
    dims = [{"device": f"mlx5_{n}", "port": "1"} for n in range(many)]
    states = [Seen("rdma.state", one, n >= down) for n, one in enumerate(dims)]
    return states + [Seen("rdma.rate", one, rate / 2 if n < slow else rate) for n, one in enumerate(dims)]


def without(series: Sequence[Seen], *metrics: str, device: str = "mlx5_3") -> list[Seen]:
    """Return the series but these of one device."""
    return [one for one in series if not (one.metric in metrics and one.dims["device"] == device)]


def logged(line: str) -> list[Seen]:
    """Return what a message of the last hour in the kernel's log makes, if it is counted."""
    kind = kind_of(line.encode())
    return [Seen("kernel.events", {"kind": kind}, 1, None, AT, line)] if kind else []


def log_xid(code: int) -> list[Seen]:
    return logged(f"NVRM: Xid (PCI:0000:05:00): {code}, pid='<unknown>', name=<unknown>, a text")


def xid(code: int, rose: float | None = 1) -> list[Seen]:
    dims = {"gpu": "3", "xid": str(code), "action": action_of(code)}
    return [*gpus(8), Seen("gpu.xid", dims, 1, rose, AT if rose else None)]


def fault(name: str) -> list[Seen]:
    return [*gpus(8), Seen("gpu.fault", {"gpu": "3", "fault": name}, 1)]


def rose(metric: str, by: float | None = 1, **dims: str) -> list[Seen]:
    return [Seen(metric, dims, 9, by)]


def now(metric: str, value: float, **dims: str) -> list[Seen]:
    return [Seen(metric, dims, value)]


NVIDIA, KERNEL = collector("nvidia", "gpu.state"), collector("kernel", "kernel.events")
RDMA, STORAGE = collector("rdma", "rdma.state"), collector("storage", "disk.nvme.state")
WELL = {**NVIDIA, **KERNEL, **RDMA, **STORAGE}
HANGS = collector("nvidia", "gpu.state", "failing", "no answer: a driver or a file server may hang")
SILENT = {**NVIDIA, "nvidia": {**NVIDIA["nvidia"], "silent": [({"gpu": "3"}, "the driver answers no query")]}}
REFUSES = {"rdma": {**RDMA["rdma"], "silent": [({"device": "mlx5_3", "port": "1"}, "its state cannot be read")]}}
UNREAD = {"storage": {**STORAGE["storage"], "silent": [({"device": "nvme3"}, "its state cannot be read")]}}
PARTLY = collector("neuron", "neuron.core.utilization", "ok", "device 3: no answer")
UNLOADED = collector("nvidia", "gpu.state", "absent", "NVML: Driver Not Loaded (NVML 9)", is_silent=True)
NONE = collector("nvidia", "gpu.state", "absent", "NVML lists no GPU", is_counted=True)
APART = collector("nvidia", "gpu.state", "absent", "no NVIDIA driver")
STOPPED = {"state": "failing", "error": "the agent has read nothing for minutes"}
DENIED = collector("kernel", "kernel.events", "absent", "/dev/kmsg: Operation not permitted")
NVME = "nvme nvme5: I/O 494 QID 4 timeout, aborting"


class Situation(NamedTuple):
    """Something that happens to a machine; `word` is the verdict that a person would give."""

    name: str
    word: str
    series: Sequence[Seen]
    collectors: dict[str, Any] = WELL
    expected: str = ""


SITUATIONS = [
    Situation("all is well, as expected", FIT, [*gpus(8), *ports(8)], expected="gpus=8,rdma=8x400"),
    Situation("7 GPUs of 8", NOT_FIT, gpus(7), expected="gpus=8"),
    Situation("no GPU of 8, counted by the driver", NOT_FIT, [], {**WELL, **NONE}, "gpus=8"),
    Situation("no GPU of 8, no driver to ask", UNKNOWN, [], {**WELL, **APART}, "gpus=8"),
    Situation("no GPU, none expected", FIT, [], {**WELL, **NONE}),
    Situation("a lost GPU", NOT_FIT, gpus(8, lost=[3])),
    Situation("a lost GPU that was expected", NOT_FIT, gpus(8, lost=[3]), expected="gpus=8"),
    Situation("the driver hangs", UNKNOWN, [], {**WELL, **HANGS}),
    Situation("the driver hangs, 8 GPUs expected", UNKNOWN, gpus(8), {**WELL, **HANGS}, "gpus=8"),
    Situation("the driver hangs beside a degraded disk", UNKNOWN, logged(NVME), {**WELL, **HANGS}),
    Situation("the driver hangs beside a narrow link", UNKNOWN, now("pcie.links.degraded", 1), {**WELL, **HANGS}),
    Situation("the driver hangs beside a GPU that fell off", NOT_FIT, log_xid(79), {**WELL, **HANGS}),
    Situation("the driver hangs beside a missing port", NOT_FIT, ports(7), {**WELL, **HANGS}, "rdma=8"),
    Situation("nothing was read yet", UNKNOWN, [], {}),
    Situation("the agent has stopped reading", UNKNOWN, gpus(8), {"nvidia": {**NVIDIA["nvidia"], **STOPPED}}),
    Situation("the kernel's log may not be read", FIT, gpus(8), {**WELL, **DENIED}),
    Situation("the log may not be read beside a slow port", DEGRADED, ports(8, slow=1), {**WELL, **DENIED}, "rdma=8x400"),
    *(Situation(f"Xid {code} from the driver", word, xid(code)) for code, word in (
        (79, NOT_FIT), (151, NOT_FIT), (64, NOT_FIT), (95, NOT_FIT), (119, NOT_FIT), (54, NOT_FIT), (48, DEGRADED),
        (74, DEGRADED), (149, DEGRADED), (78, DEGRADED), (45, FIT), (13, FIT), (31, FIT), (63, FIT), (94, FIT),
    )),
    Situation("Xid 79 from the driver, hours ago", FIT, xid(79, 0)),
    *(Situation(f"Xid {code} in the log alone", word, log_xid(code)) for code, word in (
        (79, NOT_FIT), (64, NOT_FIT), (95, NOT_FIT), (119, NOT_FIT), (109, NOT_FIT), (140, NOT_FIT), (62, NOT_FIT),
        (120, NOT_FIT), (54, NOT_FIT), (48, DEGRADED), (74, DEGRADED), (154, DEGRADED), (45, FIT), (13, FIT), (31, FIT),
        (43, FIT), (94, FIT), (63, FIT),
    )),
    Situation("Xid 45 in the log a thousand times", FIT, [
        Seen("kernel.events", {"kind": "xid_app"}, 1000, 1000, AT), *gpus(8),
    ]),
    Situation("a program writes Xid 79 as a device's name", FIT, logged("usb 1-1: NVRM: Xid (PCI:0000:05:00): 79, x")),
    Situation("a GPU fell off, without an Xid", NOT_FIT, logged("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.")),
    Situation("a GPU does not start", NOT_FIT, logged("NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x65:1792)")),
    Situation("rows of memory failed", NOT_FIT, fault("rows_failed")),
    Situation("rows of memory pending", DEGRADED, fault("rows_pending")),
    Situation("SRAM above its threshold", NOT_FIT, fault("sram_threshold")),
    Situation("an NVLink down", NOT_FIT, fault("nvlink_down")),
    Situation("a recovery that is not known here", UNKNOWN, [*gpus(8), *now("gpu.recovery_action", 1, gpu="3", action="unknown (8)")]),
    Situation("a recovery that is not known here beside a narrow link", UNKNOWN, [
        *now("gpu.recovery_action", 1, gpu="3", action="unknown (5)"), *now("pcie.links.degraded", 1),
    ]),
    *(Situation(f"a GPU asks for {action}", NOT_FIT, [*gpus(8, lost=[3]), *now("gpu.recovery_action", 1, gpu="3", action=action)])
      for action in ("bus_reset", "system_reboot")),
    Situation("a GPU above its shutdown temperature", NOT_FIT, fault("too_hot")),
    Situation("PCIe fatal errors", DEGRADED, fault("pcie_fatal")),
    Situation("250 CRC errors of NVLinks in a second", DEGRADED, [
        Seen("gpu.link.errors", {"gpu": "3", "kind": "nvlink_crc"}, 250, 250, AT, "", 1.0),
    ]),
    Situation("no NVLink, or no bridge", DEGRADED, fault("nvlink_none")),
    Situation("the fabric failed", NOT_FIT, fault("fabric_failed")),
    Situation("heat held for minutes", DEGRADED, fault("thermal_slowdown")),
    Situation("memory errors, in this hour", NOT_FIT, rose("gpu.ecc.uncorrected", gpu="3")),
    Situation("memory errors, before anybody watched", FIT, [*gpus(8), *rose("gpu.ecc.uncorrected", None, gpu="3")]),
    Situation("an AMD GPU was reset", DEGRADED, logged("amdgpu 0000:87:00.0: amdgpu: GPU reset begin!")),
    Situation("a Neuron device fails", NOT_FIT, logged("NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR instance-id=i-0")),
    Situation("/ is read-only", NOT_FIT, now("disk.read_only", 1, path="/")),
    Situation("/scratch is read-only", DEGRADED, now("disk.read_only", 1, path="/scratch")),
    Situation("XFS has shut down", DEGRADED, logged("XFS (dm-4): Filesystem has been shut down due to log error (0x2).")),
    Situation("an NVMe drive is gone", NOT_FIT, now("disk.nvme.state", 0, device="nvme1"), expected="nvme=1"),
    Situation("the host's memory has errors", NOT_FIT, rose("memory.errors", kind="uncorrected")),
    Situation("a port is down", NOT_FIT, ports(8, down=1), expected="rdma=8x400"),
    Situation("a port is slow", DEGRADED, ports(8, slow=1), expected="rdma=8x400"),
    Situation("the state of a port cannot be read", UNKNOWN, without(ports(8), "rdma.state"), {**WELL, **REFUSES}, "rdma=8"),
    Situation("the state of a port cannot be read, none expected", FIT, without(ports(8), "rdma.state"), {**WELL, **REFUSES}),
    Situation("the state of a port cannot be read, the others suffice", FIT, without(ports(8), "rdma.state"), {**WELL, **REFUSES}, "rdma=7x400"),
    Situation("nothing of a port can be read", UNKNOWN, without(ports(8), "rdma.state", "rdma.rate"), {**WELL, **REFUSES}, "rdma=8"),
    Situation("nothing of a port can be read, two are down", NOT_FIT, without(ports(8, down=2), "rdma.state", "rdma.rate"), {**WELL, **REFUSES}, "rdma=8"),
    Situation("the rate of a port cannot be read", UNKNOWN, without(ports(8), "rdma.rate"), expected="rdma=8x400"),
    Situation("the rate of a port cannot be read, no rate expected", FIT, without(ports(8), "rdma.rate"), expected="rdma=8"),
    Situation("the rate of a port cannot be read, another is slow", UNKNOWN, without(ports(8, slow=1), "rdma.rate"), expected="rdma=8x400"),
    Situation("the state of a drive cannot be read", UNKNOWN, now("disk.nvme.state", 1, device="nvme1"), {**WELL, **UNREAD}, "nvme=2"),
    Situation("a Neuron device was not read", UNKNOWN, now("neuron.core.utilization", 1, neuron_device="0"), {**WELL, **PARTLY}, "neuron=2"),
    Situation("a GPU that answers no query", UNKNOWN, [one for one in gpus(8) if one.dims["gpu"] != "3"], {**WELL, **SILENT}),
    Situation("a GPU that answers no query, 8 expected", UNKNOWN, [one for one in gpus(8) if one.dims["gpu"] != "3"], {**WELL, **SILENT}, "gpus=8"),
    Situation("a GPU that answers no query beside a lost one", NOT_FIT, [one for one in gpus(8, lost=[5]) if one.dims["gpu"] != "3"], {**WELL, **SILENT}, "gpus=8"),
    Situation("a driver that is not loaded", UNKNOWN, [], {**WELL, **UNLOADED}),
    Situation("a driver that is not loaded, 8 GPUs expected", UNKNOWN, [], {**WELL, **UNLOADED}, "gpus=8"),
    Situation("a link went down for a moment", DEGRADED, rose("rdma.link.downed", device="mlx5_3", port="1")),
    Situation("a port paused its senders for a fifth of an hour", DEGRADED, rose("rdma.pause.time", 700, device="mlx5_3", port="1", direction="sent")),
    Situation("the fabric paused a port for a fifth of an hour", FIT, rose("rdma.pause.time", 700, device="mlx5_3", port="1", direction="received")),
    Situation("a port sent pauses until its card ended them", DEGRADED, rose("rdma.pause.storms", device="mlx5_3", port="1", kind="error")),
    Situation("the file server does not answer", DEGRADED, now("nfs.unanswered", 90, source="fs:/a")),
    Situation("a CPU is stuck", DEGRADED, logged("NMI watchdog: Watchdog detected hard LOCKUP on cpu 12")),
    Situation("a process is killed for memory", FIT, [*gpus(8), *logged("Out of memory: Killed process 1 (python3)")]),
]  # fmt: skip
MISUSES = (
    "verdict --for {} --expekt gpus=8", "verdict --for {} --expect gpu=8", "verdict --fo {}", "verdict --fro={}", "verdct --for {}",
    "--quiet verdict --for {}", "verdict --fro {}", "verdict --caller {}", "verdict {}", "verdict --for:{}",
    "verdict --for{}", "verdict --for {}=",
)  # fmt: skip
NAMELESS = ("verdict --for slrum", "verdict --fo", "verdict --fro", "verdict --fro slrum")


def judged(situation: Situation) -> Verdict:
    answer = {"series": [list(one) for one in situation.series], "collectors": situation.collectors}
    expected = expect.parse(situation.expected) if situation.expected else []
    return judge(answer, expected, NOWHERE, [], "agent")


def rows() -> Iterator[str]:
    """Yield the table: a situation, its verdict, and each caller's exit code."""
    yield "\t".join(("situation", "verdict", *CALLERS))
    for one in SITUATIONS:
        word = judged(one).word
        yield "\t".join((one.name, word, *(str(code_of(word, caller)) for caller in CALLERS)))
    for words in MISUSES:
        codes = (code_of_failure(words.format(caller).split()) for caller in CALLERS)
        yield "\t".join((words.format("CALLER"), "-", *map(str, codes)))
    for words in NAMELESS:
        yield "\t".join((words, "-", *[str(code_of_failure(words.split()))] * len(CALLERS)))
