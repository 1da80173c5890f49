"""Imports and builds the plugins that a configuration names."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from chipwatch.config import load as configuration
from chipwatch.config import plugins
from chipwatch.config.options import Config
from chipwatch.contract.collector import Collector
from chipwatch.contract.errors import CommandError, ConfigError, get_extra
from chipwatch.contract.processor import Processor
from chipwatch.contract.sink import Sink

log = logging.getLogger(__name__)

Known = Mapping[str, plugins.EntryPoint] | None
"""The installed plugins of a group by name; None: look them up."""


class NotLoaded(CommandError):
    """A plugin that the user named cannot be imported; the message says what to install."""


def load_plugin(group: str, name: str, config: Config, registry: Known = None) -> Any:
    """Import and return the class of a plugin; for a sink, by its `type`. Raise ConfigError or NotLoaded."""
    registered = configuration.sink_type(name, config) if group == plugins.SINKS else name
    try:
        cls = plugins.load(group, registered, registry)
        for module in cls.needs.libraries:
            if find_spec(module.partition(".")[0]) is None or find_spec(module) is None:
                raise ModuleNotFoundError(f"No module named {module!r}")
    except ImportError as problem:
        kind = group.removeprefix("chipwatch.").removesuffix("s")
        from importlib import metadata

        extras = metadata.metadata("chipwatch").get_all("Provides-Extra") or ()
        is_missing = isinstance(problem, ModuleNotFoundError) and registered in extras
        extra = f"; {get_extra(registered)}" if is_missing else ""
        raise NotLoaded(f"{kind} {name} cannot be loaded: {problem}{extra}") from problem
    return cls


def build_plugin(group: str, name: str, config: Config, known: Known = None) -> Any:
    """Import a plugin's class and build the plugin; raise ConfigError or NotLoaded."""
    cls = load_plugin(group, name, config, known)
    own = configuration.plugin_config(cls, group.removeprefix("chipwatch."), name, config)
    return plugins.build(group, name, cls, own)


def build_collectors(config: Config, spared: Collection[str] = ()) -> dict[str, Collector]:
    """
    Return the collectors that the configuration names, or all that are installed.

    The collector that reads standard input is always among them. `spared` collectors are left out, unless they have
    options, which must be checked. If a collector cannot be built, raise ConfigError or NotLoaded; if the
    configuration does not name it, only log that.
    """
    names = dict.fromkeys((*configuration.chosen("collectors", config), *filter(None, [config.stdin])))
    needless = {name for name in spared if not configuration.is_configured("collectors", name, config, os.environ)}
    return _build_all(plugins.COLLECTORS, [name for name in names if name not in needless], config)


def build_processors(config: Config) -> dict[str, Processor]:
    """Return the processors that the configuration names, or all that are installed; raise as `build_collectors`."""
    return _build_all(plugins.PROCESSORS, sorted(configuration.chosen("processors", config)), config)


def _build_all(group: str, names: Iterable[str], config: Config) -> dict[str, Any]:
    """Return plugins by name; leave out one that cannot be built, unless it is named or has options."""
    built, entries, many = {}, plugins.installed(group), group.removeprefix("chipwatch.")
    named = {*getattr(config, many.removesuffix("s")), config.stdin}
    for name in names:
        try:
            built[name] = build_plugin(group, name, config, entries)
        except (NotLoaded, ConfigError) as problem:
            if name in named or configuration.is_configured(many, name, config, os.environ):
                raise
            log.error("%s; it is left out", problem)  # noqa: TRY400  # not a bug
    return built


def build_sinks(config: Config) -> dict[str, Sink]:
    """Return the sinks that the configuration names; raise ConfigError or NotLoaded."""
    return {name: build_plugin(plugins.SINKS, name, config) for name in config.sink}


def hints(config: Config) -> tuple[str, ...]:
    """Return the words of `--common-dims` that sinks need (`Needs.words`); raise ConfigError or NotLoaded."""
    classes = [load_plugin(plugins.SINKS, name, config) for name in config.sink]
    return tuple(sorted({word for cls in classes for word in cls.needs.words}))
