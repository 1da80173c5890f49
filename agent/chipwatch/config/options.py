"""The general options of the agent, its sinks and its collectors. The docstring of an option is its help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from chipwatch.config.convert import TIME
from chipwatch.contract.owner import OwnerLabel

LevelName = Literal["basic", "detailed", "all"]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86400, extra=TIME)]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options that every sink has, in the sink's own table."""

    type: str | None = None
    """Kind of sink, as installed; the table's name unless set. So there can be several of a kind."""
    window: Seconds | None = None
    """Seconds of samples that become one point; 0: each sample is a point."""
    flush: Seconds | None = None
    """Seconds between two sendings; 0: at once."""
    level: LevelName | None = None
    """Level of metrics for this sink: basic, detailed or all; the general level unless set."""
    include: tuple[str, ...] = ()
    """Globs of metric names: only these are sent."""
    exclude: tuple[str, ...] = ()
    """Globs of metric names: these are not sent."""
    max_series: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Limit of series to send, since each one costs; 0: no limit."""
    owner_labels: tuple[OwnerLabel, ...] | None = None
    """Dimensions that say who holds a device, on its points: pod, namespace, container, job, user, partition, hpc_job;
    none unless set, but on a page with the names of dcgm-exporter those that it has."""
    zeros: bool | None = None
    """Send counters that have not moved yet, too; unless set, only where series cost nothing, in JSON lines amounts."""


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """Options that every collector has, in the collector's own table."""

    required: bool = False
    """End with an error at the start where this collector finds nothing to read; unless set it is tried again."""
    retry: Annotated[float, msgspec.Meta(ge=1, le=86400, extra=TIME)] | None = None
    """Seconds after which a collector that finds nothing to read is tried again: 60 if it was asked for, else 300."""


@dataclass(frozen=True, slots=True)
class RecorderOptions:
    """Options of the recorder, in [recorder]."""

    keep: Annotated[float, msgspec.Meta(ge=60, le=86400, extra=TIME)] = 900.0
    """Seconds before an incident that its file has."""
    level: LevelName | None = None
    """Level of metrics to record: basic, detailed or all; unless set, what is read for the sinks."""


@dataclass(frozen=True, slots=True)
class Config:
    """The general options. Options of a plugin are in [collectors.NAME], [processors.NAME] or [sinks.NAME]."""

    sink: tuple[str, ...] = ()
    """Destinations: names of sinks, each a [sinks.NAME] or a kind of sink. Unless set: all [sinks.NAME] of the file,
    else standard output; with -- COMMAND nowhere, since standard output is the command's."""
    collector: tuple[str, ...] = ()
    """Collectors to run, by name; unless set, all that find something to read."""
    no_collector: tuple[str, ...] = ()
    """Collectors that do not run."""
    processor: tuple[str, ...] = ()
    """Processors to run, by name; unless set, all installed ones."""
    no_processor: tuple[str, ...] = ()
    """Processors that do not run."""
    interval: Annotated[float, msgspec.Meta(ge=0.1, le=86400, extra=TIME)] | None = None
    """Seconds between two readings: 5, or 1 with high_resolution_metrics."""
    window: Seconds | None = None
    """Seconds of samples that become one point, for every sink; each sink has its own default."""
    flush: Seconds | None = None
    """Seconds between two sendings, for every sink; each sink has its own default."""
    level: LevelName = "basic"
    """Level of metrics to collect: basic, detailed or all."""
    high_resolution_metrics: bool = False
    """Windows of one interval, which is 1 s unless set; sinks mark their points so."""
    common_dims: tuple[str, ...] = ()
    """Words for what this machine is (instance_id, instance_type, hostname, ...): dimensions of every point."""
    dims: Mapping[str, str] = field(default_factory=dict)
    """Further dimensions of every point, or values for the words above: a table of key = "value"."""
    names: str = "native"
    """Naming profile: native, or the names that dashboards of another tool know; several with commas: side by side."""
    stdin: str | None = None
    """Collector that reads standard input; it always runs."""
    pid: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Watch the tree of this process."""
    proc: Path = Path("/proc")
    """Mount point of the host's /proc."""
    sys: Path = Path("/sys")
    """Mount point of the host's /sys."""
    root: Path = Path("/")
    """Mount point of the host's /."""
    spool: Path | None = None
    """Folder for unsent points, on a local disk. Unless set: $STATE_DIRECTORY, /var/lib/chipwatch for
    root, ~/.local/state/chipwatch for others."""
    spool_bytes: Annotated[int, msgspec.Meta(ge=1 << 16)] = 128 << 20
    """Bytes that each sink's spool may hold; then the oldest points go."""
    drop_other_destinations: bool = False
    """Drop what the spool still holds for another destination (namespace, region, project); unless set it is kept
    apart, and sent when that destination is set again."""
    recorder: Mapping[str, Any] | bool = True
    """Keep the last minutes on disk, and an incident's for longer: false, or a table [recorder] with keep and level."""
    health: str | None = None
    """Serve /healthz and /readyz on HOST:PORT; nothing listens unless this is set."""
    format: str | None = None
    """Form of the standard output: auto, json or table."""
    namespace: str | None = None
    """Namespace of the metrics, for every sink that has one."""
    region: str | None = None
    """Cloud region, for every sink that has one; the environment's, else the instance's own, unless set."""
    project: str | None = None
    """Project to write to, for every sink that has one; the environment's, else the machine's own, unless set."""
    endpoint_url: str | None = None
    """Another address of the service, for every sink that has one: a VPC endpoint, a test server."""
    quiet: bool = False
    """Print no summary when the command after -- has ended."""
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    """Lowest level that is logged to standard error, with -- COMMAND to command.log in the state folder. Unless set:
    info; warning with --once, --duration, -- COMMAND, or points on standard output that is not a terminal."""
    log_format: Literal["text", "json"] = "text"
    """Form of the log: text, which suits a terminal, journald or a file; or json, an object a line."""
    collectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    processors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Option -> where its value was given, as errors name it: `--level`, `CHIPWATCH_LEVEL`, `chipwatch.toml: level`."""


TABLES: Final = ("collectors", "processors", "sinks")
