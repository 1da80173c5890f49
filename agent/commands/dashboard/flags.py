"""The flags of `agent dashboard` beside those that every command takes."""

from __future__ import annotations

import argparse
from typing import Final

from agent.commands.arguments import count, pair, words

OPTIONS: Final = (
    "cloud", "alarms", "families", "devices", "prefix", "period", "dims_as", "notify", "hosts", "groups", "resources",
    "thresholds", "minutes",
)  # fmt: skip


def add_options(to: argparse.ArgumentParser) -> None:
    """Add the options of `agent dashboard`."""
    to.add_argument("--cloud", required=True, metavar="SINK", help="whose dashboard: the name of the sink")
    to.add_argument("--alarms", action="store_true", help="print the alarms instead")
    to.add_argument(
        "--for",
        dest="families",
        type=words,
        metavar="WORDS",
        help="for machines with these: host, gpu, any collectors; or all (this machine, and --collector)",
    )
    to.add_argument("--devices", type=count, metavar="N", help="accelerators a machine, where names hold them (8)")
    to.add_argument("--prefix", metavar="NAME", help="name of the dashboard, beginning of alarms' names (chipwatch)")
    to.add_argument("--period", type=count, metavar="S", help="seconds of one dot (the sink's window, at least 60)")
    to.add_argument("--dims-as", metavar="TEXT", help="write this for the common dimensions: a template's variable")
    to.add_argument("--notify", action="append", metavar="WHOM", help="topic or channel; may be repeated")
    to.add_argument("--hosts", type=count, metavar="N", help="machines that should send, for the alarm agent-silent")
    to.add_argument(
        "--autoscaling-group",
        dest="groups",
        action="append",
        metavar="NAME",
        help="its instances in service should send; may be repeated",
    )
    to.add_argument(
        "--resource-type",
        dest="resources",
        action="append",
        metavar="TYPE",
        help="monitored resource that sends, for alarms; may be repeated (the sink's)",
    )
    to.add_argument(
        "--threshold",
        dest="thresholds",
        type=pair,
        action="append",
        metavar="ALARM=N",
        help="of an alarm: gpu-idle=10; may be repeated",
    )
    to.add_argument("--minutes", type=pair, action="append", metavar="ALARM=N", help="that an alarm waits; likewise")
