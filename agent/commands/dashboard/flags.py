"""The flags of `agent dashboard` besides those of every command."""

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
    add = to.add_argument
    add("--cloud", required=True, metavar="SINK", help="name of the sink whose dashboard is printed")
    add("--alarms", action="store_true", help="print the alarms instead")
    which = "kinds of machines: host, gpu, names of collectors, or all (this machine, and --collector)"
    add("--for", dest="families", type=words, metavar="WORDS", help=which)
    add("--devices", type=count, metavar="N", help="accelerators of a machine, if names contain their numbers (8)")
    add("--prefix", metavar="NAME", help="name of the dashboard, and start of the names of alarms (chipwatch)")
    add("--period", type=count, metavar="S", help="seconds of one dot (the sink's window, at least 60)")
    add("--dims-as", metavar="TEXT", help="write this for the common dimensions: a variable of a template")
    add("--notify", action="append", metavar="WHOM", help="topic or channel for alarms; may be repeated")
    add("--hosts", type=count, metavar="N", help="machines that should send, for the alarm agent-silent")
    group = "an Auto Scaling group whose instances in service should send; may be repeated"
    add("--autoscaling-group", dest="groups", action="append", metavar="NAME", help=group)
    resource = "monitored resource that sends, for alarms; may be repeated (the sink's)"
    add("--resource-type", dest="resources", action="append", metavar="TYPE", help=resource)
    threshold = "threshold of an alarm, such as gpu-idle=10; may be repeated"
    add("--threshold", dest="thresholds", type=pair, action="append", metavar="ALARM=N", help=threshold)
    minutes = "minutes before an alarm, such as gpu-idle=30; may be repeated"
    add("--minutes", type=pair, action="append", metavar="ALARM=N", help=minutes)
