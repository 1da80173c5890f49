"""`chipwatch config`: prints a TOML file with all options of the agent and its plugins, commented out."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import textwrap
import typing
from collections.abc import Iterable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from chipwatch.advisor.catalogue import loaded
from chipwatch.base.text import in_case_of, nearest
from chipwatch.commands.output import show
from chipwatch.config import plugins
from chipwatch.config.convert import options_of
from chipwatch.config.load import FRAME_OPTIONS, SHARED
from chipwatch.config.options import TABLES, Config
from chipwatch.contract.errors import ConfigError


def main(given: SimpleNamespace) -> int:
    """Print the file; raise ConfigError."""
    return show(sample_config(given.name))


def sample_config(only: str | None = None) -> str:
    """Return a TOML file with every option at its default, or with `only` the options of plugins of that name."""
    known = {name for group in TABLES for name in plugins.installed(f"chipwatch.{group}")}
    only = only and in_case_of(only, known)
    if only and only not in known:
        raise ConfigError(f"config {only}: no such collector, processor or sink{nearest(only, known)}")
    parts = ["# chipwatch: every option at its default. Flags override the environment, which overrides this file.\n"]
    parts += [] if only else _options(Config, skip=TABLES)
    for group in TABLES:
        for name, cls, problem in loaded(group, only):
            if cls is None:
                parts.append(f"\n# {group}.{name} is left out: {problem}")
                continue
            parts.append(f"\n# [{group}.{name}]")
            parts += _options(cls.Config)
            parts += _options(FRAME_OPTIONS[group]) if group in FRAME_OPTIONS else ()
            parts += _tables(cls.Config, f"{group}.{name}")
    return "\n".join(parts)


def _options(shape: type, skip: Iterable[str] = ()) -> Iterator[str]:
    docs = {name: text for name, text in field_docs(Config).items() if name in SHARED} | field_docs(shape)
    for option in dataclasses.fields(shape):
        if option.name in skip or option.name not in options_of(shape):
            continue
        for line in textwrap.wrap(docs.get(option.name, ""), 110):
            yield f"#   {line}"
        default = option.default if option.default_factory is dataclasses.MISSING else option.default_factory()
        yield f"# {option.name} = {'  # must be set' if default is dataclasses.MISSING else _toml(default)}"


def _tables(shape: type, where: str) -> Iterator[str]:
    """Yield the options of nested tables, each of which may occur several times."""
    for field, hint in typing.get_type_hints(shape).items():
        for kind in typing.get_args(hint):
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                yield f"#\n#   [{where}.{field}.NAME]"
                for line in _options(kind):
                    yield f"#   # {line[4:]}" if line.startswith("#   ") else f"#   {line[2:]}"


@functools.cache
def field_docs(shape: type) -> dict[str, str]:
    """Return field -> the docstring below it, from the source of a class and its bases."""
    docs = {field: text for base in shape.__bases__ for field, text in field_docs(base).items()}
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(shape))).body[0]
    except (OSError, TypeError, SyntaxError):
        return docs
    for field, below in pairwise(getattr(body, "body", [])):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            docs[ast.unparse(field.target)] = " ".join(str(below.value.value).split())
    return docs


def _toml(value: Any) -> str:
    if value is None:
        return '""  # not set'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(v)}" for key, v in value.items()) + "}"
    if isinstance(value, tuple | list | frozenset):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value if isinstance(value, bool | int | float) else str(value))
