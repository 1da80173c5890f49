"""Imports only MetricService from google-cloud-monitoring; the package also loads seven other clients."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from typing import Any, Final

PACKAGE: Final = "google.cloud.monitoring_v3"
SKIPPED: Final = (PACKAGE, f"{PACKAGE}.types", f"{PACKAGE}.services.metric_service")
"""Packages whose `__init__` is not run: it only imports modules, and takes more than 4 MB of memory."""


def load(name: str) -> Any:
    """Import the module `name` without the packages above it; if that fails, import it as usual."""
    if PACKAGE not in sys.modules:
        with suppress(ImportError, AttributeError):  # another release may have another layout
            try:
                for package in SKIPPED:
                    spec = importlib.util.find_spec(package)
                    sys.modules[package] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
                return importlib.import_module(f"{PACKAGE}.{name}")
            finally:
                for package in SKIPPED:  # so that a later import by other code gets the whole package
                    sys.modules.pop(package, None)
    return importlib.import_module(f"{PACKAGE}.{name}")


service: Final = load("services.metric_service.client")
transports: Final = load("services.metric_service.transports.grpc")
types: Final = load("types.metric_service")
series: Final = load("types.metric")
common: Final = load("types.common")
