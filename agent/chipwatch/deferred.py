"""Modules that libraries import and a run hardly ever uses, 1.2 MB or more; decision 0060 has the figures."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

DEFERRED: Final = ("calendar", "configparser", "csv", "inspect", "mimetypes", "tempfile", "zipfile")
"""For dates, the files of a user, signatures, attachments and packages, in dataclasses, email, botocore and urllib3."""
SCHEMAS: Final = "msgspec.inspect"
OPTIONAL: Final = "typing_extensions"
"""msgspec takes the standard library's module where it is not installed."""


class _Deferred(ModuleType):
    """Stands in `sys.modules` for a module until an attribute of it is used; any thread may use it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)
        return getattr(import_module(self.__name__), name)


def defer() -> None:
    """Import msgspec, and let modules that are not needed wait for their first use."""
    for name in DEFERRED:
        if name not in sys.modules:
            module = _Deferred(name)
            module.__spec__ = find_spec(name)
            sys.modules[name] = module
    if "msgspec" in sys.modules:
        return
    sys.modules[SCHEMAS] = _Deferred(SCHEMAS)
    hidden: dict[str, Any] = {} if OPTIONAL in sys.modules else {OPTIONAL: None}
    sys.modules.update(hidden)
    try:
        import_module("msgspec")
    finally:
        for name in hidden:
            del sys.modules[name]
