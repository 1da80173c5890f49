"""What is needed of Google's client, without the seven other clients and their messages that its package brings."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Final

PACKAGE: Final = "google.cloud.monitoring_v3"
HOLLOW: Final = (PACKAGE, f"{PACKAGE}.types", f"{PACKAGE}.services.metric_service")
"""Packages whose `__init__` only gathers what is beneath them: 4 of the 50 MB that importing them takes."""


def load(name: str) -> Any:
    """Import the module `name` of the package; the packages above it are not run, unless that does not work."""
    if PACKAGE in sys.modules:  # somebody has paid for it
        return importlib.import_module(f"{PACKAGE}.{name}")
    try:
        for package in HOLLOW:
            spec = importlib.util.find_spec(package)
            sys.modules[package] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        return importlib.import_module(f"{PACKAGE}.{name}")
    except (ImportError, AttributeError):  # of another release, laid out otherwise
        for package in HOLLOW:
            sys.modules.pop(package, None)
        return importlib.import_module(f"{PACKAGE}.{name}")
    finally:
        for package in HOLLOW:  # who imports them after us gets them whole
            sys.modules.pop(package, None)


service: Final = load("services.metric_service.client")
transports: Final = load("services.metric_service.transports.grpc")
types: Final = load("types.metric_service")
series: Final = load("types.metric")
common: Final = load("types.common")
