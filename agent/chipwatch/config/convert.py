"""Converts tables and variables of a configuration to dataclasses; raises ConfigError for what is unknown or wrong."""

from __future__ import annotations

import dataclasses
import logging
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from chipwatch.base.redaction import without_secrets
from chipwatch.base.text import in_case_of, nearest
from chipwatch.config import duration
from chipwatch.config.file import PREFIX
from chipwatch.contract.errors import ConfigError

log = logging.getLogger(__name__)
T = TypeVar("T")

TABLE_TYPES: Final = (dict, Mapping)
TIME: Final = {"unit": "s"}
"""Marks a type (as `extra` of its msgspec.Meta) as seconds, which may also be a text such as 500ms."""
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
"""Names of options whose values are never shown."""
SERVICE: Final = re.compile(r"(.*_)?(service_host|service_port(_.*)?|port(_\d+_(tcp|udp|sctp)(_(proto|port|addr))?)?)")
"""
Variables that Kubernetes sets for a service which happens to have the name chipwatch:
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""


def convert(shape: type[T], table: Mapping[str, Any], where: str, labels: Mapping[str, str] | None = None) -> T:
    """Return `table` as an object of the dataclass `shape`; a ConfigError names a key by its label, or its path."""
    values = values_of(shape, table, where, labels or {})
    for key in needed_of(shape):
        if key not in values:
            raise ConfigError(f"{(labels or {}).get(key) or path_of(where, key)}: it must be set")
    try:
        return shape(**values)
    except (TypeError, ValueError) as problem:
        key, _, fault = str(problem).partition(": ")
        if labels and key in labels:
            raise ConfigError(f"{labels[key]}: {fault}") from problem
        raise ConfigError(f"{where or 'configuration'}: {problem}") from problem


def values_of(
    shape: type, table: Mapping[str, Any], where: str, labels: Mapping[str, str], *, strict: bool = True
) -> dict[str, Any]:
    """Return the values of `table` in the types of the fields of `shape`; unless `strict`, also convert texts."""
    hints = typing.get_type_hints(shape, include_extras=True) if table else {}  # a call takes time
    options = options_of(shape)
    for key in table:
        if key not in options:
            raise ConfigError(f"{path_of(where, key)}: no such option{nearest(key, options)}")
        if isinstance(table[key], Mapping) and f"{key}s" in options:
            raise ConfigError(f"{path_of(where, key)}: expected a list, got a table; tables are [{key}s.NAME]")
    return {
        key: value_of(hints[key], value, labels.get(key) or path_of(where, key), strict=strict)
        for key, value in table.items()
    }


def options_of(shape: type) -> list[str]:
    """Return the names of a dataclass's fields that are options; fields with compare=False are not."""
    return [field.name for field in dataclasses.fields(shape) if field.compare]


def needed_of(shape: type) -> list[str]:
    """Return the names of a dataclass's fields without a default."""
    fields, missing = dataclasses.fields(shape), dataclasses.MISSING
    return [field.name for field in fields if field.default is missing and field.default_factory is missing]


def value_of(hint: Any, value: Any, label: str, *, strict: bool = True) -> Any:
    """Return `value` in the type `hint`; raise ConfigError with `label`, the value, and what was expected."""
    if value == "" and type(None) in typing.get_args(hint):
        return None  # TOML has no null, so an empty text means "not set"
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, Mapping):
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return convert(hint, value, label)
        if origin in TABLE_TYPES and isinstance(args[1], type) and dataclasses.is_dataclass(args[1]):
            return {key: value_of(args[1], item, path_of(label, key)) for key, item in value.items()}
    given = in_case_of(value, _choices(hint)) if isinstance(value, str) else value
    if isinstance(value, str) and _is_time(hint):
        try:
            given = duration.seconds(value)
        except ValueError:
            strict = True
    try:
        return msgspec.convert(given, hint, strict=strict, dec_hook=_special)
    except msgspec.ValidationError:
        _blame_part(hint, value, label, strict=strict)
        choices = _choices(hint)
        right = nearest(str(value), choices) if choices else ""
        if choices and isinstance(value, str):
            raise refusal(label, value, "no such choice", right) from None
        raise refusal(label, value, f"expected {_words(hint)}", right) from None


