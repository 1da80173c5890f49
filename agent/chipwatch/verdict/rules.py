"""The table of conditions on metrics that make a machine degraded or not fit, and the functions that apply it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from chipwatch.verdict.callers import DEGRADED, NOT_FIT


class Seen(NamedTuple):
    """The last value of a series, and its rise."""

    metric: str
    dims: Mapping[str, str]
    value: float
    rose: float | None = None
    """Rise of a counter in the last hour; None: nobody watched."""
    last: int | None = None
    """Time of its last rise (ns since the epoch)."""
    text: str = ""
    """Evidence, such as a message of the kernel."""


class Reason(NamedTuple):
    """A fault: the thing, the severity, the fault in words, what to do, and the series that shows it."""

    about: str
    severity: str
    says: str
    do: str
    shown_by: Seen | None = None


class Rule(NamedTuple):
    """
    A condition on a metric. A gauge is compared as it is now, a counter by its rise in the last hour.

    `about`, `says` and `do` are templates of the dimensions, and of `value`; `only`: the words that a dimension
    may have. A reason of the metric `instead`, as severe and about the same thing, replaces this one.
    """

    area: str
    metric: str
    severity: str
    about: str
    says: str
    do: str
    only: Mapping[str, tuple[str, ...]] = {}
    limit: float = 0.0
    below: bool = False
    instead: str = ""

    def knows(self, seen: Seen) -> bool:
        """Return whether the rule is about this series."""
        return seen.metric == self.metric and all(seen.dims.get(key) in words for key, words in self.only.items())

    def reason(self, seen: Seen) -> Reason | None:
        """Return what is wrong with a series, or None."""
        if not self.knows(seen):
            return None
        value = seen.value if self.metric in GAUGES else seen.rose
        if value is None:  # where nobody watched, the time of a message shows that it is of the last hour
            value = 1.0 if seen.last else 0.0
        if not (value < self.limit if self.below else value > self.limit):
            return None
        words = defaultdict[str, Any](lambda: "?", seen.dims, value=value)
        about, says, do = (text.format_map(words) for text in (self.about, self.says, self.do))
        return Reason(about, self.severity, says, do, seen)


RESET: Final = "Drain this node, then reset the GPU or restart the machine."
SOON: Final = "Reset the GPU or restart the machine before the next long job."
REPLACE: Final = "Drain this node; run NVIDIA's field diagnostic, and replace the GPU."
LINKS: Final = "Restart the machine; have the GPU's NVLinks checked if it stays."
MANAGER: Final = "Drain this node; look at nvidia-fabricmanager, or at the partition of the fabric."
RESEAT: Final = "Restart the machine; reseat the card if it stays."
CHECK: Final = "Drain this node; check the GPU's power and its seat."
RESTART: Final = "Drain this node and restart the machine."
RECOVERY: Final = "gpu.recovery_action"
"""https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html"""
WORKFLOW: Final = "Follow the workflow of NVIDIA's Xid catalogue before the next long job."
SEE: Final = "See the message in dmesg."
DISK: Final = "Check the drive before data is lost."
FABRIC: Final = "Check the cable and the module of the port."
GPU_MEMORY, GPU_PCIE, NVLINK = "memory of GPUs", "PCIe of GPUs", "NVLinks"
GPU_FABRIC, COOLING = "NVLink fabric", "clocks of GPUs"
GPU, RDMA, KERNEL, MEMORY, PCIE = "GPUs", "RDMA ports", "kernel log", "memory", "PCIe"
FILES, NVME, NFS, LUSTRE, NEURON = "file systems", "NVMe drives", "NFS", "Lustre", "Neuron devices"


def _logged(kind: str, severity: str, says: str, do: str) -> Rule:
    """Return the rule for a kind of message in the kernel's log."""
    return Rule(KERNEL, "kernel.events", severity, "kernel", says, do, {"kind": (kind,)})


def _fault(area: str, fault: str, severity: str, says: str, do: str) -> Rule:
    """Return the rule for a fault that the driver of a GPU reports."""
    return Rule(area, "gpu.fault", severity, "gpu {gpu}", says, do, {"fault": (fault,)})


def _errors(area: str, kind: str, severity: str, says: str, do: str) -> Rule:
    """Return the rule for errors of a GPU's links."""
    return Rule(area, "gpu.link.errors", severity, "gpu {gpu}", says, do, {"kind": (kind,)})


