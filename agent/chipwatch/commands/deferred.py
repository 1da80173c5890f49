"""Delays the import of modules that libraries load but a run rarely uses; decision 0092 has the figures."""

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
"""Module that botocore asks for proxies at each start; on Linux only the environment can have them."""
WHOLE: Final = (
    # loaded by dataclasses, pathlib and traceback
    "inspect", "ipaddress", "tokenize",
    # loaded by botocore and urllib3
    "bz2", "calendar", "configparser", "csv", "lzma", "mimetypes", "random", "tempfile", "zipfile", "zlib",
)  # fmt: skip
FUNCTIONS: Final[Mapping[str, Sequence[str]]] = {
    "importlib.metadata": ("version",),
    "statistics": ("fmean", "median"),
    "subprocess": ("Popen",),
    PROXIES: ("getproxies", "proxy_bypass"),
}
"""Module -> functions that libraries import from it by name; their first call loads the module."""
LIBRARIES: Final[Mapping[str, Mapping[str, object]]] = {
    "botocore.endpoint": {"DEFAULT_TIMEOUT": 60, "MAX_POOL_CONNECTIONS": 10},
    "msgspec.inspect": {},
}
"""Module of a library that may not be installed -> constants that others import from it by name."""


class _Deferred(ModuleType):
    """Stands in `sys.modules` for a module until one of its attributes is used; any thread may do that."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # every `from module import name` looks for it
            raise AttributeError(name)
        return getattr(_load(self.__name__), name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute of the real module; attributes of the import system are set on this one."""
        if name.startswith("__") or isinstance(value, ModuleType):
            vars(self)[name] = value
        else:
            setattr(_load(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_load(self.__name__), name)

    def __dir__(self) -> list[str]:
        return dir(_load(self.__name__))


def _load(name: str) -> ModuleType:
    """Load the real module and put it into `sys.modules`."""
    if isinstance(sys.modules.get(name), _Deferred):
        sys.modules.pop(name, None)
    return import_module(name)


def _call(name: str, function: str, *args: Any, **options: Any) -> Any:
    if name == PROXIES and sys.platform == "linux" and not any(key.lower().endswith("_proxy") for key in os.environ):
        return {} if function == "getproxies" else False
    return getattr(_load(name), function)(*args, **options)


def defer() -> None:
    """Replace these modules by stand-ins; call it before anything else is imported."""
    for name in (*WHOLE, *FUNCTIONS):
        if name in sys.modules:
            continue
        module, spec = _Deferred(name), find_spec(name)
        module.__spec__ = spec
        if spec and spec.submodule_search_locations:
            module.__path__ = spec.submodule_search_locations
        vars(module).update({word: partial(_call, name, word) for word in FUNCTIONS.get(name, ())})
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    for name, constants in LIBRARIES.items():
        sys.modules[name] = _Deferred(name)
        vars(sys.modules[name]).update(constants)
