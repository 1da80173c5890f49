"""Which messages of the kernel's log are counted, and as what."""

from __future__ import annotations

import re
from typing import Final

from chipwatch.host.xid import is_applications_own

PATTERNS: Final = {
    "xid": r"NVRM: Xid \([^)]*\): (?P<code>[0-9]+)",
    "gpu_lost": r"NVRM: .*fallen off the bus",
    "sxid": r"nvidia-nvswitch[0-9]+: SXid \([^)]*\): [0-9]+",
    "amd_reset": r"amdgpu (?:\S+ amdgpu: )?GPU reset begin",
    "amd_timeout": r"(?:amdgpu \S+ (?:amdgpu: )?|\[drm:amdgpu_job_timedout.{0,40}\*ERROR\* )ring \S+ timeout",
    "neuron": r"(?:\S+ )?NEURON_HW_ERR=",
    "oom_kill": r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process",
    "hung_task": r"INFO: task .{1,40} blocked for more than [0-9]+ seconds",
    "soft_lockup": r"(?:watchdog: )?BUG: soft lockup - CPU#",
    "read_only": r"EXT4-fs .{1,60}Remounting filesystem read-only|XFS .{1,160}[Ss]hutting down filesystem"
    r"|BTRFS.{1,80} forced readonly",
    "nvme": r"nvme nvme[0-9]+: (?:I/O .{1,80} timeout|Disabling device after reset|controller is down)",
    "disk_error": r"Buffer I/O error on dev|(?:blk_update_request: )?(?:I/O|critical medium) error, dev"
    r"|md/raid.{1,20}: Disk failure",
    "nfs": r"nfs: server \S+ not responding",
    "mlx5_port": r"mlx5_core \S+ .{0,60}Port module event.{1,40}(?:Cable error|High Temperature)",
    "mlx5_power": r"mlx5_core .{1,80}Detected insufficient power on the PCIe slot",
    "aer_corrected": r"pcieport \S+ AER: (?:Multiple )?Correct(?:ed|able) error",
    "aer_uncorrected": r"pcieport \S+ AER: (?:Multiple )?Uncorrect(?:ed|able)",
    "mce": r"mce: \[Hardware Error\]: (?:Machine check events logged|CPU [0-9]+: Machine Check)"
    r"|\{[0-9]+\}\[Hardware Error\]: Hardware error from APEI",
    "nccl_segfault": r"[^\[]{1,15}\[[0-9]+\]: segfault at .* in libnccl",
    "file_limit": r"VFS: file-max limit [0-9]+ reached",
}
"""Kind -> how a message begins; the sources of each are in tests/fixtures/SOURCES.kernel.txt."""
APPLICATIONS_XID: Final = "xid_app"
"""The kind of an Xid that asks nothing of who runs the machine; a program makes these by itself."""
KINDS: Final = (*PATTERNS, APPLICATIONS_XID)
ANY: Final = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS.items()).encode())


def kind_of(message: bytes) -> str | None:
    """Return the kind of a message, or None if it is not counted; a program's text in it must not pass for another."""
    if not (found := ANY.match(message)):
        return None
    code = found["code"]
    return APPLICATIONS_XID if code and is_applications_own(int(code[:9])) else found.lastgroup