# fmt: off
RULES: Final = (
    Rule(GPU, "gpu.xid", NOT_FIT, "gpu {gpu}", "had Xid {xid}", RESTART, {"action": ("restart_machine",)}),
    Rule(GPU, "gpu.xid", NOT_FIT, "gpu {gpu}", "had Xid {xid}", RESET, {"action": ("reset_gpu",)}),
    Rule(GPU, "gpu.xid", NOT_FIT, "gpu {gpu}", "had Xid {xid}", CHECK, {"action": ("check_hardware",)}),
    Rule(GPU, "gpu.xid", DEGRADED, "gpu {gpu}", "had Xid {xid}", WORKFLOW,
         {"action": ("see_workflow",), "xid": ("48", "74", "144", "145", "146", "147", "148", "149", "150", "154")}),
    Rule(GPU, "gpu.xid", DEGRADED, "gpu {gpu}", "had Xid {xid}", "Update the driver or the firmware.",
         {"action": ("update_software",)}),
    Rule(GPU, RECOVERY, NOT_FIT, "gpu {gpu}", "asks for a reset", RESET, {"action": ("gpu_reset",)}),
    Rule(GPU, RECOVERY, NOT_FIT, "gpu {gpu}", "asks for a reset of its PCIe bus", RESTART, {"action": ("bus_reset",)}),
    Rule(GPU, RECOVERY, NOT_FIT, "gpu {gpu}", "asks for a restart of the machine", RESTART,
         {"action": ("node_reboot", "system_reboot")}),
    Rule(GPU, RECOVERY, NOT_FIT, "gpu {gpu}", "works at reduced capacity and asks for a reset",
         "Start no new jobs; when its jobs have ended, reset the GPU.", {"action": ("drain_and_reset",)}),
    Rule(GPU, RECOVERY, DEGRADED, "gpu {gpu}", "asks to end its traffic with other GPUs",
         "Start no new jobs; end those that use several GPUs and see what the driver asks for then.",
         {"action": ("drain_p2p",)}),
    Rule(GPU, RECOVERY, DEGRADED, "gpu {gpu}", "asks for a recovery of its IMEX domain",
         "Recover the IMEX domain (nvidia-imex); a reset of the GPU does not help.",
         {"action": ("recover_imex_domain",)}),
    Rule(GPU, RECOVERY, DEGRADED, "gpu {gpu}", "asks for a recovery that is not known here: {action}",
         "Update this program; see what `nvidia-smi -q` says of the GPU."),
    Rule(GPU, "gpu.state", NOT_FIT, "gpu {gpu}", "is lost, fails most queries or needs a reset", RESET, limit=1,
         below=True, instead=RECOVERY),
    Rule(GPU, "gpu.ecc.uncorrected", NOT_FIT, "gpu {gpu}", "had memory errors that were not corrected", RESET),
    # Severities, and limits per hour, follow DCGM 4.6's health watches where it has one: failure, warning.
    _fault(GPU_MEMORY, "memory_unrepairable", NOT_FIT, "has memory that cannot be repaired", REPLACE),
    _fault(GPU_MEMORY, "rows_failed", NOT_FIT, "could not replace a faulty row of memory", REPLACE),
    _fault(GPU_MEMORY, "sram_threshold", NOT_FIT, "had more errors of its SRAM than it may", REPLACE),
    _fault(GPU_MEMORY, "rows_pending", DEGRADED, "replaces a faulty row of memory at its next reset", SOON),
    _fault(GPU_MEMORY, "repair_pending", DEGRADED, "repairs a memory channel or a TPC at its next reset", SOON),
    _fault(GPU_MEMORY, "rows_exhausted", DEGRADED, "has a bank of memory without spare rows", "Plan its replacement."),
    _fault(GPU_MEMORY, "sram_uncorrected", DEGRADED, "had SRAM errors since its reset that were not corrected", SOON),
    _fault(GPU_MEMORY, "dram_uncorrected", DEGRADED, "had memory errors since its reset that were not corrected", SOON),
    _fault(GPU_MEMORY, "ecc_off", DEGRADED, "has ECC switched off, which its maker switches on",
           "Switch it on: nvidia-smi -e 1, then reset the GPU."),
    _fault(NVLINK, "nvlink_down", NOT_FIT, "has fewer NVLinks up than its peers", f"Drain this node. {LINKS}"),
    _fault(NVLINK, "nvlink_none", DEGRADED, "has no NVLink up, which its peers have", LINKS),  # or no bridge
    _fault(NVLINK, "nvlink_bit_errors", DEGRADED, "has an NVLink with too many bit errors", LINKS),
    _errors(NVLINK, "nvlink_recovery_failed", NOT_FIT, "has an NVLink that did not recover", RESET),
    _errors(NVLINK, "nvlink_recovery", DEGRADED, "has an NVLink that had to recover", LINKS),
    _errors(NVLINK, "nvlink_replay", DEGRADED, "has an NVLink that sends again", LINKS),
    _errors(NVLINK, "nvlink_crc", DEGRADED, "has an NVLink with CRC errors", LINKS)._replace(limit=100 * 3600),
    _errors(NVLINK, "c2c", DEGRADED, "had errors on its link to the CPU", SEE),
    _fault(GPU_FABRIC, "fabric_failed", NOT_FIT, "is not registered with the NVLink fabric", MANAGER),
    _fault(GPU_FABRIC, "fabric_unhealthy", NOT_FIT, "is unhealthy in the NVLink fabric", MANAGER),
    _fault(GPU_FABRIC, "fabric_no_partition", NOT_FIT, "has no partition of the NVLink fabric", MANAGER),
    _fault(GPU_FABRIC, "fabric_starting", DEGRADED, "registers with the NVLink fabric", "Wait; restart if it stays."),
    _fault(GPU_FABRIC, "fabric_limited", DEGRADED, "has less than its share of the NVLink fabric", MANAGER),
    _fault(COOLING, "thermal_slowdown", DEGRADED, "has been slowed down by heat for minutes", "Check the cooling."),
    _fault(COOLING, "power_brake", DEGRADED, "has been slowed down by the power brake for minutes",
           "Check the machine's power supplies."),
    _fault(GPU_PCIE, "pcie_narrow", DEGRADED, "has a PCIe link narrower than both ends can", RESEAT),
    _fault(GPU_PCIE, "pcie_slow", DEGRADED, "has a PCIe link slower under load than both ends can", RESEAT),
    _errors(GPU_PCIE, "pcie_fatal", DEGRADED, "had fatal PCIe errors", SEE),
    _errors(GPU_PCIE, "pcie_nonfatal", DEGRADED, "had PCIe errors that were not corrected", SEE),
    _errors(GPU_PCIE, "pcie_replay", DEGRADED, "sends again over PCIe too often", RESEAT)._replace(limit=8 * 60),
    Rule(NEURON, "neuron.ecc.events", NOT_FIT, "neuron {neuron_device}", "had memory errors that were not corrected",
         "Stop and start the instance, which moves it to other hardware.", {"corrected": ("no",)}),
    Rule(MEMORY, "memory.errors", NOT_FIT, "memory", "had errors that were not corrected",
         "Drain this node and replace the module; see dmesg for its slot.", {"kind": ("uncorrected",)}),
    Rule(RDMA, "rdma.link.downed", DEGRADED, "{device}", "the link of port {port} went down", FABRIC),
    Rule(PCIE, "pcie.errors", DEGRADED, "PCIe", "had {kind} errors", "See dmesg for the device; reseat or replace it.",
         {"kind": ("fatal", "nonfatal")}),
    Rule(PCIE, "pcie.links.degraded", DEGRADED, "PCIe", "{value:.0f} links are narrower than both ends can",
         RESEAT),
    Rule(FILES, "disk.read_only", NOT_FIT, "{path}", "is read-only", "Drain this node; check the drive, then restart.",
         {"path": ("/",)}),
    Rule(FILES, "disk.read_only", DEGRADED, "{path}", "is read-only", "Check the drive, then mount it again."),
    Rule(FILES, "disk.filesystem.errors", DEGRADED, "{device}", "has file system errors", "Run fsck when it is idle."),
    Rule(NVME, "disk.nvme.state", DEGRADED, "{device}", "is not live", DISK, limit=1, below=True),
    Rule(NFS, "nfs.timeouts", DEGRADED, "{source}", "did not answer in time", "Check the file server and the network."),
    Rule(NFS, "nfs.unanswered", DEGRADED, "{source}", "has not answered for {value:.0f} s",
         "Check the file server and the network.", limit=60),
    Rule(LUSTRE, "lustre.disconnected", DEGRADED, "Lustre", "{value:.0f} targets are not connected",
         "Check the file system's servers and the network."),
    _logged("gpu_lost", NOT_FIT, "a GPU has fallen off the bus", RESTART),
    _logged("xid_restart", NOT_FIT, "the driver reported an Xid error that asks for a restart", RESTART),
    _logged("xid_reset", NOT_FIT, "the driver reported an Xid error that asks for a reset of the GPU", RESET),
    _logged("xid_check", NOT_FIT, "the driver reported an Xid error of the hardware", CHECK),
    _logged("gpu_init", NOT_FIT, "the driver could not start a GPU", RESTART),
    _logged("amd_error", NOT_FIT, "a GPU had a hardware error that was not corrected", RESET),
    _logged("nvlink", DEGRADED, "the driver did not find all NVLinks of a GPU", "Restart the machine."),
    _logged("xid", DEGRADED, "the driver reported an Xid error that no application causes", WORKFLOW),
    _logged("sxid", DEGRADED, "an NVSwitch reported an error", "See the SXid in NVIDIA's fabric manager guide."),
    _logged("amd_reset", DEGRADED, "a GPU was reset", SEE),
    _logged("amd_timeout", DEGRADED, "a GPU did not finish its work in time", SEE),
    _logged("neuron", NOT_FIT, "a Neuron device has a hardware error", "Stop and start, or terminate the instance."),
    _logged("hung_task", DEGRADED, "a task hangs in the kernel", "See in dmesg what it waits for."),
    _logged("soft_lockup", DEGRADED, "a CPU was stuck in the kernel", SEE),
    _logged("hard_lockup", DEGRADED, "a CPU was stuck with its interrupts off", SEE),
    _logged("rcu_stall", DEGRADED, "a CPU did not get on for a long time", SEE),
    _logged("read_only", DEGRADED, "a file system was remounted read-only or shut down after an error", DISK),
    _logged("nvme", DEGRADED, "an NVMe drive did not answer in time", DISK),
    _logged("disk_error", DEGRADED, "a disk had errors", DISK),
    _logged("nfs", DEGRADED, "an NFS server did not respond", "Check the file server and the network."),
    _logged("mlx5_port", DEGRADED, "a network port has a bad cable or module, or is too hot", FABRIC),
    _logged("mlx5_power", DEGRADED, "a network card gets too little power from its slot", "Check the slot's power."),
    _logged("mlx5_health", DEGRADED, "the firmware of a network card does not respond", "Restart the machine."),
    _logged("aer_uncorrected", DEGRADED, "a PCIe device had an error that was not corrected", SEE),
    _logged("mce", DEGRADED, "the CPU reported a machine check", SEE),
    _logged("file_limit", DEGRADED, "the limit of open files was reached", "Raise fs.file-max."),
)
# fmt: on
GAUGES: Final = frozenset(
    {
        *("gpu.state", "gpu.fault", RECOVERY, "pcie.links.degraded", "disk.read_only", "disk.nvme.state"),
        *("lustre.disconnected", "nfs.unanswered"),
    }
)
"""Metrics of RULES that are gauges."""
FAULTS: Final = tuple(word for rule in RULES if rule.metric == "gpu.fault" for word in rule.only["fault"])
"""The faults that RULES ask for."""
COUNTED: Final = {GPU: ("gpu",), RDMA: ("device", "port"), NVME: ("device",), NEURON: ("neuron_device",)}
"""Areas whose members are counted, and the dimensions that identify each."""


