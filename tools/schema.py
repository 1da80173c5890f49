"""The part of the chart's values.schema.json that follows from the program: its plugins, their options, its words."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from chipwatch.collectors.openmetrics.endpoint import Endpoint
from chipwatch.config import plugins
from chipwatch.config.convert import TABLE_TYPES, TIME, is_list, options_of
from chipwatch.config.identity.names import WORDS
from chipwatch.config.load import FRAME_OPTIONS
from chipwatch.config.naming.profiles import PROFILES
from chipwatch.config.options import TABLES, Config

SCHEMA = Path(__file__).parents[1] / "helm/chipwatch/values.schema.json"
WIDTH = 120
PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string", type(None): "null"}
LATER = "|".join(map(re.escape, sorted({*PROFILES} - {"native"})))
PROFILE = {"anyOf": [
    {"enum": sorted(PROFILES)}, {"type": "string", "pattern": f"^(native|{LATER})(,({LATER}))+$"},
]}  # fmt: skip
"""A naming profile, or several that are sent side by side."""
DURATION = "^[0-9]+([.][0-9]+)? *(ms|s|m|h)?$"
PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
ADDRESS = {"pattern": rf"^https?://([^\s/@?#:\[\]]+|\[[0-9A-Fa-f:.]+\])(:{PORT})?([/?#][!-~]*)?$"}
HEADERS = {"propertyNames": {"pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"}}
FORMS = {"url": ADDRESS, "endpoint_url": ADDRESS, "headers": HEADERS}
"""Limits of options of these names beside their type."""


def schema() -> str:
    """Return values.schema.json with the definitions that follow from the program renewed."""
    present = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return written(present | {"definitions": present["definitions"] | definitions()}) + "\n"


def definitions() -> dict[str, Any]:
    """Return what values.yaml may name of the program, and the tables of its plugins."""
    names = {group: [*plugins.installed(f"chipwatch.{group}")] for group in TABLES}
    tables = {group: {name: _table(group, name) for name in names[group]} for group in TABLES}
    return {
        "word": {"enum": [*WORDS]},
        "profile": PROFILE,
        "sink": {"enum": names["sinks"]},
        "collector": {"enum": [*names["collectors"], *plugins.FAMILIES, "all"]},
        "flag": {"type": "string", "pattern": f"^(--({'|'.join(_flags())})|-[dnr])(=.*)?$"},
        "variable": _variable(tables),
        "valueOfVariable": _value_of_variable(),
        "extraCollectors": {
            "type": "object",
            "propertyNames": {"pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$", "not": {"enum": names["collectors"]}},
            "additionalProperties": {"type": "object"},
        },
        "endpoint": _of(Endpoint),
        "collectors": _closed(tables["collectors"]),
        "processors": _closed(tables["processors"]),
        "sinks": {
            "type": "object",
            "propertyNames": {"pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$"},
            "properties": tables["sinks"],
            "additionalProperties": {
                "type": "object",
                "properties": {"type": {"enum": names["sinks"]}},
                "allOf": [
                    {
                        "if": {"required": ["type"], "properties": {"type": {"const": name}}},
                        "then": {"$ref": f"#/definitions/sinks/properties/{name}"},
                    }
                    for name in names["sinks"]
                ],
            },
        },
    }


def _table(group: str, name: str) -> dict[str, Any]:
    """Return the schema of a plugin's table: its own options, and those that any of its group has."""
    shapes = [plugins.load(f"chipwatch.{group}", name).Config, *filter(None, [FRAME_OPTIONS.get(group)])]
    options = {key: option for shape in shapes for key, option in _options(shape).items()}
    return _closed(options | ({"type": {"enum": [name]}} if group == "sinks" else {}))


def _flags() -> list[str]:
    """Return the flags of `run` and `check` that a pod may have."""
    keys = ["dim" if key == "dims" else key for key in options_of(Config) if key not in TABLES]
    return [key.replace("_", "-") for key in keys]


