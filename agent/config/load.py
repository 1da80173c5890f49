"""TOML + environment + flags -> one frozen Config; what is unknown or of the wrong type is refused with its path."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from agent.config import plugins
from agent.config.convert import ConfigError, convert, is_list, nearest, value_of
from agent.datapoint import Level
from agent.identity.names import WORDS
from agent.logs.text import is_address, is_utf8

log = logging.getLogger(__name__)

PREFIX: Final = "CHIPWATCH_"
T = TypeVar("T")
LevelName = Literal["basic", "detailed", "all"]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86400)]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What the frame does for any sink; stands in the sink's own table."""

    type: str | None = None
    """Kind of sink, as installed; the table's name unless set. So there can be several of a kind."""
    window: Seconds | None = None
    """Seconds of samples that become one point; 0: each sample is a point."""
    flush: Seconds | None = None
    """Seconds between two sendings; 0: at once."""
    level: LevelName | None = None
    """How much this sink wants: basic, detailed or all; the general level unless set."""
    include: tuple[str, ...] = ()
    """Globs of metric names: only these are sent."""
    exclude: tuple[str, ...] = ()
    """Globs of metric names: these are not sent."""
    max_series: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many series may be sent, since each one costs; 0: no limit."""


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """What the frame does for any collector; stands in the collector's own table."""

    required: bool = False
    """End with an error at the start where this collector finds nothing to read; unless set it is tried again."""
    retry: Annotated[float, msgspec.Meta(ge=1, le=86400)] | None = None
    """Seconds after which a collector that finds nothing to read is tried again: 60 if it was asked for, else 300."""


@dataclass(frozen=True, slots=True)
class Config:
    """The general options; a plugin's stand in [collectors.NAME], [processors.NAME] or [sinks.NAME]."""

    sink: tuple[str, ...] = ()
    """Where to send: names of sinks, each a [sinks.NAME] or a kind of sink. Unless set: all [sinks.NAME] of the file,
    else standard output; with -- COMMAND nowhere, since standard output is the command's."""
    collector: tuple[str, ...] = ()
    """What to read: names of collectors; all that find something to read unless set."""
    no_collector: tuple[str, ...] = ()
    """What not to read."""
    processor: tuple[str, ...] = ()
    """What to derive from the readings: names of processors; all that are installed unless set."""
    no_processor: tuple[str, ...] = ()
    """What not to derive."""
    interval: Annotated[float, msgspec.Meta(ge=0.1, le=86400)] | None = None
    """Seconds between two readings: 5, or 1 with high_resolution_metrics."""
    window: Seconds | None = None
    """Seconds of samples that become one point, for every sink; each sink has its own default."""
    flush: Seconds | None = None
    """Seconds between two sendings, for every sink; each sink has its own default."""
    level: LevelName = "basic"
    """How much to collect: basic, detailed or all."""
    high_resolution_metrics: bool = False
    """Windows of one interval, which is 1 s unless set; sinks mark their points so."""
    common_dims: tuple[str, ...] = ()
    """Words for what this machine is (instance_id, instance_type, hostname, ...): dimensions of every point."""
    dims: Mapping[str, str] = field(default_factory=dict)
    """Further dimensions of every point, or values for the words above: a table of key = "value"."""
    names: str = "native"
    """Naming profile: native, or the names that dashboards of another tool know."""
    stdin: str | None = None
    """Collector that reads standard input; it always runs."""
    pid: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Watch the tree of this process."""
    proc: Path = Path("/proc")
    """Where the host's /proc is mounted."""
    sys: Path = Path("/sys")
    """Where the host's /sys is mounted."""
    root: Path = Path("/")
    """Where the host's / is mounted."""
    spool: Path | None = None
    """Folder for what is owed to durable sinks; a local disk. Unless set: $STATE_DIRECTORY, /var/lib/chipwatch for
    root, ~/.local/state/chipwatch for others."""
    spool_bytes: Annotated[int, msgspec.Meta(ge=1 << 16)] = 128 << 20
    """Bytes that each sink's spool may hold; then the oldest points go."""
    drop_other_destinations: bool = False
    """Drop what the spool still holds for another destination (namespace, region, project); unless set it is kept
    apart, and sent when that destination is set again."""
    health: str | None = None
    """Serve /healthz and /readyz on HOST:PORT; nothing listens unless this is set."""
    format: str | None = None
    """Form of the standard output: auto, json, table or emf."""
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
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """What is logged to standard error; with -- COMMAND to command.log in the state folder."""
    collectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    processors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


