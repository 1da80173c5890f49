"""The action for an Xid error, by NVIDIA's catalogue."""

from __future__ import annotations

from typing import Final

CATALOGUE: Final = (
    ("CHECK_MECHANICALS", "CONTACT_SUPPORT", "54"),
    ("CHECK_UVM", "SYMPATHETIC_REPORT_SOLO", "159"),
    ("IGNORE", "CONTACT_SUPPORT", "14 38 43-44 67 92-93 121 141 152-153 157"),
    ("IGNORE", "CHECK_APP/CUDA", "37"),
    ("IGNORE", "IGNORE", "63 106-107"),
    ("IGNORE", "INVESTIGATE_SW", "66 160-161"),
    ("IGNORE", "XID_137_FLOW", "108 137"),
    ("RESET_GPU", "CONTACT_SUPPORT", "46 62 64 109 140 143 158"),
    ("RESET_GPU", "IGNORE (sympathetic)", "95"),
    ("RESET_GPU", "INVESTIGATE_SW", "110 119-120"),
    ("RESET_GPU", "INVESTIGATE_LINK_SI", "136"),
    ("RESET_GPU", "INVESTIGATE_SW_USER", "155"),
    ("RESET_GPU", "IGNORE", "156"),
    ("RESTART_APP", "CONTACT_SUPPORT", "8 39-41 68 70-72 75-77 82-86 88-89 96-105 126-135 139"),
    ("RESTART_APP", "CHECK_APP/CUDA", "11 25 32 69 80"),
    ("RESTART_APP", "WORKFLOW_XID_13", "13"),
    ("RESTART_APP", "WORKFLOW_XID_31", "31"),
    ("RESTART_APP", "INVESTIGATE_SW", "60"),
    ("RESTART_APP", "IGNORE (sympathetic)", "94"),
    ("RESTART_BM", "CONTACT_SUPPORT", "79"),
    ("RESTART_VM", "CONTACT_SUPPORT", "151"),
    ("UPDATE_SWFW", "UPDATE_SWFW", "78"),
    ("WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK5_ERR", "144-150"),
    ("WORKFLOW_NVLINK_ERR", "CONTACT_SUPPORT", "74"),
    ("WORKFLOW_XID_45", "RESTART_FM where it comes alone, else IGNORE", "45"),
    ("WORKFLOW_XID_48", "WORKFLOW_XID_48", "48"),
    ("XID_154", "tells of another Xid", "154"),
    (
        "CONTACT_SUPPORT", "",
        "1-7 9-10 12 15 17-24 26-30 33-36 42 47 49-53 55-59 61 65 73 81 87 90-91 111-118 122-125 138 142",
    ),
    ("CONTACT_SUPPORT", "CONTACT_SUPPORT", "16"),
    ("", "", "162-172"),
)  # fmt: skip
"""
Immediate action, investigatory action ("": none), and the codes; of October 2025, 172 codes.

https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""
ACTIONS: Final = {
    "RESTART_APP": "restart_app",
    "RESET_GPU": "reset_gpu",
    "RESTART_BM": "restart_machine",
    "RESTART_VM": "restart_machine",
    "WORKFLOW_XID_45": "see_workflow",
    "WORKFLOW_XID_48": "see_workflow",
    "WORKFLOW_NVLINK_ERR": "see_workflow",
    "WORKFLOW_NVLINK5_ERR": "see_workflow",
    "XID_154": "see_workflow",
    "CHECK_MECHANICALS": "check_hardware",
    "UPDATE_SWFW": "update_software",
    "IGNORE": "ignore",
}
"""The catalogue's immediate action -> ours; the others, such as CONTACT_SUPPORT for unused codes, become `none`."""
NONE: Final = "none"
APPLICATION: Final = frozenset({"restart_app", "ignore", NONE})
"""Actions that an administrator need not take."""


def _codes(spans: str) -> list[int]:
    ends = [span.split("-") for span in spans.split()]
    return [code for first, *last in ends for code in range(int(first), int((last or [first])[0]) + 1)]


RESOLUTIONS: Final = {code: (now, later) for now, later, spans in CATALOGUE for code in _codes(spans)}
"""Code -> the catalogue's immediate and investigatory action."""


def is_applications_own(code: int) -> bool:
    """Return whether an Xid needs no action of an administrator; 45 comes with every application that is stopped."""
    return code == 45 or action_of(code) in APPLICATION


def action_of(code: int) -> str:
    """Return the immediate action, a word of ACTIONS; `none` where the catalogue has no action, or not the code."""
    return ACTIONS.get(RESOLUTIONS.get(code, ("", ""))[0], NONE)
