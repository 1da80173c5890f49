"""The action for an Xid error, by NVIDIA's catalogue."""

from __future__ import annotations

from typing import Final

CATALOGUE: Final = {
    "CHECK_MECHANICALS": "54",
    "CHECK_UVM": "159",
    "CONTACT_SUPPORT": "1-7 9-10 12 15-24 26-30 33-36 42 47 49-53 55-59 61 65 73 81 87 90-91 111-118 122-125 138 142",
    "IGNORE": "14 37-38 43-44 63 66-67 92-93 106-108 121 137 141 152-153 157 160-161",
    "RESET_GPU": "46 62 64 95 109-110 119-120 136 140 143 155-156 158",
    "RESTART_APP": "8 11 13 25 31-32 39-41 60 68-72 75-77 80 82-86 88-89 94 96-105 126-135 139",
    "RESTART_BM": "79",
    "RESTART_VM": "151",
    "UPDATE_SWFW": "78",
    "WORKFLOW_NVLINK5_ERR": "144-150",
    "WORKFLOW_NVLINK_ERR": "74",
    "WORKFLOW_XID_45": "45",
    "WORKFLOW_XID_48": "48",
    "XID_154": "154",
    "": "162-172",
}  # fmt: skip
"""
Immediate action ("": none) -> the codes; of October 2025, 172 codes.

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


RESOLUTIONS: Final = {code: action for action, spans in CATALOGUE.items() for code in _codes(spans)}
"""Code -> the catalogue's immediate action."""


def is_applications_own(code: int) -> bool:
    """Return whether an Xid needs no action of an administrator; 45 comes with every application that is stopped."""
    return code == 45 or action_of(code) in APPLICATION


def action_of(code: int) -> str:
    """Return the immediate action, a word of ACTIONS; `none` where the catalogue has no action, or not the code."""
    return ACTIONS.get(RESOLUTIONS.get(code, ""), NONE)
