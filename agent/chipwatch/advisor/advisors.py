"""Finds the advisor of a sink, by entry point, and builds it with the sink's configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from chipwatch.config import plugins
from chipwatch.config.load import plugin_config, sink_type
from chipwatch.config.options import Config
from chipwatch.contract.advice import Advisor, Tariff, Terms
from chipwatch.contract.errors import ConfigError, Refused


def advisor_of(name: str, config: Config, terms: Terms = Terms()) -> Advisor | None:  # noqa: B008  # a constant
    """Return the advisor of the sink `name`; None if it has none. Raise ConfigError."""
    if (kind := sink_type(name, config)) not in plugins.installed(plugins.ADVISORS):
        return None
    with plugins.blamed(plugins.SINKS, name, "its import fails"):
        sink = plugins.load(plugins.SINKS, kind)
    own = plugin_config(sink, "sinks", name, config)
    with asked(name):
        advisor = advisor_class(kind)(own, terms)
        if not isinstance(advisor.tariff, Tariff):
            raise TypeError(f"tariff: expected Tariff, got {advisor.tariff!r:.80}")
    return advisor


def advisor_class(kind: str) -> type[Advisor]:
    """Return the class of the advisor `kind`; raise ConfigError or ImportError."""
    cls: type[Advisor] = plugins.load(plugins.ADVISORS, kind, contract=Advisor)
    return cls


@contextlib.contextmanager
def asked(name: str) -> Iterator[None]:
    """Turn any exception of an advisor into ConfigError; that of a Refused has only its message."""
    try:
        with plugins.blamed(plugins.ADVISORS, name, "it fails", (Refused,)):
            yield
    except Refused as problem:
        raise ConfigError(str(problem)) from problem
