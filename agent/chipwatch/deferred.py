"""Modules that libraries import and a run never uses, 1.2 MB in all; decision 0059 has the figures."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Final

DEFERRED: Final = ("inspect", "msgspec.inspect")
"""For signatures and docstrings in dataclasses, and for schemas in msgspec; loaded when something asks for these."""
OPTIONAL: Final = "typing_extensions"
"""msgspec takes the standard library's module where it is not installed."""


class _Deferred(ModuleType):
    """Loads a module when an attribute of it is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def load_libraries() -> None:
    """Import dataclasses and msgspec without these modules; a later import gets the modules themselves."""
    stand_ins: dict[str, Any] = {**{name: _Deferred(name) for name in DEFERRED}, OPTIONAL: None}
    added = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(added)
    try:
        for name in ("dataclasses", "msgspec"):
            import_module(name)
    finally:
        for name in added:
            del sys.modules[name]
