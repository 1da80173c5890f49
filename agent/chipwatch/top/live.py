"""Samples this machine for the screen, with the collectors and samplers of `agent run`."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from chipwatch.config.instances import build_collectors, build_processors
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.extensions import Answers, DeviceFacts, DeviceProcess
from chipwatch.contract.owner import JobFacts
from chipwatch.contract.processor import Processor
from chipwatch.pipeline.build import build_sources
from chipwatch.pipeline.clock import Pipeline
from chipwatch.pipeline.window import Window
from chipwatch.report.devices import DeviceState, Key, device_states, key_of
from chipwatch.top.machine import ListedProcess

if TYPE_CHECKING:
    import psutil

FIRST_PAUSE: Final = 0.3
"""Seconds from the first reading to the second: a rate needs two."""
MOST_PROCESSES: Final = 1000
"""Processes that are taken from one collector."""
MOST_COMMAND: Final = 300
"""Characters of a command line."""


class Frame(NamedTuple):
    """One tick."""

    at: int
    points: list[Datapoint]
    processes: list[ListedProcess] | None = None
    models: Mapping[Dimensions, str] = {}
    troubles: tuple[str, ...] = ()
    holding: Mapping[Key, DeviceState] = {}


class FactsOfTick(Processor):
    """Derives nothing; has the facts of the last tick, which name models, processes and their jobs."""

    facts: Sequence[object] = ()

    def derive(self, tick: Sequence[Datapoint], at: int) -> Iterable[Datapoint]:
        del tick, at
        return ()


class Users:
    """Finds the owner, the command and the CPU usage of processes."""

    def __init__(self, proc: str) -> None:
        """Take the place of the host's /proc."""
        self._proc = proc
        self._known: dict[int, tuple[psutil.Process, str, str]] = {}

    def named(self, processes: Iterable[DeviceProcess]) -> list[ListedProcess]:
        """Return the processes with their users, commands and CPU usage; forget others."""
        import psutil  # noqa: PLC0415  # needed only for processes

        psutil.PROCFS_PATH = self._proc  # which only Linux reads
        rows, seen = [], {}
        for listed in processes:
            user, command, cpu = "", "", None
            try:
                seen[listed.pid] = self._known.get(listed.pid) or self._of(listed.pid)
                process, user, command = seen[listed.pid]
                cpu = process.cpu_percent()
            except (psutil.NoSuchProcess, ValueError):  # a number below 0
                user, command = "", "(not a process here: it has ended, or is of another container)"
            except psutil.Error:
                user, command = "", "(not permitted)"
            key, pid, memory, share = key_of(listed.dims), listed.pid, listed.memory, listed.utilization
            rows.append(ListedProcess(key, pid, user, memory, share, cpu, command))
        self._known = seen
        return rows

    def _of(self, pid: int) -> tuple[psutil.Process, str, str]:
        import psutil  # noqa: PLC0415

        process = psutil.Process(pid)
        with process.oneshot():
            user, words = process.username(), process.cmdline() or [f"[{process.name()}]"]
        return process, user, " ".join(words)[:MOST_COMMAND]


class Live:
    """Reads all collectors each `interval` seconds on a separate thread, and puts frames on a queue."""

    rewound = False

    def __init__(self, config: Config, interval: float, wake: Callable[[], None]) -> None:
        """Read what the configuration asks for; `wake` is called after each frame."""
        self._config, self._interval, self._wake = config, interval, wake
        self._window = Window(0, born=time.time_ns())
        self._users = Users(str(config.proc))
        self._stop = threading.Event()
        self._facts = FactsOfTick()
        self._devices: dict[str, DeviceFacts] = {}
        """Collector -> its last facts."""
        self._pipeline: Pipeline | None = None
        self.frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()

    def start(self) -> None:
        """Build the collectors and start reading; raise ConfigError or NotLoaded."""
        config = self._config
        collectors, processors = build_collectors(config), {**build_processors(config), "top": self._facts}
        samplers, derivations, readings = build_sources(collectors, processors, config, least=Level.ALL)
        pipeline = Pipeline(samplers, (), readings, interval=self._interval, derivations=derivations)
        self._pipeline = pipeline
        pipeline.start()
        threading.Thread(target=self._run, args=(pipeline,), name="top", daemon=True).start()

    def new(self) -> Iterator[Frame]:
        """Yield the frames that have come since the last call."""
        while not self.frames.empty():
            yield self.frames.get()

    def press(self, key: str) -> None:
        """Ignore the key: live readings cannot be wound."""

    def due(self) -> float:
        """Return the seconds until something happens without a call of `wake`."""
        return 60.0

    def mode(self) -> str:
        """Return the interval."""
        return f"{self._interval:g} s"

    def close(self) -> None:
        """Stop reading; a collector that hangs is left behind."""
        self._stop.set()
        if self._pipeline:
            self._pipeline.stop()
            self._pipeline.close(0)

    def _run(self, pipeline: Pipeline) -> None:
        pause, due = min(FIRST_PAUSE, self._interval), time.monotonic()
        while not self._stop.is_set():
            at = time.time_ns()
            points = self._window.add(pipeline.gather(at), at)
            troubles = tuple(self._troubles(pipeline))
            self._devices |= {fact.source: fact for fact in self._facts.facts if isinstance(fact, DeviceFacts)}
            present = [sampler.name for sampler in pipeline.samplers if sampler.unavailable is None]
            facts = [self._devices[name] for name in present if name in self._devices]
            models = {device.dims: device.model for fact in facts for device in fact.devices if device.model}
            self.frames.put(Frame(at, points, self._processes(facts), models, troubles, self._holding(pipeline)))
            self._wake()
            due = max(due + pause, time.monotonic())
            pause = self._interval
            self._stop.wait(due - time.monotonic())

    def _processes(self, facts: Sequence[DeviceFacts]) -> list[ListedProcess] | None:
        lists = [fact.processes[:MOST_PROCESSES] for fact in facts if fact.processes is not None]
        if not lists:
            return None
        owners = [fact.owners for fact in self._facts.facts if isinstance(fact, JobFacts)]
        jobs = {pid: owner.job for each in owners for pid, owner in each.items()}
        rows = self._users.named(process for listed in lists for process in listed)
        return [row._replace(job=jobs.get(row.pid, "")) for row in rows]

    def _holding(self, pipeline: Pipeline) -> dict[Key, DeviceState]:
        processors = (derivation.processor for derivation in pipeline.derivations)
        answers = (processor.answer() for processor in processors if isinstance(processor, Answers))
        return {device.key: device for answer in answers for device in device_states(answer)}

    def _troubles(self, pipeline: Pipeline) -> Iterator[str]:
        for sampler in pipeline.samplers:
            if sampler.unavailable and sampler.name in self._config.collector:
                yield f"{sampler.name}: {sampler.unavailable}"
            elif sampler.ok is False:
                yield f"{sampler.name}: {sampler.trouble or 'its last reading has not returned'}"
            elif sampler.trouble:
                yield f"{sampler.name}: {sampler.trouble}"
