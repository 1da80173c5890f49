"""Modules that libraries import and a run hardly ever uses; decisions 0060, 0080 and 0090 have the figures."""

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
    **dict.fromkeys(("bz2", "configparser", "csv", "lzma", "mimetypes", "random", "tempfile"), ()),
    **dict.fromkeys(("zipfile", "zlib"), ()),
    "calendar": ("monthrange",),
    "getpass": ("getpass",),
    "importlib.metadata": ("version",),
    "importlib.resources": ("as_file", "files"),
    "statistics": ("fmean", "median"),
    "subprocess": ("Popen",),
    PROXIES: ("getproxies", "proxy_bypass"),
}
"""
For dates, means, the files of a user, signatures, packages and proxies, in dataclasses, email, botocore and urllib3.

With the functions that these take by name, which wait for the first call.
"""
EARLY: Final = ("inspect", "ipaddress", "tokenize")
"""
For dataclasses, pathlib and traceback, before anything else is loaded.

linecache leaves out source that cannot be opened. msgspec takes typing_extensions where it is, which loads `inspect`.
"""
WITHIN: Final[Mapping[str, Mapping[str, object]]] = {
    "botocore.endpoint": {"DEFAULT_TIMEOUT": 60, "MAX_POOL_CONNECTIONS": 10},
    "msgspec.inspect": {},
}
"""
Modules of libraries that may not be installed, with the constants that others take by name.

botocore's configuration takes two numbers of its client, which loads parsers and models of services.
"""


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
    if isinstance(module := sys.modules.get(name), _Deferred):
        sys.modules.pop(name, None)
        for function in DEFERRED.get(name, ()):
            vars(module).pop(function, None)
    try:
        return import_module(name)
    except OSError:  # no file can be opened now; a later use may find the module
        if module:
            sys.modules.setdefault(name, module)
        raise


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
    vars(module).update({word: partial(_call, name, word) for word in functions})
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def defer_early() -> None:
    """Let modules wait that the command line loads by itself."""
    for name in EARLY:
        defer_module(name)


def defer() -> None:
    """Import msgspec, and let modules that are not needed wait for their first use."""
    for name, functions in DEFERRED.items():
        defer_module(name, functions)
    if "msgspec" in sys.modules:
        return
    for name, constants in WITHIN.items():
        sys.modules[name] = _Deferred(name)
        vars(sys.modules[name]).update(constants)
    import_module("msgspec")
