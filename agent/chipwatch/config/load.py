"""Loads the configuration from a TOML file, the environment and flags; an error names the place of a wrong value."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from chipwatch.base.text import in_case_of, nearest
from chipwatch.config import plugins
from chipwatch.config.convert import convert, needed_of, options_of, path_of, refusal, values_of, variables_of
from chipwatch.config.file import PREFIX, read_file
from chipwatch.config.identity.names import WORDS
from chipwatch.config.naming.profiles import PROFILES, profiles
from chipwatch.config.options import TABLES, CollectorOptions, Config, RecorderOptions, SinkOptions
from chipwatch.contract.datapoint import is_utf8
from chipwatch.contract.errors import ConfigError
from chipwatch.net.address import parse_address
from chipwatch.net.faults import url_fault

T = TypeVar("T")

NOUNS: Final = {"common_dims": "dimension", "stdin": "collector", "names": "naming profile"}
DEFAULT_SINK: Final = "stdout"
SINK_NAME: Final = re.compile("[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
"""Names that may be a part of a file's name and, before `__`, of a variable's name."""
SHARED: Final = ("interval", "proc", "sys", "root", "pid", "format", "namespace", "region", "project", "endpoint_url")
"""General options that a plugin gets if its Config has a field of the same name, unless its own table sets it."""
FRAME_OPTIONS: Final = {"sinks": SinkOptions, "collectors": CollectorOptions}
FRAME_KEYS: Final = {group: frozenset(options_of(shape)) for group, shape in FRAME_OPTIONS.items()}
"""Options that may be in the table of a plugin of each group, and are for the agent, not for the plugin."""


def load(
    file: Path | str | None,
    flags: Mapping[str, Any],
    env: Mapping[str, str] = os.environ,
    *,
    wraps: bool = False,
    again: bool = False,
) -> Config:
    """
    Return the configuration; flags win over the environment, and this wins over `file`. Raise ConfigError.

    With `wraps`, standard output belongs to a command, and is the default sink only if it has options. With `again`,
    this process has read the file before.
    """
    for name, text in env.items():
        if name.startswith(PREFIX) and not is_utf8(name + text):
            raise ConfigError(f"{name}: expected UTF-8, got {text!a}")
    file = file or env.get(f"{PREFIX}CONFIG")
    tables = read_file(Path(file), again=again) if file else {}
    for key in tables:
        if key not in options_of(Config) and (place := place_of(key)):
            raise ConfigError(f"{file}: {key}: no such option{place}")
    names = {key: key if key in TABLES else "--dim" if key == "dims" else f"--{key.replace('_', '-')}" for key in flags}
    layers = (
        values_of(Config, tables, f"{file}: ", {}),
        variables_of(Config, env, PREFIX, TABLES),
        values_of(Config, flags, "", names, strict=False),
    )
    labels = ({key: f"{file}: {key}" for key in tables}, {key: PREFIX + key.upper() for key in layers[1]}, names)
    config = Config(**merge(*layers), sources=merge(*labels))
    for key, text in config.dims.items():
        if not (key and text):
            where = path_of(config.sources["dims"], key)
            raise ConfigError(f"{where}: expected a name and a text, got {key!r} = {text!r}")
    installed = {group: plugins.installed(f"chipwatch.{group}") for group in TABLES}
    config = _with_case(config, installed)
    _check_names(config, installed)
    _check_sinks(config, env, installed["sinks"])
    has_options = config.format or any(name.startswith(_variables("sinks", DEFAULT_SINK)) for name in env)
    default = () if wraps and not has_options else (DEFAULT_SINK,)
    sink = config.sink or tuple(tables.get("sinks", ())) or default
    interval = config.interval or (1.0 if config.high_resolution_metrics else 5.0)
    config = dataclasses.replace(config, sink=tuple(dict.fromkeys(sink)), interval=interval)
    _check_windows(config, interval, env)
    _check_unused(config, installed, env)
    recorder_options(config)
    return config


def _names(installed: Mapping[str, Iterable[str]]) -> dict[str, Iterable[str]]:
    """Return the valid names for each option whose values are names of plugins, dimensions or profiles."""
    choices: dict[str, Iterable[str]] = {"common_dims": {*WORDS}, "stdin": installed["collectors"], "names": PROFILES}
    for group in ("collectors", "processors"):
        words = {*installed[group], *(plugins.FAMILIES if group == "collectors" else ()), "all"}
        choices |= {group[:-1]: words, f"no_{group[:-1]}": words}
    return choices


def _with_case(config: Config, installed: Mapping[str, Iterable[str]]) -> Config:
    """Return the configuration with each name in its right case, such as `cloudwatch` for `CloudWatch`."""
    changes: dict[str, Any] = {}
    for key, right in {**_names(installed), "sink": (*config.sinks, *installed["sinks"])}.items():
        value = getattr(config, key)
        if isinstance(value, str):
            changes[key] = ",".join(in_case_of(word.strip(), right) for word in value.split(",") if word.strip())
        elif value:
            changes[key] = tuple(in_case_of(word, right) for word in value)
    return dataclasses.replace(config, **changes)


def _check_names(config: Config, installed: Mapping[str, Iterable[str]]) -> None:
    """Raise ConfigError for an unknown collector, processor, dimension or profile, and for a wrong `health`."""
    for group in ("collectors", "processors"):
        for name in getattr(config, group):
            if name not in installed[group]:
                near = nearest(name, installed[group])
                raise ConfigError(f"{_where(config, group, name)}: no such {group[:-1]}{near}")
    for key, right in _names(installed).items():
        value = getattr(config, key)
        for word in value.split(",") if key == "names" else (value,) if isinstance(value, str) else value or ():
            if word not in right:
                thing = NOUNS.get(key) or key.removeprefix("no_")
                raise refusal(config.sources.get(key, key), word, f"no such {thing}", nearest(word, right))
    if "native" in config.names.split(",")[1:]:
        raise refusal(config.sources["names"], config.names, "native stands first, since it renames nothing")
    if config.health is not None:
        try:
            parse_address(config.health)
        except ValueError:
            raise refusal(config.sources.get("health", "health"), config.health, "expected [HOST:]PORT") from None


def _check_sinks(config: Config, env: Mapping[str, str], installed: Iterable[str]) -> None:
    """Raise ConfigError for a sink of an unknown type, and for one whose name fits no file or variable."""
    variables: dict[str, str] = {}
    for name in dict.fromkeys((*config.sinks, *config.sink)):
        where = _where(config, "sinks", name)
        if (kind := sink_type(name, config, env)) not in installed:
            if kind != name:
                label = label_of(config, "sinks", name, "type", env)
                raise refusal(label, kind, "no such sink", nearest(kind, installed))
            rest = f"{nearest(name, installed)} (or set type in [sinks.{name}])"
            if name in config.sinks:
                raise ConfigError(f"{where}: no such sink{rest}")
            raise refusal(config.sources.get("sink", "sink"), name, "no such sink", rest)
        if name not in installed and not SINK_NAME.fullmatch(name):
            raise ConfigError(f"{where}: a sink's name is letters and digits, with single - or _ between them")
        if (other := variables.setdefault(_variables("sinks", name), name)) != name:
            both = f"both would have the variables {_variables('sinks', name)}..."
            raise ConfigError(f"{where}: too similar to sinks.{other}, since {both}; rename one")


def _check_windows(config: Config, interval: float, env: Mapping[str, str]) -> None:
    for name in config.sink:
        if (window := sink_options(name, config, env).window) and window < interval:
            advice = f"set window to {interval:g} s or more, or interval to {window:g} s or less"
            label = label_of(config, "sinks", name, "window", env)
            raise ConfigError(f"{label}: a window of {window:g} s is below the interval of {interval:g} s; {advice}")


def _check_unused(config: Config, installed: Mapping[str, Iterable[str]], env: Mapping[str, str]) -> None:
    """Raise ConfigError for wrong options of plugins that do not run; the others are checked when they are built."""
    given = [variable for variable, text in env.items() if text]
    for group in TABLES:
        used = config.sink if group == "sinks" else chosen(group, config)
        prefixes = {_variables(group, name): name for name in (*installed[group], *getattr(config, group), *used)}
        for variable in given:
            if not variable.startswith(begin := f"{PREFIX}{group.upper()}__") or variable.startswith((*prefixes,)):
                continue
            name = variable.removeprefix(begin).partition("__")[0]
            if f"{begin}{name}__TYPE" not in given:  # with a type, it is a sink that --sink may name
                known = sorted(prefix.removeprefix(begin)[:-2] for prefix in prefixes)
                raise ConfigError(f"{variable}: no such {group[:-1]} {name}{nearest(name, known)}")
        for name in prefixes.values():
            if name not in (*used, config.stdin) and is_configured(group, name, config, env):
                kind = sink_type(name, config, env) if group == "sinks" else name
                with contextlib.suppress(ImportError):
                    plugin_config(plugins.load(f"chipwatch.{group}", kind), group, name, config, env)


def is_configured(group: str, name: str, config: Config, env: Mapping[str, str]) -> bool:
    """Return whether the file or the environment has options of a plugin."""
    prefix = _variables(group, name)
    return name in getattr(config, group) or any(text and key.startswith(prefix) for key, text in env.items())


def chosen(group: str, config: Config) -> list[str]:
    """Return the names of the collectors or processors to run: the named ones, else all installed ones."""
    installed = plugins.installed(f"chipwatch.{group}")
    unwanted = plugins.spelt_out(getattr(config, f"no_{group[:-1]}"), installed)
    wanted = plugins.spelt_out(getattr(config, group[:-1]) or installed, installed)
    return [name for name in wanted if name not in unwanted]


def plugin_config(cls: Any, group: str, name: str, config: Config, env: Mapping[str, str] = os.environ) -> Any:
    """Return the Config of a plugin, from its table, its variables, and general options that it shares."""
    table = {k: v for k, v in getattr(config, group).get(name, {}).items() if k not in FRAME_KEYS.get(group, ())}
    general: dict[str, Any] = {key: getattr(config, key) for key in SHARED}
    general["high_resolution"] = config.high_resolution_metrics or None
    hints = typing.get_type_hints(cls.Config)
    choices = typing.get_args(next(iter(typing.get_args(hints.get("dimensions"))), None))
    added = dict.fromkeys(word for tool in profiles(config.names)[0] for word in tool.adds)
    general["dimensions"] = [word for word in added if word in choices] or None
    general |= {word: True for word in config.common_dims if hints.get(word) is bool}
    if group == "collectors" and config.stdin == name:
        general["stdin"] = True
        if "stdin" not in hints:
            raise ConfigError(f"{config.sources.get('stdin', 'stdin')}: {name} does not read standard input")
    shared = {key: value for key, value in general.items() if key in hints and value is not None}
    labels = {key: label_of(config, group, name, key, env) for key in hints}
    given = shared | merge(table, _own_environment(cls.Config, group, name, env))
    if missing := [key for key in needed_of(cls.Config) if key not in given]:
        variable = f"{_variables(group, name)}{missing[0].upper()}"
        raise ConfigError(f"{labels[missing[0]]}: it must be set: [{group}.{name}] {missing[0]}, or {variable}")
    for key in given.keys() - hints:
        right = nearest(key, [*options_of(cls.Config), *sorted(FRAME_KEYS.get(group, ()))])
        raise ConfigError(f"{path_of(_where(config, group, name), key)}: no such option{right}")
    options = convert(cls.Config, given, _where(config, group, name), labels)
    if fault := url_fault(getattr(options, "endpoint_url", None) or "http://host", may_have_user=True):
        raise ConfigError(f"{labels['endpoint_url']}: {fault}")
    return options


def place_of(key: str) -> str:
    """Return the end of a message about an option that stands in no table: the table of plugins that has it, or ""."""
    tables = {f"{group}.NAME": keys for group, keys in FRAME_KEYS.items()}
    for name in plugins.installed(plugins.SINKS):
        with contextlib.suppress(ImportError, ConfigError):
            tables[f"sinks.{name}"] = frozenset(options_of(plugins.load(plugins.SINKS, name).Config))
    return next((f"; it is {key} in [{table}]" for table, keys in tables.items() if key in keys), "")


def sink_type(name: str, config: Config, env: Mapping[str, str] = os.environ) -> str:
    """Return the name of the plugin for a sink: the sink's `type`, else its own name."""
    return sink_options(name, config, env).type or name