def refusal(label: str, value: Any, fault: str, rest: str = "") -> ConfigError:
    """Return the error for a value: `--level many: no such choice` or, in a file, `level: no such choice 'many'`."""
    if label.startswith("-"):
        return ConfigError(f"{label} {_short(value, label, plain=True)}: {fault}{rest}")
    got = ", got" if fault.startswith("expected") else ""
    return ConfigError(f"{label}: {fault}{got} {_short(value, label)}{rest}")


def _blame_part(hint: Any, value: Any, label: str, *, strict: bool) -> None:
    """If one item of a table or a list is wrong, raise ConfigError that names it."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        _blame_part(args[0], value, label, strict=strict)
    elif isinstance(value, Mapping) and origin in TABLE_TYPES:
        for key, item in value.items():
            value_of(args[1], item, path_of(label, key), strict=strict)
    elif isinstance(value, list) and is_list(hint):
        for n, item in enumerate(value):
            value_of(args[0], item, f"{label}[{n}]", strict=strict)


def _parts(hint: Any) -> Iterable[Any]:
    """Return the types of a union except None; for another type, the type itself."""
    args = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return [part for part in args if part is not type(None)]


def _meta(hint: Any) -> msgspec.Meta:
    return next((extra for extra in typing.get_args(hint) if isinstance(extra, msgspec.Meta)), msgspec.Meta())


def _is_time(hint: Any) -> bool:
    return any(_meta(part).extra == TIME for part in _parts(hint))


def _words(hint: Any) -> str:
    """Return a type in words, with its bounds: `a number from 1 to 10`."""
    words = []
    for part in _parts(hint):
        low, high = _meta(part).ge, _meta(part).le
        bounds = "" if low is None else f" of at least {low:g}" if high is None else f" from {low:g} to {high:g}"
        plain = typing.get_args(part)[0] if typing.get_origin(part) is Annotated else part
        word = WORDS_FOR.get(typing.get_origin(plain) or plain, getattr(plain, "__name__", str(plain)))
        words.append(f"a time{bounds} s, such as 5, 500ms or 1m" if _is_time(part) else word + bounds)
    return " or ".join(words)


def _special(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, (str, Path)) and value != "" and "\0" not in str(value):
        return Path(value)
    raise ValueError(f"expected {kind.__name__}")


def _choices(hint: Any) -> tuple[str, ...]:
    literals = [part for part in _parts(hint) if typing.get_origin(part) is Literal]
    return tuple(str(word) for part in literals for word in typing.get_args(part))


def _short(value: Any, label: str, *, plain: bool = False) -> str:
    """Return a value for people: at most 60 characters; of a secret, only its type."""
    if isinstance(value, (Mapping, list, tuple)) or SECRET.search(label.rpartition(": ")[2]):
        return WORDS_FOR.get(type(value), type(value).__name__)
    if isinstance(value, bool):
        return str(value).lower()
    text = without_secrets(str(value) if plain and value != "" else repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def path_of(where: str, key: str) -> str:
    """Return where a key is, as people write it: `sinks.ops`, `chipwatch.toml: level` or `CHIPWATCH_DIMS__TEAM`."""
    if where.startswith(PREFIX):
        return f"{where}__{key.upper()}"
    return f"{where}{'' if where.endswith(': ') or not where else '.'}{key}"


def is_list(hint: Any) -> bool:
    """Return whether the type `hint` is a list or a tuple."""
    return typing.get_origin(hint) in (tuple, list, Sequence)


def variables_of(shape: type, env: Mapping[str, str], prefix: str, tables: Collection[str] = ()) -> dict[str, Any]:
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
