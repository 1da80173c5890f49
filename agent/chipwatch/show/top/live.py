"""Reads this machine for the screen, with the same collectors and samplers as `chipwatch run`."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from chipwatch.base.redaction import one_line
from chipwatch.config.instances import build_collectors, build_processors
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.facts import DeviceFacts
from chipwatch.contract.owner import JobFacts
from chipwatch.contract.plugin import Needs
from chipwatch.contract.processor import Processor
from chipwatch.engine.build import build_sources
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.window import Window
from chipwatch.jobs.device_key import DeviceKey
from chipwatch.show.report.devices import DeviceState, device_states
from chipwatch.show.top.machine import ListedProcess
from chipwatch.show.top.processes import ProcessTable

FIRST_PAUSE: Final = 0.3
"""Seconds from the first reading to the second; a rate needs two."""
MOST_PROCESSES: Final = 1000
"""Most processes of one collector."""


class Frame(NamedTuple):
    """All that one tick brings to the screen."""

    at: int
    points: list[Datapoint]
    processes: Sequence[ListedProcess] = ()
    models: Mapping[Dimensions, str] = {}
    troubles: tuple[str, ...] = ()
    holding: Mapping[DeviceKey, DeviceState] = {}
    why: tuple[str, ...] = ()
    """Why the first slow job is slow, in a sentence; empty if none is."""


class FactsOfTick(Processor):
    """Keeps the facts of the last tick, which name processes and their jobs; derives no points."""

    needs = Needs(facts=True)

    last: Sequence[object] = ()

    def derive(self, tick: Sequence[Datapoint], at: int, facts: Sequence[object]) -> Iterable[Datapoint]:
        del tick, at
        self.last = facts
        return ()


class Source(Protocol):
    """Where the content of the screen comes from: frames of a machine, or lines about many machines."""

    def start(self) -> None:
        """Start reading."""
        return

    def due(self) -> float:
        """Return the seconds until there may be something new without a call of `wake`."""
        return 60.0

    def mode(self) -> str:
        """Return a text for the header: the interval, or the position in a recording."""

    def close(self) -> None:
        """Stop reading."""
        return


class Live(Source):
    """Reads all collectors every `interval` seconds on a separate thread, and queues a frame each time."""

    rewound = False

    def __init__(self, config: Config, interval: float, wake: Callable[[], None]) -> None:
        """`wake` is called after each frame."""
        self._config, self._interval, self._wake = config, interval, wake
        self._window = Window(0, born=time.time_ns())
        self._table = ProcessTable(str(config.proc), config.root)
        self._stop = threading.Event()
        self._facts = FactsOfTick()
        self._pipeline: Pipeline | None = None
        self.frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()

    def start(self) -> None:
        """Build the collectors and start reading; raise ConfigError or NotLoaded."""
        config = self._config
        collectors, processors = build_collectors(config), {**build_processors(config), "top": self._facts}
        samplers, derivations = build_sources(collectors, processors, config, least=Level.ALL)
        self._pipeline = Pipeline(samplers, (), interval=self._interval, derivations=derivations)
        self._pipeline.start()
        threading.Thread(target=self._follow, args=(min(FIRST_PAUSE, self._interval),), name="top", daemon=True).start()

    def new(self) -> Iterator[Frame]:
        """Yield the frames since the last call."""
        while not self.frames.empty():
            yield self.frames.get()

    def press(self, key: str) -> None:
        """Ignore the key: only a recording can be wound."""

    def mode(self) -> str:
        """Return the interval."""
        return f"{self._interval:g} s"

    def close(self) -> None:
        """Stop reading; a collector that hangs is left behind."""
        self._stop.set()
        if self._pipeline:
            self._pipeline.close()

    def _follow(self, pause: float) -> None:
        """Queue a frame for each reading; `pause`: seconds from the first one to the second."""
        due = time.monotonic()
        while not self._stop.is_set():
            self.frames.put(self._frame(time.time_ns()))
            self._wake()
            due, pause = max(due + pause, time.monotonic()), self._interval
            self._stop.wait(due - time.monotonic())

    def _frame(self, at: int) -> Frame:
        """Read all at `at` (ns since the epoch)."""
        assert self._pipeline
        points = self._window.add(self._pipeline.gather(at), at)
        present = [sampler.name for sampler in self._pipeline.samplers if sampler.unavailable is None]
        facts = [self._pipeline.devices[name] for name in present if name in self._pipeline.devices]
        models = {device.dims: device.model for fact in facts for device in fact.devices if device.model}
        answers = [derivation.processor.answer() for derivation in self._pipeline.derivations]
        holding = {device.key: device for answer in answers for device in device_states(answer)}
        jobs = (job for answer in answers for job in answer.get("jobs", ()) if job.get("why", {}).get("causes"))
        why = tuple(one_line(f"{job['job']}: {job['why']['sentence']}") for job in jobs)
        return Frame(at, points, self._processes(facts), models, (*self._troubles(self._pipeline),), holding, why[:1])

    def _processes(self, facts: Sequence[DeviceFacts]) -> list[ListedProcess]:
        if not (lists := [fact.processes[:MOST_PROCESSES] for fact in facts if fact.processes is not None]):
            return self._table.of_host()
        owners = [fact.owners for fact in self._facts.last if isinstance(fact, JobFacts)]
        jobs = {pid: owner.job for each in owners for pid, owner in each.items()}
        rows = self._table.on_devices(process for listed in lists for process in listed)
        return [row._replace(job=jobs.get(row.pid, "")) for row in rows]

    def _troubles(self, pipeline: Pipeline) -> Iterator[str]:
        for sampler in pipeline.samplers:
            absent = sampler.unavailable if sampler.name in self._config.collector else None
            silent = "its last reading has not returned" if sampler.ok is False else None
            if why := absent or sampler.trouble or silent:
                yield f"{sampler.name}: {why}"
