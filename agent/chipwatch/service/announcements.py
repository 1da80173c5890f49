"""Logs what a run collects and where it sends, and at its end what became of its points."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from chipwatch.base.redaction import one_line
from chipwatch.base.text import duration
from chipwatch.base.version import __version__
from chipwatch.config.options import Config
from chipwatch.engine.build import window_length
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.notices import NOTICES
from chipwatch.engine.route import Route
from chipwatch.engine.sampler import Sampler

log = logging.getLogger(__name__)


class Announcements:
    """Logs the start of a run, once its collectors have answered, and its end."""

    def __init__(self, config: Config, pipeline: Pipeline, folder: Path | None) -> None:
        """Count points from now on. `folder` holds the unsent points of durable sinks; None if they are in memory."""
        self._config, self._pipeline, self._folder = config, pipeline, folder
        self._before = {route.name: route.spool.ledger.totals() for route in pipeline.routes}
        pipeline.listeners.append(self._start)  # before the first points are sent: a screen stays below these lines

    def _start(self, *_: object) -> None:
        samplers = [sampler for sampler in self._pipeline.samplers if sampler.name != "agent"]
        waiting = any(sampler.ok is None and sampler.unavailable is None for sampler in samplers)
        if waiting and not self._pipeline.ticks:
            return
        self._pipeline.listeners.remove(self._start)
        collected = ", ".join(_named(sampler) for sampler in samplers if sampler.ok)
        every = f" every {_seconds(self._config.interval or 0)}"
        log.info("%s collects %s", __version__, f"{collected}{every}" if collected else "nothing so far")
        for route in self._pipeline.routes:
            sink = route.worker.sink
            if not (sink.limits.standard_output or sink.limits.scraped):  # what these send is plain to see
                log.info("%s", self._where(route))

    def _where(self, route: Route) -> str:
        sink, interval = route.worker.sink, self._config.interval or 0.0
        step = max(window_length(route.name, sink, self._config), interval)
        every = "a point a minute" if step == 60 else f"a point every {_seconds(step)}"
        text = ", ".join(filter(None, (route.worker.describe(), f"{every} for each series")))
        if first := route.first_points(interval):
            text += f"; first points in about {_seconds(first)}"
        if sink.limits.durable:
            where = self._folder if route.spool.file.store else "memory only"
            kept = self._before[route.name]["kept"]
            text += f"; unsent points are kept in {where} (now {kept:,})"
        return f"{route.name}: {text}"

    def end(self, *, once: bool = False) -> None:
        """
        Log what became of the points of this run; a warning if some were rejected, dropped or kept.

        With `once`, after a single reading, a sink that could not send has already logged its error: no warning.
        """
        for route in self._pipeline.routes:
            now, before = route.spool.ledger.totals(), self._before[route.name]
            counts = {word: n - before[word] for word, n in now.items() if word != "kept"} | {"kept": now["kept"]}
            unsent = any(n for word, n in counts.items() if NOTICES["sink"][word].level >= logging.WARNING)
            if before["kept"]:
                counts["kept before"] = before["kept"]
            shown = (f"{word} {n:,}" for word, n in counts.items() if n or word != "dropped")
            worker = route.worker
            is_well = worker.health.is_closed or not unsent or (once and worker.health.last_error)
            level = logging.INFO if is_well else logging.WARNING
            name = f"{route.name}: " if len(self._pipeline.routes) > 1 else ""
            log.log(level, "stopping: %s%s", name, ", ".join(shown))


def _named(sampler: Sampler) -> str:
    """Return the collector's name with what it found: `nvidia (8 x H100 80GB)`."""
    count = re.match(r"\d[^,;]*", sampler.found or "")
    return f"{sampler.name} ({one_line(count[0])})" if count else sampler.name


def _seconds(seconds: float) -> str:
    return duration(seconds, 2) if seconds >= 60 else f"{seconds:g} s"
