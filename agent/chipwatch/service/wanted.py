"""Checks that all that the user asked for is there: folders, a process, collectors, deliveries."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from chipwatch.config.load import asked_collectors, required_collectors, sink_options
from chipwatch.config.options import Config
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.owner import Owner
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.sampler import Sampler
from chipwatch.host.owners import Owners

log = logging.getLogger(__name__)

PROC: Final = ("stat", "sys", "meminfo", "self", "mounts", "version", "cpuinfo", "net", "loadavg", "driver")
"""Every /proc has at least one of these names."""
SYS: Final = ("class", "devices", "bus", "fs", "block", "module", "kernel", "dev", "firmware")
"""Every /sys has at least one of these names."""
IDLE: Final = frozenset(("openmetrics", "textfile", *(() if sys.platform == "darwin" else ("apple",))))
"""Collectors that find nothing on this system or without options; a run does not load them unless asked."""


def spared(config: Config) -> frozenset[str]:
    """Return the collectors that this run does not load; none if a sink has `include`, which may name their metrics."""
    names = {name for names in asked_collectors(config) for name in names}
    return frozenset() if any(sink_options(name, config).include for name in config.sink) else IDLE - names


def check_places(config: Config) -> None:
    """Raise ConfigError if --proc, --sys or --root is a wrong folder, or if there is no process --pid."""
    for option, place, of_host, names in (
        ("proc", config.proc, "/proc", PROC), ("sys", config.sys, "/sys", SYS), ("root", config.root, "/", [""]),
    ):  # fmt: skip
        if place != Path(of_host) and not (place.is_dir() and any((place / name).exists() for name in names)):
            why = "it has none of the files of" if place.is_dir() else "it is not a folder, so it cannot be"
            label = config.sources.get(option, option)
            raise ConfigError(f"{label} {place}: {why} the host's {of_host}; set it to where that is mounted")
    if config.pid is not None and not _is_there(config.pid, config.proc):
        label = config.sources.get("pid", "pid")
        raise ConfigError(f"{label} {config.pid}: no such process; see `ps -e`, or start it by `chipwatch -- COMMAND`")


def owner_of_watched(config: Config, *, wrapped: bool = False) -> Owner | None:
    """Return the owner of the process --pid, or of this one if `wrapped`; None if unknown or ended."""
    if sys.platform != "linux" or not (wrapped or config.pid):
        return None
    proc, pid = (Path("/proc"), os.getpid()) if wrapped or not config.pid else (config.proc, config.pid)
    process = Owners(proc, config.root, config.root / "var/log", config.sys).process(pid)
    return process and process.owner


def _is_there(pid: int, proc: Path) -> bool:
    if sys.platform == "linux":
        return (proc / str(pid)).is_dir()
    import psutil

    return psutil.pid_exists(pid)


def absent(samplers: Mapping[str, Sampler], names: tuple[str, ...]) -> str | None:
    """Return why all of the collectors `names` are unavailable; None if one is available or has not answered yet."""
    named = [samplers[name] for name in names if name in samplers]
    if any(sampler.unavailable is None for sampler in named):
        return None
    return "; ".join(f"{sampler.name}: {sampler.unavailable}" for sampler in named) or None


class Wanted:
    """
    Stops a run after its first tick if a collector that it needs is unavailable.

    A finite run needs every collector that was asked for. Other runs need only `required` ones: a driver that is
    installed after the boot must not make a systemd unit restart for ever.
    """

    def __init__(self, config: Config, pipeline: Pipeline, *, brief: bool) -> None:
        self._pipeline = pipeline
        self._samplers = {sampler.name: sampler for sampler in pipeline.samplers}
        asked, self._pending = asked_collectors(config), required_collectors(config)
        if brief:
            self._pending = asked
        waited_for = {name for names in self._pending for name in names}
        alone = {names[0] for names in asked if len(names) == 1} & self._samplers.keys()  # of a family, most are absent
        for name in alone - waited_for:
            self._samplers[name].absence_level = logging.WARNING
        self._before = {route.name: route.spool.ledger.sent for route in pipeline.routes}
        self.missing = False
        """True once a needed collector was unavailable."""

    def look(self, *_: object) -> None:
        """Log missing collectors and stop the run; called after each reading."""
        for names in [*self._pending]:
            if why := absent(self._samplers, names):
                log.error("%s", why)
                self.missing = True
                self._pipeline.stop()
            if why or any(self._samplers[name].ok for name in names if name in self._samplers):
                self._pending.remove(names)

    def undelivered(self) -> Iterator[str]:
        """Yield a sentence for each sink that sent nothing since the start, unless its worker has logged why."""
        for route in self._pipeline.routes:
            ledger = route.spool.ledger
            if ledger.sent == self._before[route.name] and not route.worker.health.last_error:
                why = str(ledger) if ledger.collected else self._nothing_read()
                yield f"{route.name}: nothing was delivered: {why}"

    def _nothing_read(self) -> str:
        """Return why there was no point to deliver."""
        samplers = self._samplers.values()
        failed = [f"{one.name}: {one.trouble or 'its reading has not returned'}" for one in samplers if one.ok is False]
        left_out = [f"{one.name}: {one.trouble}" for one in samplers if one.trouble and not one.yielded]
        if absent(self._samplers, tuple(name for name in self._samplers if name != "agent")):
            return "no collector finds anything to read; see `chipwatch check`"
        if failed:
            return f"collectors failed: {'; '.join(failed)}"
        if left_out:
            return "; ".join(left_out)
        if not self._pipeline.ticks:
            return "it was stopped before its reading ended"
        return "level, include and exclude leave out every reading"
