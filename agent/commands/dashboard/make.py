"""Makes the documents that `agent dashboard` prints."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from agent.commands.advisors import advisor_of, asked
from agent.commands.dashboard.alarms import alarms, with_limits
from agent.commands.dashboard.charts import charts
from agent.commands.dashboard.options import Options
from agent.commands.dashboard.sent import find
from agent.config import plugins
from agent.config.load import sink_type
from agent.config.options import Config
from agent.errors import ConfigError


class Made(NamedTuple):
    """The output of `agent dashboard`."""

    text: str
    """The documents of a dashboard or of alarms, the same for the same input."""
    notes: tuple[str, ...]
    """What is left out, and why."""


def make(config: Config, options: Options) -> Made:
    """Return the dashboard or the alarms for what `config` sends, without network; raise ConfigError or NotLoaded."""
    named = options.cloud in {*config.sinks, *config.sink}
    fit = [name for name in config.sink if sink_type(name, config) == options.cloud]
    name = fit[0] if fit and not named else options.cloud
    advisor = advisor_of(name, config)
    if advisor is None or not advisor.max_lines:
        able = [one for one in plugins.installed(plugins.ADVISORS) if plugins.load(plugins.ADVISORS, one).max_lines]
        raise ConfigError(f"--cloud: no dashboards for {name!r}; choose from: {', '.join(able)}")
    found = find(config, name, options, by_name=advisor.by_name)
    scope = replace(options, machine=found.machine, window=found.window)
    if not options.alarms:
        with asked(name):
            drawn = [with_limits(chart, options) for chart in charts(found.sent, advisor.max_lines)]
            return Made("\n".join(advisor.dashboard(drawn, scope)), found.notes)
    wanted, missing = alarms(found.sent, options, count=advisor.counts_hosts)
    with asked(name):
        return Made("\n".join(advisor.alarms(wanted, scope)), (*found.notes, *missing))
