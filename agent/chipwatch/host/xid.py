"""The actions that NVIDIA's catalogue names for Xid errors, which the driver reports by a code."""

from __future__ import annotations

from typing import Final

ACTIONS: Final = {
    "restart_app": "8 11 13 25 31-32 39-41 60 68-72 75-77 80 82-86 88-89 94 96-105 126-135 139",
    "reset_gpu": "46 62 64 95 109-110 119-120 136 140 143 155-156 158",
    "restart_machine": "79 151",
    "see_workflow": "45 48 74 144-150 154",
    "check_hardware": "54",
    "update_software": "78",
    "ignore": "14 37-38 43-44 63 66-67 92-93 106-108 121 137 141 152-153 157 160-161",
    "none": "1-7 9-10 12 15-24 26-30 33-36 42 47 49-53 55-59 61 65 73 81 87 90-91 111-118 122-125 138 142 159 162-172",
}
"""
The codes of each immediate action, by our word for it; from the catalogue of October 2025 with 172 codes.

RESTART_BM and RESTART_VM are restart_machine, each WORKFLOW and XID_154 see_workflow, CHECK_MECHANICALS check_hardware,
UPDATE_SWFW update_software; CHECK_UVM, CONTACT_SUPPORT, which unused codes have, and no action are none.

https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""
NONE: Final = "none"
APPLICATION: Final = frozenset({"restart_app", "ignore", NONE})
"""Actions that need no administrator."""


def _codes(spans: str) -> list[int]:
    ends = [span.split("-") for span in spans.split()]
    return [code for first, *last in ends for code in range(int(first), int((last or [first])[0]) + 1)]


BY_CODE: Final = {code: action for action, spans in ACTIONS.items() for code in _codes(spans)}


def is_applications_own(code: str) -> bool:
    """Return whether a text is an Xid that needs no administrator, or none. 45 comes when an application is killed."""
    return not code.isdecimal() or code == "45" or action_of(int(code[:9])) in APPLICATION


def action_of(code: int) -> str:
    """Return the immediate action, a word of ACTIONS; `none` if the catalogue has no action or lacks the code."""
    return BY_CODE.get(code, NONE)