def _variable(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of a variable's name: none of ours, an option of ours, or one of a plugin."""
    general = "|".join(key for key in options_of(Config) if key not in TABLES).upper()
    plugins_of = {group: "|".join(tables[group]).upper().replace("-", "_") for group in TABLES}
    ours = [
        f"^CHIPWATCH_{group}__{name.replace('-', '_')}__({'|'.join(table['properties'])})(__.+)?$"
        for group in TABLES
        for name, table in tables[group].items()
    ]
    known = "|".join(f"{group.upper()}__({names})" for group, names in plugins_of.items())
    others = {"pattern": f"^CHIPWATCH_({'|'.join(TABLES).upper()})__.+$", "not": {"pattern": f"^CHIPWATCH_({known})__"}}
    return {
        "type": "string",
        "pattern": "^[-._a-zA-Z][-._a-zA-Z0-9]*$",
        "anyOf": [
            {"not": {"pattern": "^CHIPWATCH_"}},
            {"pattern": f"^CHIPWATCH_({general}|(DIMS|RECORDER)__.+)$"},
            *({"pattern": pattern.upper()} for pattern in ours),
            others,
        ],
    }


def _value_of_variable() -> dict[str, Any]:
    """Return what binds the value of a variable of ours, where the option has a choice."""
    choices: dict[str, dict[str, Any]] = {"names": PROFILE}
    for key, hint in typing.get_type_hints(Config).items():
        parts = [part for part in (hint, *typing.get_args(hint)) if typing.get_origin(part) is Literal]
        choices.update((key, {"enum": [*typing.get_args(part)]}) for part in parts)
    return {
        "allOf": [
            {
                "if": {"properties": {"name": {"const": f"CHIPWATCH_{key.upper()}"}}},
                "then": {"properties": {"value": right}},
            }
            for key, right in choices.items()
        ]
    }


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {**properties}}


def _options(shape: type) -> dict[str, Any]:
    hints = typing.get_type_hints(shape, include_extras=True)
    return {key: _of(hints[key] | None) | FORMS.get(key, {}) for key in options_of(shape)}


def _of(hint: Any) -> dict[str, Any]:
    """Return the schema of a type; each keyword limits values of one type only, so that the schemas of a union can merge."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        meta = next(extra for extra in args if isinstance(extra, msgspec.Meta))
        bounds = {"minimum": meta.ge, "maximum": meta.le}
        node = _of(args[0]) | {key: value for key, value in bounds.items() if value is not None}
        return node | ({"type": ["number", "string"], "pattern": DURATION} if meta.extra == TIME else {})
    if origin in (typing.Union, types.UnionType):
        parts = [_of(part) for part in args]
        if words := [word for part in parts for word in part.get("enum", ())]:
            return {"enum": [*words, None]}
        kinds = [part["type"] if isinstance(part["type"], list) else [part["type"]] for part in parts]
        merged = {key: value for part in parts for key, value in part.items()}
        return merged | {"type": [*dict.fromkeys(kind for some in kinds for kind in some)]}
    if origin is Literal:
        node = {"enum": [*args]}
    elif is_list(hint):
        node = {"type": "array", "items": _of(args[0])}
    elif origin in TABLE_TYPES:
        node = {"type": "object", "additionalProperties": _of(args[1])}
    elif dataclasses.is_dataclass(hint):
        node = _closed(_options(hint))
        node |= {"required": ["url"]} if "url" in node["properties"] else {}
    else:  # no count, time or port is negative
        node = {"type": PLAIN[hint], **({"minimum": 0} if hint in (int, float) else {})}
    return node


def written(value: Any, indent: str = "", before: int = 0) -> str:
    """Return `value` as JSON: in one line where that fits, else with a line for each of its parts."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + before + len(line) < WIDTH or not isinstance(value, (dict, list)):
        return line
    deeper = f"{indent}  "
    if isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
        filled = textwrap.fill(line[1:-1], WIDTH, initial_indent=deeper, subsequent_indent=deeper)
        return f"[\n{filled}\n{indent}]"
    pairs = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    keys = [(f"{json.dumps(key)}: " if key is not None else "", item) for key, item in pairs]
    parts = ",\n".join(f"{deeper}{key}{written(item, deeper, len(key))}" for key, item in keys)
    return f"{'{' if isinstance(value, dict) else '['}\n{parts}\n{indent}{'}' if isinstance(value, dict) else ']'}"