def sink_options(name: str, config: Config, env: Mapping[str, str] = os.environ) -> SinkOptions:
    """Return the options of a sink that are for the agent, with the general ones as defaults."""
    options = _frame_options(SinkOptions, "sinks", name, config, env)
    general = config.interval if config.high_resolution_metrics and config.window is None else config.window
    window = general if options.window is None else options.window
    flush = options.flush if options.flush is not None else config.flush
    return dataclasses.replace(options, window=window, flush=flush, level=options.level or config.level)


def collector_options(name: str, config: Config) -> CollectorOptions:
    """Return the options of a collector that are for the agent."""
    return _frame_options(CollectorOptions, "collectors", name, config, os.environ)


def recorder_options(config: Config) -> RecorderOptions | None:
    """Return the options of the recorder, or None if it is off; raise ConfigError."""
    given = config.recorder
    table = given if isinstance(given, Mapping) else {}
    return convert(RecorderOptions, table, config.sources.get("recorder", "recorder")) if given is not False else None


def required_collectors(config: Config) -> list[tuple[str, ...]]:
    """Return the collectors with `required`, each in a tuple, as in `asked_collectors`."""
    return [(name,) for name in plugins.installed(plugins.COLLECTORS) if collector_options(name, config).required]


def asked_collectors(config: Config) -> list[tuple[str, ...]]:
    """Return the collectors that the user named. A tuple of several is a family; one of it must find something."""
    run = [*chosen("collectors", config), *filter(None, [config.stdin])]
    families = (plugins.spelt_out([word], run) for word in (*config.collector, *filter(None, [config.stdin])))
    asked = (tuple(name for name in names if name in run) for names in families)
    return [*dict.fromkeys([*required_collectors(config), *filter(None, asked)])]


