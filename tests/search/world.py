"""The servers around an agent, which answer well or ill, and what they took."""

import os
import signal
from collections import Counter
from contextlib import ExitStack
from random import Random
from typing import Self

from tests.doubles import otlp
from tests.doubles.monitoring import MonitoringDouble
from tests.doubles.otlp import OtlpDouble
from tests.ports import free_port
from tests.search import answers

SECRET = "Bearer s3cr3t-t0k3n"
BROKEN = (
    otlp.status(429, "", ("Retry-After", "0")), otlp.status(500, "broken proxy"), otlp.status(503, "away"),
    otlp.status(400, "\x1b[31mno"), otlp.status(404, ""), otlp.RESET, otlp.RESET, otlp.LOST, otlp.LOST, otlp.HALF, otlp.HALF,
)  # fmt: skip
DOUBTFUL = (otlp.LOST, otlp.HALF)


class Servers:
    """A context manager; `well` says how often each answers well, and `on_request` is called with each that was taken."""

    def __init__(self, sinks: tuple[str, ...], seed: int) -> None:
        """Prepare a server for each of the sinks that has one."""
        self.well = dict.fromkeys(sinks, 1.0)
        self.victim: int | None = None
        """The process to kill once a request of it was taken, before it hears so."""
        self.asked: Counter[str] = Counter()
        self._dice, self._stack = Random(f"servers {seed}"), ExitStack()
        self.cloudwatch = answers.StormyCloudwatch(self._dice) if "cloudwatch" in sinks else None
        self.otlp = OtlpDouble(token=SECRET) if "otlp" in sinks else None
        self.google = MonitoringDouble() if "google" in sinks else None
        self.gate: answers.Gate | None = None
        self.port = free_port() if "prometheus" in sinks else 0

    def __enter__(self) -> Self:
        """Listen."""
        for server in filter(None, (self.cloudwatch, self.otlp, self.google)):
            self._stack.enter_context(server)
        if self.cloudwatch:
            self.cloudwatch.on_taken = self._take
        if self.otlp:
            self.otlp.weather = self._weather
        if self.google:
            self.gate = answers.Gate(self.google.port, self._dice)
            self._stack.callback(self.gate.close)
            self.google.weather = answers.statuses(Random(self._dice.random()), lambda: self.well["google"])
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def be(self, sink: str, well: float) -> None:
        """Let a server answer well with this chance."""
        self.well[sink] = well
        if sink == "cloudwatch" and self.cloudwatch:
            self.cloudwatch.well = well
        if sink == "google" and self.gate:
            self.gate.well = well

    def _take(self) -> bool:
        """Kill the process that waits to hear that its request was taken; return whether there was one."""
        pid, self.victim = self.victim, None
        if pid:
            self.asked["request taken, agent killed"] += 1
            os.kill(pid, signal.SIGKILL)
        return bool(pid)

    def _weather(self) -> otlp.Reply | str | None:
        if self._take():
            return otlp.LOST
        if self._dice.random() < self.well["otlp"]:
            return None
        fault = self._dice.choice(BROKEN)
        self.asked[f"otlp: {fault if isinstance(fault, str) else fault.status}"] += 1
        return fault

    def options(self) -> dict[str, dict[str, object]]:
        """Return the tables of the sinks in the agent's configuration."""
        found: dict[str, dict[str, object]] = {}
        if self.cloudwatch:
            found["cloudwatch"] = {"region": "eu-west-1", "endpoint_url": self.cloudwatch.url, "timeout": 4}
        if self.otlp:
            found["otlp"] = {"endpoint_url": self.otlp.url, "headers": {"Authorization": SECRET}, "timeout": 10}
        if self.gate:
            found["google"] = {
                "project": "some-project",
                "endpoint": self.gate.target,
                "insecure": True,
                "timeout": 0.5,
            }
        if self.port:
            found["prometheus"] = {"listen": f"127.0.0.1:{self.port}"}
        return found