TABLES: Final = ("collectors", "processors", "sinks")
DEFAULT_SINK: Final = "stdout"
SINK_NAME: Final = re.compile("[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
"""A name that may be that of a file, and a part of a variable's that `__` ends."""
SERVICE: Final = re.compile(r"(.*_)?(service_host|service_port(_.*)?|port(_\d+_(tcp|udp|sctp)(_(proto|port|addr))?)?)")
"""
What Kubernetes sets for a service, which may be called chipwatch, too:
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""


def read_file(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise ConfigError."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror or problem}") from problem
    except ValueError as problem:  # also a number of more digits than Python reads
        raise ConfigError(f"{path}: not TOML: {problem}") from problem
    except RecursionError:
        raise ConfigError(f"{path}: not a configuration: its values are nested too deep") from None


def from_environment(shape: type, env: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """
    Return what the variables `prefix`KEY say, as the types of `shape`; raise ConfigError naming the variable.

    Lists are separated by commas, tables are reached by a double underscore; an empty variable is as good as none.
    """
    hints = typing.get_type_hints(shape, include_extras=True)
    found: dict[str, Any] = {}
    for name, text in env.items():
        if not (name.startswith(prefix) and text):
            continue
        key, _, rest = name.removeprefix(prefix).lower().partition("__")
        if shape is Config and (key == "config" or (key in TABLES and rest)):
            continue  # read elsewhere
        hint = hints.get(key)
        if hint is None or (shape is Config and key in TABLES):
            if not SERVICE.fullmatch(key):
                log.warning("%s is ignored: no such option%s", name, nearest(key, set(hints) - {*TABLES}))
        elif rest:
            found.setdefault(key, {})[rest] = text
        elif is_list(hint):
            found[key] = value_of(hint, [part.strip() for part in text.split(",") if part.strip()], name)
        else:
            found[key] = value_of(hint, text, name, strict=False)
    return found


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers laid over each other, the last one on top; tables are merged key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def load(
    file: Path | None, flags: Mapping[str, Any], env: Mapping[str, str] | None = None, *, wraps: bool = False
) -> Config:
    """
    Return the configuration: flags over the environment over `file`; raise ConfigError.

    `wraps` says that standard output belongs to a command: then it is the default sink only if it has options.
    """
    env = os.environ if env is None else env
    for name, text in env.items():
        if name.startswith(PREFIX) and not is_utf8(name + text):
            raise ConfigError(f"{name}: expected UTF-8, got {text!a}")
    if file is None and env.get(f"{PREFIX}CONFIG"):
        file = Path(env[f"{PREFIX}CONFIG"])
    tables = read_file(file) if file else {}
    layers = merge(tables, from_environment(Config, env, PREFIX), flags)
    config = convert(Config, layers, "")
    for group in ("collectors", "processors"):
        kind, installed = group[:-1], plugins.installed(f"agent.{group}")
        for name in (*getattr(config, group), *getattr(config, kind), *getattr(config, f"no_{kind}")):
            if name not in installed:
                raise ConfigError(f"{group}.{name}: no such {kind}{nearest(name, installed)}")
    installed = plugins.installed(plugins.COLLECTORS)
    if config.stdin is not None and config.stdin not in installed:
        raise ConfigError(f"stdin: no such collector {config.stdin!r}{nearest(config.stdin, installed)}")
    _check_sinks(config, env)
    for word in config.common_dims:
        if word not in WORDS:
            raise ConfigError(f"common_dims: no such word {word!r}{nearest(word, WORDS)}")
    has_options = config.format or any(name.startswith(_variables("sinks", DEFAULT_SINK)) for name in env)
    default = () if wraps and not has_options else (DEFAULT_SINK,)
    sink = config.sink or tuple(tables.get("sinks", ())) or default
    interval = config.interval or (1.0 if config.high_resolution_metrics else 5.0)
    return dataclasses.replace(config, sink=tuple(dict.fromkeys(sink)), interval=interval)


def _check_sinks(config: Config, env: Mapping[str, str]) -> None:
    """Raise ConfigError for a sink of no installed type, and for a name that is no file's or not one variable's."""
    installed = plugins.installed(plugins.SINKS)
    variables: dict[str, str] = {}
    for name in dict.fromkeys((*config.sinks, *config.sink)):
        if (kind := sink_type(name, config, env)) not in installed:
            if kind != name:
                raise ConfigError(f"sinks.{name}.type: no such sink {kind!r}{nearest(kind, installed)}")
            raise ConfigError(f"sinks.{name}: no such sink{nearest(name, installed)} (or set type in [sinks.{name}])")
        if name not in installed and not SINK_NAME.fullmatch(name):
            raise ConfigError(f"sinks.{name}: a sink's name is letters and digits, with single - or _ between them")
        if (other := variables.setdefault(_variables("sinks", name), name)) != name:
            raise ConfigError(f"sinks.{name}: too like sinks.{other}: both would be {_variables('sinks', name)}...")


def plugin_config(cls: Any, group: str, name: str, config: Config, env: Mapping[str, str] | None = None) -> Any:
    """Return the Config of the plugin `cls`, from its table, its environment and the general options it shares."""
    table = {k: v for k, v in getattr(config, group).get(name, {}).items() if k not in FRAME_KEYS.get(group, ())}
    given = merge(table, _own_environment(cls.Config, group, name, env))
    general: dict[str, Any] = {key: getattr(config, key) for key in SHARED}
    general["high_resolution"] = config.high_resolution_metrics or None
    hints = typing.get_type_hints(cls.Config)
    general |= {word: True for word in config.common_dims if hints.get(word) is bool}
    if group == "collectors" and config.stdin == name:
        general["stdin"] = True
        if "stdin" not in hints:
            raise ConfigError(f"stdin: the collector {name} does not read standard input")
    shared = {key: value for key, value in general.items() if key in hints and value is not None}
    made = convert(cls.Config, shared | given, f"{group}.{name}")
    if not is_address(getattr(made, "endpoint_url", None) or "http://host"):
        raise ConfigError(f"{group}.{name}.endpoint_url: expected http://HOST:PORT, or https, without spaces")
    return made


def sink_type(name: str, config: Config, env: Mapping[str, str] | None = None) -> str:
    """Return the installed kind of the sink `name`: its `type`, else its name."""
    return sink_options(name, config, env).type or name


def sink_options(name: str, config: Config, env: Mapping[str, str] | None = None) -> SinkOptions:
    """Return what the frame is to do for the sink `name`."""
    table = {k: v for k, v in config.sinks.get(name, {}).items() if k in SINK_KEYS}
    options = convert(SinkOptions, merge(table, _own_environment(SinkOptions, "sinks", name, env)), f"sinks.{name}")
    window = options.window if options.window is not None else config.window
    if config.high_resolution_metrics and window is None:
        window = config.interval
    flush = options.flush if options.flush is not None else config.flush
    return dataclasses.replace(options, window=window, flush=flush, level=options.level or config.level)


def collector_options(name: str, config: Config, env: Mapping[str, str] | None = None) -> CollectorOptions:
    """Return what the frame is to do for the collector `name`."""
    table = {k: v for k, v in config.collectors.get(name, {}).items() if k in FRAME_KEYS["collectors"]}
    given = merge(table, _own_environment(CollectorOptions, "collectors", name, env))
    return convert(CollectorOptions, given, f"collectors.{name}")


def required_collectors(config: Config) -> list[tuple[str, ...]]:
    """Return the collectors without which the agent is not to run, each alone in a tuple."""
    names = plugins.installed(plugins.COLLECTORS)
    return [(name,) for name in names if collector_options(name, config).required]


def asked_collectors(config: Config) -> list[tuple[str, ...]]:
    """Return the collectors that the configuration asks for; of those in one tuple one is enough."""
    fed = (config.stdin,) if config.stdin else ()
    return [*dict.fromkeys([*required_collectors(config), *((name,) for name in (*config.collector, *fed))])]


SHARED: Final = ("interval", "proc", "sys", "root", "pid", "format", "namespace", "region", "project", "endpoint_url")
"""General options that reach every plugin whose Config has a field of that name, unless its own table says else."""
SINK_KEYS: Final = frozenset(f.name for f in dataclasses.fields(SinkOptions))
FRAME_OPTIONS: Final = {"sinks": SinkOptions, "collectors": CollectorOptions}
FRAME_KEYS: Final = {group: frozenset(f.name for f in dataclasses.fields(of)) for group, of in FRAME_OPTIONS.items()}


def _variables(group: str, name: str) -> str:
    """Return what the environment variables of a plugin begin with."""
    return f"{PREFIX}{group}__{name}__".upper().replace("-", "_")


def _own_environment(shape: type, group: str, name: str, env: Mapping[str, str] | None) -> dict[str, Any]:
    """Return what the environment says of a plugin, as far as `shape` has it; raise ConfigError."""
    prefix = _variables(group, name)
    keys = {f.name for f in dataclasses.fields(shape)}
    known = keys | FRAME_KEYS.get(group, set())
    own = {}
    for variable, text in (os.environ if env is None else env).items():
        key = variable.removeprefix(prefix).lower().partition("__")[0]
        if not variable.startswith(prefix):
            continue
        if key in keys:
            own[variable] = text
        elif shape is not FRAME_OPTIONS.get(group) and key not in known:
            raise ConfigError(f"{variable}: no such option{nearest(key, known)}")
    return from_environment(shape, own, prefix)


def level_of(name: LevelName) -> Level:
    """Return the level of that name."""
    return Level[name.upper()]
