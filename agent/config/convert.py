"""Tables of a configuration -> dataclasses; what is unknown or of the wrong type is refused in words for people."""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from agent.logs.text import without_secrets

T = TypeVar("T")

TABLE_TYPES: Final = (dict, Mapping)
UNIONS: Final = (typing.Union, types.UnionType)
WORDS_FOR: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    Literal: "a text",
    **dict.fromkeys((list, tuple, Sequence, frozenset, set), "a list"),
    **dict.fromkeys(TABLE_TYPES, "a table"),
}
SECRET: Final = re.compile("secret|token|passw|credential|auth|api_?key|private|header|cookie", re.IGNORECASE)
"""Options whose values are never told."""


class ConfigError(Exception):
    """The configuration is wrong: one line that names the path and the right choices."""


def convert(shape: type[T], table: Mapping[str, Any], where: str) -> T:
    """Return `table` as a `shape` (a dataclass); raise ConfigError naming `where` and the key."""
    hints = typing.get_type_hints(shape, include_extras=True)
    known = [f.name for f in dataclasses.fields(shape)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError(f"{path_of(where, key)}: no such option{nearest(key, known)}")
    values = {key: value_of(hints[key], value, path_of(where, key)) for key, value in table.items()}
    try:
        return shape(**values)
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"{where or 'configuration'}: {problem}") from problem


def value_of(hint: Any, value: Any, path: str, *, strict: bool = True) -> Any:
    """Return `value` as `hint` says; raise ConfigError naming `path`, what was expected, and what came."""
    if value == "" and type(None) in typing.get_args(hint):
        return None  # TOML has no null: an empty text says "not set"
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, Mapping):
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return convert(hint, value, path)
        if origin in TABLE_TYPES and isinstance(args[1], type) and dataclasses.is_dataclass(args[1]):
            return {key: value_of(args[1], item, path_of(path, key)) for key, item in value.items()}
    try:
        return msgspec.convert(value, hint, strict=strict, dec_hook=_special)
    except msgspec.ValidationError as problem:
        _blame_part(hint, value, path, strict=strict)
        choices = _literals(hint)
        if choices and isinstance(value, str):
            raise ConfigError(f"{path}: no such choice {_short(value, path)}{_right(choices)}") from None
        expected = _words(hint) or str(problem)
        raise ConfigError(f"{path}: expected {expected}, got {_short(value, path)}{_right(choices)}") from None


def _blame_part(hint: Any, value: Any, path: str, *, strict: bool) -> None:
    """Raise ConfigError naming the one item of a table or a list that is wrong, if it is one."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        _blame_part(args[0], value, path, strict=strict)
    elif isinstance(value, Mapping) and origin in TABLE_TYPES:
        for key, item in value.items():
            value_of(args[1], item, path_of(path, key), strict=strict)
    elif isinstance(value, list) and is_list(hint):
        for n, item in enumerate(value):
            value_of(args[0], item, f"{path}[{n}]", strict=strict)


def _words(hint: Any) -> str:
    """Return what a type is called in TOML, with its bounds; nothing for a type that is not known here."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        meta = next((extra for extra in args[1:] if isinstance(extra, msgspec.Meta)), msgspec.Meta())
        low, high = meta.ge, meta.le
        bounds = f" from {low:g} to {high:g}" if None not in (low, high) else f" of at least {low:g}" if low else ""
        return _words(args[0]) + bounds
    if typing.get_origin(hint) in UNIONS:
        parts = [_words(part) for part in args if part is not type(None)]
        return " or ".join(parts) if all(parts) else ""
    return WORDS_FOR.get(typing.get_origin(hint) or hint, "")


def _special(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, (str, Path)) and "\0" not in str(value):
        return Path(value)
    raise ValueError(f"expected {kind.__name__}")


def _literals(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    return tuple(choice for part in typing.get_args(hint) for choice in _literals(part))


def _right(choices: Sequence[Any]) -> str:
    return f"; choose from: {', '.join(map(str, choices))}" if choices else ""


def _short(value: Any, path: str) -> str:
    """Return a value as it is told to people: shortened, a secret not at all."""
    if isinstance(value, (Mapping, list, tuple)) or SECRET.search(path):
        return WORDS_FOR.get(type(value), type(value).__name__)
    if isinstance(value, bool):
        return str(value).lower()
    text = without_secrets(repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def path_of(where: str, key: str) -> str:
    """Return the path of a key, as people write it."""
    return f"{where}.{key}" if where else key


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the nearest right words, or all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else f"; choose from: {', '.join(known)}"


def is_list(hint: Any) -> bool:
    """Tell whether `hint` is a list of some kind."""
    return typing.get_origin(hint) in (tuple, list, Sequence)
