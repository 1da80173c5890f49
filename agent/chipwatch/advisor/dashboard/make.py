"""Makes the documents that `agent dashboard` prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from chipwatch.advice import Advisor
from chipwatch.advisor.advisors import advisor_of, asked
from chipwatch.advisor.dashboard.alarms import alarms, with_limits
from chipwatch.advisor.dashboard.charts import charts
from chipwatch.advisor.dashboard.options import Options
from chipwatch.advisor.dashboard.sent import find
from chipwatch.config import plugins
from chipwatch.config.load import sink_type
from chipwatch.config.options import Config
from chipwatch.errors import ConfigError


class Made(NamedTuple):
    """The output of `agent dashboard`."""

    text: str
    """The documents of a dashboard or of alarms, the same for the same input."""
    notes: tuple[str, ...]
    """What is left out, and why."""


def make(config: Config, options: Options) -> Made:
    """Return the dashboard or the alarms for what `config` sends, without network; raise ConfigError or NotLoaded."""
    named = {*config.sinks, *config.sink}
    cloud = (
        options.cloud if options.cloud in {*named, *plugins.installed(plugins.ADVISORS)} else _drawn_by(options.cloud)
    )
    fit = [name for name in config.sink if sink_type(name, config) == cloud]
    name = fit[0] if fit and cloud not in named else cloud
    advisor = advisor_of(name, config)
    if advisor is None or not advisor.max_lines:
        able = [one.board or name for name, one in _advisors() if one.max_lines]
        raise ConfigError(f"--cloud: no dashboards for {name!r}; choose from: {', '.join(able)}")
    found = find(config, name, options, by_name=advisor.by_name)
    scope = replace(options, machine=found.machine, window=found.window)
    if not options.alarms:
        with asked(name):
            drawn = [with_limits(chart, options) for chart in charts(found.sent, advisor.max_lines)]
            return Made("\n".join(advisor.dashboard(drawn, scope)), (*found.notes, *advisor.limits(drawn)))
    wanted, missing = alarms(found.sent, options, count=advisor.counts_hosts)
    with asked(name):
        return Made("\n".join(advisor.alarms(wanted, scope)), (*found.notes, *missing))


def _advisors() -> Iterator[tuple[str, type[Advisor]]]:
    for name in plugins.installed(plugins.ADVISORS):
        yield name, plugins.load(plugins.ADVISORS, name)


def _drawn_by(board: str) -> str:
    """Return the sink whose dashboards the program `board` draws, `board` itself if there is none."""
    return next((name for name, advisor in _advisors() if advisor.board == board), board)