def reasons(series: Iterable[Seen]) -> list[Reason]:
    """Return the faults, by the first rule that applies to each metric and series, in the order of the table."""
    by_place: list[tuple[int, Reason]] = []
    given = set()
    for item in series:
        for place, rule in enumerate(RULES):
            if reason := rule.reason(item):
                by_place.append((place, reason))
                given.add((rule.metric, *reason[:2]))
                break
    by_place.sort(key=lambda pair: pair[0])
    return [reason for place, reason in by_place if (RULES[place].instead, *reason[:2]) not in given]


def unreported_faults(series: Iterable[Seen]) -> Iterator[tuple[str, str]]:
    """Yield working GPUs whose driver does not report some faults, and these faults."""
    reported: dict[str, set[str]] = {}
    works = set()
    for item in series:
        gpu = item.dims.get("gpu", "")
        if item.metric == "gpu.fault":
            reported.setdefault(item.dims["fault"], set()).add(gpu)
        elif item.metric == "gpu.state" and item.value:
            works.add(gpu)
    missing: dict[tuple[str, ...], list[str]] = {}
    for fault in FAULTS:
        if gpus := tuple(sorted(works - reported.get(fault, set()))):
            missing.setdefault(gpus, []).append(fault.replace("_", " "))
    for gpus, faults in missing.items():
        about = "GPUs" if len(gpus) == len(works) else f"gpu {', '.join(gpus)}"
        yield about, f"not told by the driver: {', '.join(faults)}"


def fine(series: Iterable[Seen], wrong: Iterable[Reason], known: Iterable[str]) -> Iterator[str]:
    """Yield the areas without a reason, with the number of their members; `known`: areas without series."""
    areas: dict[str, set[Any]] = {area: set() for area in known}
    bad = {id(reason.shown_by) for reason in wrong}
    ill: dict[str, set[Any]] = {}
    for item in series:
        for area in {rule.area for rule in RULES if rule.knows(item)}:
            member = tuple(item.dims.get(key) for key in COUNTED.get(area, ()))
            areas.setdefault(area, set()).add(member)
            if id(item) in bad:
                ill.setdefault(area, set()).add(member)
                ill.setdefault(GPU, set()).add((item.dims.get("gpu"),))
    order = list(dict.fromkeys(rule.area for rule in RULES))
    for area, members in sorted(areas.items(), key=lambda pair: order.index(pair[0])):
        left = len(members - ill.get(area, set()))
        if area not in COUNTED and area not in ill:
            yield area
        elif area in COUNTED and left:
            yield f"{left} {area if left > 1 else area.removesuffix('s')}"
