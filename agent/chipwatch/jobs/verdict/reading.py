"""Gets the readings for a verdict in time: asks the running agent; without one, reads this machine itself."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from chipwatch.base.system import state_folder
from chipwatch.config import plugins
from chipwatch.config.identity.resolver import Identity, UnknownIdentity, sources
from chipwatch.config.instances import NotLoaded, build_collectors, build_plugin
from chipwatch.config.load import chosen
from chipwatch.config.options import Config
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import NO_DIMENSIONS, Level
from chipwatch.contract.errors import os_text
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.sampler import Sampler
from chipwatch.host.blocking_call import BlockingCall
from chipwatch.host.child_call import ask_child
from chipwatch.jobs.verdict.callers import STARTED
from chipwatch.jobs.verdict.events import WATCHED, EventHistory
from chipwatch.jobs.verdict.expect import Expected, known_instances, parse
from chipwatch.jobs.verdict.judge import Unknown
from chipwatch.net.status_socket import NoAgent, ask

AGENT_SHARE, AGAIN_SHARE, READ_SHARE, CHILD_SHARE, LAST_SHARE = 0.2, 0.7, 0.76, 0.8, 0.85
"""
Shares of the timeout by which these must have ended: the answer of the agent, the wait for a second reading, the
collectors, their process, and everything.

A process that is later is left behind, because a call into a driver may hang and ignore all signals.
"""
UNWATCHED: Final = frozenset(
    {"container", "cpu", "disk", "ipu", "jobs", "memory", "nccl", "network", "openmetrics", "pressure", "process"}
    | {"textfile"}
)
"""Built-in collectors that no verdict needs; they are not loaded."""
TWICE: Final = frozenset({"gpu.fault", "gpu.link.errors"})
"""Metrics that need two readings to show some faults: rates of errors, and slowdowns that last."""
APART, LEAST_APART = 1.0, 0.3
"""Seconds between these two readings, and the least if time is short; with even less there is no second one."""
MIN_WAIT: Final = 0.05


def _left(seconds: float) -> float:
    """Return the seconds left until `seconds` after the start of this program."""
    return max(MIN_WAIT, STARTED + seconds - time.monotonic())


def expected_by_type(config: Config, unknown: list[Unknown], timeout: float) -> list[Expected]:
    """Return what a machine of this type has; if that is not known, add the reason to `unknown`."""
    identity = Identity(("instance_type",), config.dims, sources(os.environ, config.sys))
    with contextlib.suppress(UnknownIdentity, TimeoutError):
        BlockingCall(identity.start, "identity").ask(_left(LAST_SHARE * timeout))
    type_ = (identity.known() or NO_DIMENSIONS).get("instance_type")
    if text := known_instances().get(type_ or ""):
        return parse(text)
    why = f"no list of what a {type_} has; use --expect" if type_ else "the type of this instance is not known"
    unknown.append(Unknown("instance_type", why, decides=True))
    return []


def readings(config: Config, timeout: float) -> tuple[Mapping[str, Any], str]:
    """Return the running agent's answer and "agent"; without an agent, that of a reading here and "reading"."""
    with contextlib.suppress(NoAgent):
        answer = ask(state_folder(config.spool, os.environ), "verdict", _left(AGENT_SHARE * timeout))
        if answer["collectors"]:  # an agent that reads something else, such as one job, has no answer
            return answer, "agent"
    built = build_collectors(config, UNWATCHED)
    for name in {*chosen("collectors", config)} - built.keys() - UNWATCHED:
        with contextlib.suppress(NotLoaded):
            build_plugin(plugins.COLLECTORS, name, config)  # raises its fault, which a verdict must not ignore
    collectors = {
        name: collector for name, collector in built.items() if WATCHED & {metric.name for metric in collector.metrics}
    }
    if sys.platform == "linux":
        return _read_in_child(collectors, timeout), "reading"
    return _read(collectors, timeout), "reading"


def _read(collectors: Mapping[str, Collector], timeout: float) -> dict[str, Any]:
    """
    Read this machine in this process; return the answer of the collectors that are in time.

    Collectors of metrics that need two readings (TWICE) are read again after a second.
    """
    samplers = [Sampler(name, collector, Level.BASIC) for name, collector in collectors.items()]
    wait, now = _left(READ_SHARE * timeout), time.time_ns()  # stamps the one reading
    history, pipeline = EventHistory(samplers, now), Pipeline(samplers, (), interval=wait / 20)
    history.take(pipeline.gather(now, wait), now)
    again = [one for one in samplers if one.ok and TWICE & {metric.name for metric in one.collector.metrics}]
    pause = min(APART, STARTED + AGAIN_SHARE * timeout - time.monotonic())
    is_short = bool(again) and pause < LEAST_APART
    if again and not is_short:
        time.sleep(pause)
        later = time.time_ns()
        second = Pipeline(again, (), interval=wait / 20)
        history.take(second.gather(later, _left(READ_SHARE * timeout)), later)
    return history.answer(watched=False) | {"is_short": is_short}


def _read_in_child(collectors: Mapping[str, Collector], timeout: float) -> Mapping[str, Any]:
    """Read this machine in a child process, which may hang in a driver; return its answer, or why there is none."""

    def read() -> Mapping[str, Any]:
        try:
            return _read(collectors, timeout)
        except (OSError, MemoryError, ImportError, RuntimeError) as problem:  # no memory, threads or files left
            return _no_answer(f"the readings have ended: {os_text(problem)}")

    try:
        answer: Mapping[str, Any] = ask_child(read, _left(CHILD_SHARE * timeout))
    except TimeoutError:
        return _no_answer(
            f"no reading within {timeout:g} s: the machine is too busy, or a driver or a file server hangs"
        )
    except ChildProcessError as end:
        return _no_answer(f"the process of the readings has ended{end}")
    return answer


def _no_answer(why: str) -> Mapping[str, Any]:
    return {"series": [], "collectors": {"machine": {"state": "failing", "error": why, "metrics": []}}}
