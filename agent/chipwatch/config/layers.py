"""Reads options from environment variables, and merges options from several places."""

from __future__ import annotations

import logging
import re
import typing
from collections.abc import Collection, Mapping
from typing import Any, Final

from chipwatch.config.convert import TABLE_TYPES, is_list, nearest, options_of, refusal, value_of

log = logging.getLogger(__name__)

SERVICE: Final = re.compile(r"(.*_)?(service_host|service_port(_.*)?|port(_\d+_(tcp|udp|sctp)(_(proto|port|addr))?)?)")
"""
Variables that Kubernetes sets for a service which happens to have the name chipwatch:
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""


def from_environment(shape: type, env: Mapping[str, str], prefix: str, tables: Collection[str] = ()) -> dict[str, Any]:
    """
    Return the values of variables named `prefix`KEY, in the types of `shape`; a ConfigError names the variable.

    Commas separate the items of a list, and `__` comes before a key of a table. An empty variable counts as not set.
    `tables` are names of tables with options of plugins, which are left to others. With them, an unknown variable is
    only a warning, since another program may have set it.
    """
    hints, options = typing.get_type_hints(shape, include_extras=True), options_of(shape)
    values: dict[str, Any] = {}
    for name, text in env.items():
        key, _, rest = name.removeprefix(prefix).lower().partition("__")
        if not (name.startswith(prefix) and text) or (tables and (key == "config" or (key in tables and rest))):
            continue
        if key not in options or key in tables:
            if not SERVICE.fullmatch(key):
                log.warning("%s is ignored: no such option%s", name, nearest(key, {*options} - {*tables}))
        elif rest:
            values.setdefault(key, {})[rest] = text
        elif typing.get_origin(hints[key]) in TABLE_TYPES:
            raise refusal(name, text, "expected a table", f"; set {name}__KEY=VALUE")
        elif is_list(hints[key]):
            values[key] = value_of(hints[key], [part.strip() for part in text.split(",") if part.strip()], name)
        else:
            values[key] = value_of(hints[key], text, name, strict=False)
    return values


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of these layers; a later layer wins, and tables are merged key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