def _frame_options(shape: type[T], group: str, name: str, config: Config, env: Mapping[str, str]) -> T:
    table = {k: v for k, v in getattr(config, group).get(name, {}).items() if k in FRAME_KEYS[group]}
    return convert(shape, merge(table, _own_environment(shape, group, name, env)), _where(config, group, name))


def _where(config: Config, group: str, name: str) -> str:
    return path_of(config.sources.get(group, group), name)


def label_of(config: Config, group: str, name: str, key: str, env: Mapping[str, str] = os.environ) -> str:
    """Return where the option `key` of a plugin was set, for messages: a flag, a variable, or a key of the file."""
    if env.get(variable := f"{_variables(group, name)}{key.upper()}"):
        return variable
    given = key in config.sources and key not in getattr(config, group).get(name, {})
    return config.sources[key] if given else path_of(_where(config, group, name), key)


def _variables(group: str, name: str) -> str:
    """Return the prefix of a plugin's environment variables."""
    return f"{PREFIX}{group}__{name}__".upper().replace("-", "_")


def _own_environment(shape: type, group: str, name: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Return the options in `shape` that a plugin's variables set; raise ConfigError."""
    prefix, keys, own = _variables(group, name), options_of(shape), {}
    allowed = {*keys, *FRAME_KEYS.get(group, ())}
    for variable, text in env.items():
        key = variable.removeprefix(prefix).lower().partition("__")[0]
        if variable.startswith(prefix) and key in keys:
            own[variable] = text
        elif variable.startswith(prefix) and key not in allowed and shape is not FRAME_OPTIONS.get(group):
            raise ConfigError(f"{variable}: no such option{nearest(key, allowed)}")
    return variables_of(shape, own, prefix) if own else {}  # a call takes time


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of these layers; a later layer wins, and tables are merged key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
