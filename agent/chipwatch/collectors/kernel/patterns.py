"""Recognizes the messages of the kernel's log that are counted."""

from __future__ import annotations

import re
from typing import Final

from chipwatch.host.xid import action_of, is_applications_own

PATTERNS: Final = {
    "xid": r"NVRM: Xid \([^)]*\): (?P<code>[0-9]+)",
    "gpu_lost": r"NVRM: .*fallen off the bus",
    "gpu_init": r"NVRM: .{0,40}RmInitAdapter failed",
    "nvlink": r"NVRM: (?:GPU\S* )?knvlink\S+ .{0,60}(?:postRxDetLinkMask|Rx Detect Link [Mm]ask)",
    "peermem": r"nvidia-peermem \S+ ERROR",
    "sxid": r"nvidia-nvswitch[0-9]+: SXid \([^)]*\): [0-9]+",
    "amd_reset": r"amdgpu (?:\S+ (?:amdgpu: )?)?GPU reset begin",
    "amd_timeout": r"(?:amdgpu \S+ (?:amdgpu: )?|\[drm:amdgpu_job_timedout.{0,40}\*ERROR\* )ring \S+ timeout"
    r"|amdgpu(?: \S+(?: amdgpu:)?|:) MES might be in unrecoverable state",
    "amd_error": r"amdgpu (?:\S+ (?:amdgpu: )?)?(?:\{[0-9]+\})?uncorrectable hardware error\s?\(ERREVENT",
    "amd_aca": r"amdgpu \S+ (?:amdgpu: )?(?:\{[0-9]+\})?\[Hardware [Ee]rror\]:? Accelerator Check Architecture events",
    "gpu_unusable": r"habanalabs.{1,80}Device is NOT usable"
    r"|xe \S+ \[drm\] (?:\*ERROR\* CRITICAL: Xe has declared device \S+ as wedged|device wedged, needs recovery)",
    "neuron": r"(?:\S+ )?NEURON_HW_ERR=",
    "oom_kill": r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process",
    "hung_task": r"INFO: task .{1,40} blocked (?:in I/O wait )?for more than [0-9]+ seconds",
    "soft_lockup": r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#",
    "hard_lockup": r"(?:NMI )?watchdog: (?:CPU[0-9]+: )?Watchdog detected hard LOCKUP on cpu",
    "rcu_stall": r"(?:rcu: )?INFO: rcu_\S+ (?:self-detected stall on CPU|detected (?:expedited )?stalls on CPUs)",
    "read_only": r"EXT4-fs .{1,60}(?:Remounting filesystem read-only|shut ?down)"
    r"|XFS .{1,160}(?:[Ss]hutting down filesystem|Filesystem has been shut down)|BTRFS.{1,80} forced readonly",
    "nvme": r"nvme nvme[0-9]+: (?:I/O .{1,80} timeout|Disabling device after reset|controller is down)",
    "disk_error": r"Buffer I/O error on dev"
    r"|(?:(?:blk_update_request|print_req_error): )?(?:I/O|critical medium) error, dev"
    r"|XFS \([^)]{1,40}\): (?:log|metadata) I/O error|md/raid.{1,20}: Disk failure"
    r"|EXT4-fs .{1,60}I/O error (?:while writing|to) superblock"
    r"|block \S+ no available path - failing I/O",
    "fs_error": r"EXT4-fs error \(device|(?:JBD2: )?Aborting journal on device"
    r"|XFS \([^)]{1,40}\): (?:Internal error|Metadata (?:corruption|CRC error) detected)"
    r"|BTRFS(?: critical|: error) \(device [^)]{1,60}\):? (?:in |corrupt)",
    "nfs": r"nfs: server \S+ not responding",
    "mlx5_port": r"mlx5_core \S+ .{0,60}Port module event.{1,40}(?:Cable error|High Temperature)",
    "mlx5_power": r"mlx5_core .{1,80}Detected insufficient power on the PCIe slot",
    "mlx5_health": r"mlx5_core .{1,80}(?:device's health compromised|health recovery flow aborted)"
    r"|mlx5_core .{1,80}Fatal error [0-9]+ detected",
    "nic_timeout": r"(?:[\w-]+ \S*[^\s:] [\w.]+: )?NETDEV WATCHDOG: .{1,60}transmit (?:queue [0-9]+ )?timed out"
    r"|(?:efa \S+|infiniband (?:efa|rdmap)\S*) (?:Wait for completion \(polling\) timeout|Admin queue is closed"
    r"|The device didn't send any completion for admin)",
    "aer_corrected": r"pcieport \S+ AER: (?:Multiple )?Correct(?:ed|able) error",
    "aer_uncorrected": r"pcieport \S+ AER: (?:Multiple )?(?:Uncorrect(?:ed|able)|(?:Non-)?Fatal) "
    r"|pcieport \S+ DPC: containment event"
    r"|\S+ [0-9a-f]{4,}:\S+ PCIe Bus Error: severity=Uncorrect",
    "mce": r"mce: \[Hardware Error\]: (?:Machine check events logged|CPU [0-9]+: Machine Check)"
    r"|\{[0-9]+\}\[Hardware Error\]: Hardware error from APEI|\[Hardware Error\]: MC[0-9]+ Error",
    "memory_uncorrected": r"EDAC (?:\S+ )?MC[0-9]+: (?:[0-9]+ )?UE ",
    "nccl_segfault": r"[^\[]{1,15}\[[0-9]+\]: segfault at .* in libnccl",
    "file_limit": r"VFS: file-max limit [0-9]+ reached",
}
"""Kind -> pattern of the beginning of a message; tests/fixtures/SOURCES.kernel.txt has the sources of each."""
APPLICATIONS_XID: Final = "xid_app"
"""Kind of an Xid that a program causes and that needs no action of an administrator."""
XIDS: Final = {"reset_gpu": "xid_reset", "restart_machine": "xid_restart", "check_hardware": "xid_check"}
"""Immediate action in NVIDIA's catalogue -> kind. With another action, and not by an application, it stays `xid`."""
KINDS: Final = (*PATTERNS, *XIDS.values(), APPLICATIONS_XID)
ANY: Final = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS.items()).encode())


def kind_of(message: bytes) -> str | None:
    """Return the kind of a message, None if it is not counted. Its beginning decides: programs may write the rest."""
    if not (match := ANY.match(message)):
        return None
    if not match["code"]:
        return match.lastgroup
    code = int(match["code"][:9])
    return APPLICATIONS_XID if is_applications_own(code) else XIDS.get(action_of(code), "xid")
