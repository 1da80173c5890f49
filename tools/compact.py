"""Writes generated JSON with one widget, panel, alarm or metric a line, so that a change of one is a change of one line."""

from __future__ import annotations

import json
from typing import Any

LISTS = {"widgets", "tiles", "panels", "rules"}
"""Keys of the lists whose items have a line each; the outermost list or object has, too."""


def compact(text: str) -> str:
    """Return a JSON document with an item a line; the values stay equal and in order."""
    return f"{_lines(json.loads(text), '')}\n"


def _lines(value: Any, indent: str) -> str:
    deeper = f"{indent} "
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {_item(item, key, deeper)}" for key, item in value.items()]
    else:
        items = [_item(item, "", deeper) for item in value]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return (
        "\n".join([start, ",\n".join(f"{deeper}{item}" for item in items), f"{indent}{end}"]) if items else start + end
    )


def _item(value: Any, key: str, indent: str) -> str:
    if (key in LISTS and value) or _has_list(value):
        return _lines(value, indent)
    return json.dumps(value, ensure_ascii=False)


def _has_list(value: Any) -> bool:
    """Return True if one of `LISTS` is below, and not empty."""
    if isinstance(value, dict):
        return any((key in LISTS and bool(item)) or _has_list(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_list, value))
