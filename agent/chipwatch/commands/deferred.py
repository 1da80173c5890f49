"""Modules that libraries import and a run hardly ever uses, 1.2 MB or more; decision 0060 has the figures."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

PROXIES: Final = "urllib.request"
"""botocore asks it for proxies at each start; on Linux the environment alone has them."""
DEFERRED: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(
        (
            *("bz2", "configparser", "csv", "inspect", "lzma", "mimetypes", "random", "ssl", "tempfile"),
            *("zipfile", "zlib"),
        ),
        (),
    ),
    "calendar": ("monthrange",),
    "importlib.metadata": ("version",),
    "statistics": ("fmean", "median"),
    PROXIES: ("getproxies", "proxy_bypass"),
}
"""
For dates, the files of a user, signatures, packages and proxies, in dataclasses, email, botocore and urllib3.

With the functions that these take by name, which wait for the first call.
"""
SCHEMAS: Final = "msgspec.inspect"
OPTIONAL: Final = "typing_extensions"
"""msgspec takes the standard library's module where it is not installed."""
UNUSED: Final = "decimal"
"""msgspec takes one type of it, and 0.3 MB; nothing here is encoded from decimals, or decoded to them."""


class _Deferred(ModuleType):
    """Stands in `sys.modules` for a module until an attribute of it is used; any thread may use it."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # each import of a name asks whether the module is a package
            raise AttributeError(name)
        return getattr(_load(self.__name__), name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute of the module itself; what the import system sets, and what waits for a call, stays here."""
        if name.startswith("__") or name in vars(self) or isinstance(value, ModuleType):
            vars(self)[name] = value
        else:
            setattr(_load(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_load(self.__name__), name)

    def __dir__(self) -> list[str]:
        return dir(_load(self.__name__))


def _load(name: str) -> ModuleType:
    """Return the module itself, in `sys.modules` from now on."""
    if isinstance(sys.modules.get(name), _Deferred):
        sys.modules.pop(name, None)
    return import_module(name)


def _call(name: str, function: str, *args: Any, **options: Any) -> Any:
    if name == PROXIES and sys.platform == "linux" and not any(key.lower().endswith("_proxy") for key in os.environ):
        return {} if function == "getproxies" else False
    return getattr(_load(name), function)(*args, **options)


def defer_module(name: str, functions: Sequence[str] = ()) -> None:
    """Let the module wait for its first use, or the first call of one of these functions; not if it is loaded."""
    if name in sys.modules:
        return
    module = _Deferred(name)
    spec = module.__spec__ = find_spec(name)
    if spec and spec.submodule_search_locations:
        module.__path__ = spec.submodule_search_locations
    vars(module).update({function: partial(_call, name, function) for function in functions})
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def defer() -> None:
    """Import msgspec, and let modules that are not needed wait for their first use."""
    for name, functions in DEFERRED.items():
        defer_module(name, functions)
    if "msgspec" in sys.modules:
        return
    sys.modules[SCHEMAS] = _Deferred(SCHEMAS)
    unused: Any = ModuleType(UNUSED)
    unused.Decimal = type("Decimal", (), {})
    stand_ins = {OPTIONAL: None, UNUSED: unused}
    hidden = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        import_module("msgspec")
    finally:
        for name in hidden:
            del sys.modules[name]
