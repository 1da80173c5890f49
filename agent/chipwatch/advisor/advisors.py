"""The advisor of a sink: found by entry point, and built with the sink's own configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from chipwatch.config import plugins
from chipwatch.config.load import plugin_config, sink_type
from chipwatch.config.options import Config
from chipwatch.contract.advice import Advisor, Tariff, Terms
from chipwatch.contract.errors import ConfigError, Refused


def advisor_of(name: str, config: Config, terms: Terms = Terms()) -> Advisor | None:  # noqa: B008  # a constant
    """Return the advisor of the sink `name`, None where it has none; raise ConfigError."""
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
    """Raise ConfigError for all that an advisor raises; a Refused keeps its words."""
    try:
        with plugins.blamed(plugins.ADVISORS, name, "it fails", (Refused,)):
            yield
    except Refused as problem:
        raise ConfigError(str(problem)) from problem
