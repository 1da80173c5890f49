"""What may be asked of `agent dashboard` beside what every command takes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from agent.commands.arguments import count, pair, words

Cloud = Literal["cloudwatch", "google"]
NONE: Final[Mapping[str, float]] = MappingProxyType({})


class Wishes(NamedTuple):
    """What is wanted; the configuration says the rest."""

    cloud: Cloud
    """The name of the sink, too."""
    alarms: bool = False
    """The set of alarms instead of the dashboard."""
    families: tuple[str, ...] = ()
    """Families or collectors of the machines to watch; this machine and what the configuration names unless set."""
    devices: int = 8
    """Accelerators and cores a machine, for naming profiles that put their number into the name."""
    prefix: str = "chipwatch"
    """What the dashboard is called, and what the names of alarms begin with."""
    period: int | None = None
    """Seconds that one dot of a graph stands for; the sink's window, and a minute at least, unless set."""
    dims_as: str | None = None
    """What to write in place of the common dimensions: a template's variable."""
    notify: tuple[str, ...] = ()
    """Whom an alarm tells: topics (ARN), or notification channels."""
    hosts: int = 0
    """Machines that should send."""
    groups: tuple[str, ...] = ()
    """Auto Scaling groups whose instances in service should send, besides those."""
    resources: tuple[str, ...] = ()
    """Google's monitored resources that send; the configured one, else gce_instance, unless set."""
    thresholds: Mapping[str, float] = NONE
    """Alarm -> its threshold, where it is not to be the usual one."""
    minutes: Mapping[str, float] = NONE
    """Alarm -> minutes that it waits, likewise."""


OPTIONS: Final = Wishes._fields


def add_options(to: argparse.ArgumentParser) -> None:
    """Add the options of `agent dashboard`."""
    to.add_argument("--cloud", required=True, choices=("cloudwatch", "google"), help="whose dashboard")
    to.add_argument("--alarms", action="store_true", help="print the alarms instead")
    to.add_argument(
        "--for",
        dest="families",
        type=words,
        metavar="WORDS",
        help="for machines with these: host, gpu, neuron, tpu, ... or collectors; all (this machine, and --collector)",
    )
    to.add_argument("--devices", type=count, metavar="N", help="accelerators a machine, where names hold them (8)")
    to.add_argument("--prefix", metavar="NAME", help="name of the dashboard, beginning of alarms' names (chipwatch)")
    to.add_argument("--period", type=count, metavar="S", help="seconds of one dot (the sink's window, at least 60)")
    to.add_argument("--dims-as", metavar="TEXT", help="write this for the common dimensions: a template's variable")
    to.add_argument("--notify", action="append", metavar="WHOM", help="SNS topic or channel; may be repeated")
    to.add_argument("--hosts", type=count, metavar="N", help="machines that should send, for the alarm agent-silent")
    to.add_argument(
        "--autoscaling-group",
        dest="groups",
        action="append",
        metavar="NAME",
        help="CloudWatch: its instances in service should send; may be repeated",
    )
    to.add_argument(
        "--resource-type",
        dest="resources",
        action="append",
        metavar="TYPE",
        help="Google's monitored resource that sends, for alarms; may be repeated (the sink's, else gce_instance)",
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


def wishes(given: argparse.Namespace) -> Wishes:
    """Return what the command line says."""
    said = {key: getattr(given, key) for key in OPTIONS if getattr(given, key, None) is not None}
    for key in ("notify", "groups", "resources"):
        if key in said:
            said[key] = tuple(said[key])
    for key in ("thresholds", "minutes"):
        if key in said:
            said[key] = dict(said[key])
    return Wishes(**said)
