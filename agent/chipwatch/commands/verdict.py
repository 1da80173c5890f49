"""Reaches the verdict: asks the running agent, else reads this machine, in less than two seconds."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from chipwatch.collector import Collector
from chipwatch.commands.parser import flags
from chipwatch.config.instances import build_collectors
from chipwatch.config.load import load
from chipwatch.config.options import Config
from chipwatch.datapoint import NO_DIMENSIONS, Level
from chipwatch.errors import ConfigError
from chipwatch.identity.resolver import Identity, UnknownIdentity, sources
from chipwatch.pipeline.clock import Pipeline
from chipwatch.pipeline.sampler import Reading, Sampler
from chipwatch.status.heartbeat import state_folder
from chipwatch.status.socket import NoAgent, ask
from chipwatch.verdict import expect, report, rules
from chipwatch.verdict.callers import STARTED, code_of
from chipwatch.verdict.history import WATCHED, History
from chipwatch.verdict.instances import INSTANCES

TIMEOUT: Final = 2.0
"""Seconds from the start of this program to its end."""
AGENT_SHARE, READ_SHARE, CHILD_SHARE, LAST_SHARE = 0.2, 0.7, 0.75, 0.85
"""
Share of that time after which the agent has answered, collectors have, their process has, and all is known.

The process is left behind then: a call in a driver may not even end by a signal.
"""
MIN_WAIT: Final = 0.05
MAX_ANSWER: Final = 8 << 20


def run(given: argparse.Namespace) -> tuple[str, int]:
    """Return what to print, and the exit code; raise ConfigError."""
    caller = given.caller
    asked = [getattr(given, "expect", None), getattr(given, "expect_from", None)]
    if all(asked):
        raise ConfigError("--expect, --expect-from: give one of them")
    expected = expect.parse(asked[0]) if asked[0] is not None else []
    config, timeout = load(getattr(given, "config", None), flags(given)), getattr(given, "timeout", TIMEOUT)
    answer, source = _readings(config, timeout)
    unknown: list[report.Unknown] = []
    if asked[1]:
        expected = _expected_of(config, unknown, _left(LAST_SHARE * timeout))
    verdict = judge(answer, expected, config.sys, unknown, source)
    code = code_of(verdict.word, caller)
    if hasattr(given, "json"):
        return report.as_json(verdict, code), code
    return (report.as_text(verdict) if caller == "person" else report.as_line(verdict)), code


def judge(
    answer: Mapping[str, Any], expected: list[expect.Expected], sys: Path, unknown: list[report.Unknown], source: str
) -> report.Verdict:
    """Return the verdict on an answer of History."""
    series, collectors = [rules.Seen(*one) for one in answer["series"]], answer["collectors"]
    missing, open_questions = expect.compare(expected, series, collectors, sys)
    wrong = [*missing, *rules.reasons(series)]
    unknown += [report.Unknown(about, why, decides=True) for about, why in open_questions]
    for name, of in collectors.items():
        if of["state"] == "failing":
            unknown.append(report.Unknown(name, of["error"], decides=True))
        elif of["state"] == "absent" and name == "kernel":  # a right is missing, not a device
            unknown.append(report.Unknown("kernel log", of["error"], decides=False))
        elif of["error"] and of["state"] == "ok":
            unknown.append(report.Unknown(name, of["error"], decides=False))
    if any("gpu.fault" in of["metrics"] for of in collectors.values()):
        unknown += [report.Unknown(about, why, decides=False) for about, why in rules.not_told(series)]
    if not series and not any(of["state"] in ("ok", "failing") for of in collectors.values()):
        unknown.append(report.Unknown("machine", "nothing was read yet", decides=True))
    logged = [rules.KERNEL] if collectors.get("kernel", {}).get("state") == "ok" else []
    return report.Verdict(wrong, [*rules.fine(series, wrong, logged)], unknown, source)


def _left(seconds: float) -> float:
    """Return how many seconds are left until so many after the start."""
    return max(MIN_WAIT, STARTED + seconds - time.monotonic())


def _expected_of(config: Config, unknown: list[report.Unknown], wait: float) -> list[expect.Expected]:
    """Return what a machine of this type has; where type or contents are not known, add that to `unknown`."""
    identity = Identity(("instance_type",), config.dims, sources(os.environ, config.sys))

    def find_out() -> None:
        with contextlib.suppress(UnknownIdentity):
            identity.start()

    asking = threading.Thread(target=find_out, daemon=True)
    asking.start()
    asking.join(wait)
    known = (identity.known() or NO_DIMENSIONS).get("instance_type")
    if known in INSTANCES:
        return expect.parse(INSTANCES[known])
    why = f"no list of what a {known} has; use --expect" if known else "the type of this instance is not known"
    unknown.append(report.Unknown("instance_type", why, decides=True))
    return []


def _readings(config: Config, timeout: float) -> tuple[Mapping[str, Any], str]:
    """Return the answer of the running agent, else that of a reading here, and which of them it is."""
    with contextlib.suppress(NoAgent):
        answer = ask(state_folder(config.spool, os.environ), "verdict", _left(AGENT_SHARE * timeout))
        if answer["collectors"]:  # an agent that reads something else, such as one job, has nothing to say
            return answer, "agent"
    built = build_collectors(config)
    wanted = {name: one for name, one in built.items() if WATCHED & {metric.name for metric in one.metrics}}
    if hasattr(os, "fork") and sys.platform == "linux":
        return _read_in_child(wanted, timeout), "reading"
    return read(wanted, _left(READ_SHARE * timeout)), "reading"


def read(collectors: Mapping[str, Collector], wait: float) -> dict[str, Any]:
    """Return the answer of one reading by this process, with what comes within `wait` seconds."""
    readings: queue.SimpleQueue[Reading] = queue.SimpleQueue()
    samplers = [Sampler(name, collector, Level.BASIC, readings) for name, collector in collectors.items()]
    history, now = History(samplers, time.time_ns()), time.time_ns()  # stamps the one reading
    pipeline = Pipeline(samplers, (), readings, interval=wait)
    for sampler in samplers:
        sampler.start()
    history.take(pipeline.gather(now, wait), now)
    return history.answer(watched=False)


def _read_in_child(collectors: Mapping[str, Collector], timeout: float) -> Mapping[str, Any]:
    """
    Return the answer of a reading by a child process, which is not waited for.

    A process with a thread that hangs in a driver cannot end, and whoever waits for it hangs, too.
    """
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        try:
            for standard in range(3):  # whoever reads our output would wait until this process, too, has closed it
                os.dup2(os.open(os.devnull, os.O_RDWR), standard)
            body = json.dumps(read(collectors, _left(READ_SHARE * timeout))).encode()
            while body:
                body = body[os.write(sender, body) :]
        finally:
            os._exit(0)
    os.close(sender)
    body = b""
    while len(body) < MAX_ANSWER and select.select([receiver], [], [], _left(CHILD_SHARE * timeout))[0]:
        if not (part := os.read(receiver, 1 << 16)):
            break
        body += part
    os.close(receiver)
    os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, os.WNOHANG)
    try:
        answer: Mapping[str, Any] = json.loads(body)
    except ValueError:
        why = f"the readings did not return in {timeout:g} s: a driver or a file server may hang"
        return {"series": [], "collectors": {"machine": {"state": "failing", "error": why, "metrics": []}}}
    return answer
