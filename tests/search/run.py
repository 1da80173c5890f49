"""Runs a plan: the lives of an agent one after the other, in a world that misbehaves; then all properties are judged."""

import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.doubles.cloudwatch import environment
from tests.search import life
from tests.search.job_laws import holders
from tests.search.machine import Machine
from tests.search.plan import Event, LifePlan, Plan
from tests.search.properties import LONG, Seen, books, judge, judge_life, page
from tests.search.world import Servers

from chipwatch.net import status_socket

ROOT = Path(__file__).parents[2]
LOOK = 0.05
"""Seconds between two looks at a life."""
PACE, AGO = 100, 20 * 3600 * 10**9
"""The speed of the wall clock of a paced plan, and its past (ns)."""
WARM = 4.0
"""Seconds after which an agent has all that it needs once."""
TRIES = 3
"""Lives that may be needed to deliver all: at a stop a time-out of a busy machine is final."""


def context() -> multiprocessing.context.ForkServerContext:
    """Return where lives are forked: from a process that has imported everything, and has no threads."""
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "agent", ROOT / "sinks")))
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["tests.search.preloaded"])
    return made


class Run:
    """One plan in one folder."""

    def __init__(self, plan: Plan, folder: Path, servers: Servers) -> None:
        self.plan, self.folder, self.servers = plan, folder, servers
        (folder / "node").mkdir()
        self.machine = Machine(folder / "node")
        self.seen = Seen(plan, folder, self.machine, servers)
        self._made, self._began = context(), time.time_ns()
        self._level = str(plan.options["level"])
        self._next: dict[str, float] = {}

    def all(self) -> Seen:
        """Run all lives, and then calm ones until all is delivered."""
        for number, one in enumerate(self.plan.lives):
            if one.seconds:
                self._live(number, one)
        self._calm()
        judge(self.seen)
        return self.seen

    # -- one life -----------------------------------------------------------------------------------------------------

    def _live(self, number: int, one: LifePlan) -> None:
        for event in [event for event in one.events if event.what and event.at == 0.0]:
            self._happen(event, None)
        process = self._start(number, one.namespace, one.kill)
        try:
            if not self._wait(lambda: self._output(number) or not process.is_alive()):
                self.seen.fail("life: an agent starts after any end of the last one", f"life {number} prints nothing")
            begun, left = time.monotonic(), [event for event in one.events if event.what and event.at > 0.0]
            while process.is_alive() and (now := time.monotonic() - begun) < one.seconds:
                for event in [event for event in left if event.at <= now]:
                    left.remove(event)
                    self._happen(event, process)
                self._look(process)
                if now > WARM * (1 + os.getloadavg()[0] / 4):
                    self.seen.measure(process.pid)
            self.seen.sometimes["a long life"] += one.seconds > 2 * WARM
            self._end(process, number, one)
        finally:
            process.kill()
            process.join(LONG)
        self._over(number, process.exitcode)

    def _over(self, number: int, code: int | None) -> None:
        self.seen.died[number] = time.time() * 1000
        judge_life(self.seen, number, code)

    def _end(self, process: Any, number: int, one: LifePlan) -> None:
        end = one.end
        self.seen.ends[number] = "killed" if end in {"kill", "point", "request"} else "stopped"
        if end in {"stop", "hang up", "interrupt"} and process.is_alive():
            if end == "hang up":
                self._configure("all" if self._level == "basic" else "basic", one.namespace)
                self.seen.reloaded.add(number)
                os.kill(process.pid, signal.SIGHUP)
                self._pass(0.5, process)
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(process.pid, signal.SIGINT if end == "interrupt" else signal.SIGTERM)
            process.join(LONG)
            if process.exitcode is None:
                self.seen.fail("life: a signal ends an agent, whatever hangs", f"life {number}: not in {LONG:.0f} s")
            self.seen.sometimes["a life ends in order"] += process.exitcode == 0
        elif end == "request" and process.is_alive():
            self.servers.victim = process.pid
            for sink in self.servers.well:
                self.servers.be(sink, 1.0)
            process.join(1.0)
            self.servers.victim = None
        if end == "point" and process.exitcode == -signal.SIGKILL and one.kill:
            self.seen.sometimes[f"killed at {one.kill.point}"] += 1

    def _calm(self) -> None:
        """Let all be well, and wait until nothing is owed; each destination has its agent."""
        for name in ("disk", "ahead"):
            (self.folder / name).unlink(missing_ok=True)
        for sink in self.servers.well:
            self.servers.be(sink, 1.0)
        number = len(self.plan.lives)
        for namespace in dict.fromkeys(one.namespace for one in self.plan.lives):
            for _ in range(TRIES):
                self._calm_life(number, namespace)
                number += 1
                if not any(map(self.seen.owed_here, self.seen.spools())):
                    break
            self.seen.sometimes["points for another destination"] += any(books(path)[1] for path in self.seen.spools())

    def _calm_life(self, number: int, namespace: str) -> None:
        process = self._start(number, namespace, None)
        try:
            if not self._wait(lambda: self._output(number) or not process.is_alive()):
                self.seen.fail("life: an agent starts after any end of the last one", f"life {number}")
            self._pass(0.7, process)
            begun = {path: books(path)[0]["collected"] for path in self.seen.spools()}
            if not self._wait(lambda: all(books(path)[0]["collected"] > most for path, most in begun.items())):
                self.seen.fail("delivery: a window ends and waits in its spool", f"life {number}: {begun}")
            due = {path: books(path)[0]["collected"] - self.seen.owed_here(path) for path in self.seen.spools()}
            self._wait(lambda: all(self.seen.ended(path) >= most for path, most in due.items()))
            self.seen.measure(process.pid)
            if self.plan.options["processors"] and not (self.seen.jumps or self.seen.is_disk_bad):
                self._settle(number)
            self._ask(number)
            self.seen.ended_at = time.monotonic()
            process.terminate()
            process.join(LONG)
        finally:
            process.kill()
            process.join(LONG)
        self.seen.ends[number] = "stopped"
        self._over(number, process.exitcode)

    # -- what happens ------------------------------------------------------------------------------------------------

    def _happen(self, event: Event, process: Any) -> None:
        if event.what == "well":
            self.servers.be(event.of, float(str(event.value)))
        elif event.what == "disk":
            (self.folder / "disk").write_text(event.of)
            self.seen.is_disk_bad |= bool(event.of)
            self.seen.sometimes[f"a disk that is {event.of or 'well again'}"] += 1
        elif event.what == "clock":
            (self.folder / "ahead").write_text(str(event.value))
            self.seen.jumps += 1
        elif event.what == "machine":
            self.seen.sometimes[event.of] += 1
            self.machine.happen(event.of, int(str(event.value)))
        elif event.what == "level" and process:
            self._configure(event.of, self.seen.namespace)
            os.kill(process.pid, signal.SIGHUP)
            self.seen.reloaded.add(self.life)
            self.seen.sometimes["SIGHUP with another level"] += 1
        elif event.what == "status" and process:
            self._ask(-1)

    def _settle(self, number: int) -> None:
        """Wait until the agent knows who holds each GPU, and has the records of the jobs that ended."""
        told: dict[str, Any] = {}

        def is_settled() -> bool:
            with suppress(status_socket.NoAgent):
                told.update(status_socket.ask(self.folder / "state", "jobs", LONG))
            is_known = "a GPU is lost" in self.machine.happened or holders(told) == self.machine.holders
            return is_known and told.get("ended") == []

        if not self._wait(is_settled):
            text = f"life {number}: {holders(told)}, {told.get('ended')} of {self.machine.holders}"
            self.seen.fail("jobs: an agent finds who holds each GPU, and who ended", text)

    def _ask(self, number: int) -> None:
        """Ask the agent's socket, as `chipwatch status` and `chipwatch jobs` do."""
        try:
            told = status_socket.ask(self.folder / "state", "status", LONG)
            jobs = status_socket.ask(self.folder / "state", "jobs", LONG) if self.plan.options["processors"] else {}
        except status_socket.NoAgent as problem:
            if number >= 0:
                self.seen.fail("status: a running agent answers", f"life {number}: {problem}")
            return
        self.seen.answered(told, jobs)

    def _look(self, process: Any) -> None:
        self.machine.load()
        if self.servers.port and time.monotonic() > self._next.get("page", 0.0):
            self._next["page"] = time.monotonic() + 0.3
            self.seen.scraped(page(self.servers.port), self.life)
        for path in self.seen.spools():
            if time.monotonic() > self._next.get("books", 0.0):
                self._next["books"] = time.monotonic() + 0.4
                self.seen.balance(path)
        time.sleep(LOOK)

    def _pass(self, seconds: float, process: Any) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.is_alive():
            self._look(process)

    def _wait(self, condition: Callable[[], object]) -> bool:
        deadline = time.monotonic() + LONG
        while not (met := condition()) and time.monotonic() < deadline:
            self.machine.load()
            time.sleep(LOOK)
        return bool(met)

    # -- the process -------------------------------------------------------------------------------------------------

    def _output(self, number: int) -> int:
        file = self.folder / f"out.{number}"
        return file.stat().st_size if file.exists() else 0

    def _start(self, number: int, namespace: str, kill: life.Kill | None) -> Any:
        self.life, self.seen.namespace = number, namespace
        self._configure(self._level, namespace)
        words = ["--config", str(self.folder / "config.toml"), "--dim", "host=test"]
        if self.plan.options["record"]:
            words = [*words, "--record", str(self.folder / "run.chipwatch")]
        env = environment(**self.machine.environment(), SEARCH_BATCH=str(self.plan.options["batch"]),
                          NO_GCE_CHECK="true", PYTHONUNBUFFERED="1")  # fmt: skip
        env = {key: value for key, value in env.items() if "RECORDER" not in key}
        when = (self._began, AGO, PACE) if self.plan.paced else (self._began, 0, 1)
        process = self._made.Process(
            target=life.live, args=(self.folder, number, (words, env, when), kill), daemon=True
        )
        process.start()
        return process

    def _configure(self, level: str, namespace: str) -> None:
        options = self.plan.options
        lines = [
            f"sink = {json.dumps(self.plan.sinks)}", f"interval = {options['interval']}", f'level = "{level}"',
            f'spool = "{self.folder / "state"}"', f"spool_bytes = {options['spool_bytes']}",
            f"recorder = {json.dumps(options['recorder'])}", 'format = "json"', 'log_level = "info"',
            'no_collector = ["kernel", "disk"]',
        ]  # fmt: skip
        if not options["processors"]:
            lines.append('no_processor = ["jobs"]')
        tables = {"stdout": {}} | self.servers.options()
        for name, table in tables.items():
            lines += [f"[sinks.{name}]", "zeros = true", "max_series = 0"]
            lines += [f"{key} = {_toml(value)}" for key, value in table.items()]
            if name not in {"stdout", "prometheus"}:
                lines += [f"window = {options['window']}", "flush = 0"]
            if name == "otlp":
                lines.append(f'temporality = "{options["temporality"]}"')
            if name == "cloudwatch":
                lines.append(f'namespace = "{namespace}"')
        new = self.folder / "config.new"
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.folder / "config.toml")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {json.dumps(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def run(plan: Plan) -> Seen:
    """Run a plan in a new folder, in memory if there is one; return what was seen, with its failures."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    servers = Servers(plan.sinks, plan.seed)
    with tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as folder, servers:
        return Run(plan, Path(folder), servers).all()
