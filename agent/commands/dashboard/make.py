"""A configuration and what is wanted -> the documents, ready to be printed."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from agent.advice import Advisor
from agent.commands.advisors import advisor_of, asked
from agent.commands.dashboard.alarms import alarms
from agent.commands.dashboard.charts import charts
from agent.commands.dashboard.options import Options
from agent.commands.dashboard.sent import find
from agent.config import plugins
from agent.config.load import sink_type
from agent.config.options import Config
from agent.errors import ConfigError


class Made(NamedTuple):
    """What `agent dashboard` prints."""

    text: str
    """The documents of a dashboard or of alarms, the same for the same input."""
    notes: tuple[str, ...]
    """What is left out, and why."""


def make(config: Config, options: Options) -> Made:
    """Return the dashboard or the alarms for what `config` sends, with no network. Raise ConfigError or NotLoaded."""
    named = options.cloud in {*config.sinks, *config.sink}
    fit = [name for name in config.sink if sink_type(name, config) == options.cloud]
    name = fit[0] if fit and not named else options.cloud
    advisor = _advisor(config, name)
    found = find(config, name, options, by_name=advisor.by_name)
    scope = replace(options, machine=found.machine, window=found.window)
    wanted, missing = alarms(found.sent, options, count=advisor.counts_hosts) if options.alarms else ([], [])
    with asked(name):
        if options.alarms:
            documents = [*advisor.alarms(wanted, scope)]
        else:
            documents = [*advisor.dashboard(charts(found.sent, advisor.max_lines), scope)]
    return Made("\n".join(documents), (*found.notes, *missing))


def _advisor(config: Config, name: str) -> Advisor:
    """Return the advisor; raise ConfigError where it has no dashboards."""
    if (advisor := advisor_of(name, config)) and advisor.max_lines:
        return advisor
    fit = [one for one in plugins.installed(plugins.ADVISORS) if plugins.load(plugins.ADVISORS, one).max_lines]
    raise ConfigError(f"--cloud: no dashboards for {name!r}; choose from: {', '.join(fit)}")
