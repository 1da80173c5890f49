"""Makes the documents that `chipwatch dashboard` prints: a dashboard, alarms or recording rules."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from chipwatch.advisor.advisors import advisor_class, advisor_of, asked
from chipwatch.advisor.dashboard.alarms import alarms, with_limits
from chipwatch.advisor.dashboard.charts import BOARDS, board, charts, in_rows
from chipwatch.advisor.dashboard.options import BoardOptions
from chipwatch.advisor.dashboard.sent import SentMetrics, sent_by
from chipwatch.base.text import in_case_of, nearest
from chipwatch.config import plugins
from chipwatch.config.load import sink_type
from chipwatch.config.options import Config
from chipwatch.contract.advice import Board, Chart
from chipwatch.contract.errors import ConfigError


class Documents(NamedTuple):
    """The output of `chipwatch dashboard`."""

    text: str
    """The documents; the same input always gives the same text."""
    notes: tuple[str, ...]
    """Metrics and alarms that were left out, with reasons."""


def make(config: Config, options: BoardOptions) -> Documents:
    """Make the documents for the metrics that `config` sends, without network; raise ConfigError or NotLoaded."""
    named = {*config.sinks, *config.sink}
    sinks = {*named, *plugins.installed(plugins.ADVISORS)}
    given = in_case_of(options.cloud, sinks)
    cloud = given if given in sinks else drawn_by_all().get(given.lower(), given)
    fit = [name for name in config.sink if sink_type(name, config) == cloud]
    name = fit[0] if fit and cloud not in named else cloud
    advisor = advisor_of(name, config)
    if advisor is None or advisor.board is None:
        raise ConfigError(f"--cloud: no dashboards for {name!r}{nearest(name, drawn_by_all())}")
    sent = sent_by(config, name, options, by_name=advisor.board.by_name)
    scope = replace(options, machine=sent.machine, window=sent.window)
    if not options.alarms:
        drawn = [with_limits(chart, options) for chart in in_rows(_charts(sent, options, advisor.board))]
        with asked(name):
            if options.records:
                records = advisor.records([chart for chart in drawn if chart.fold or chart.series[0].former], scope)
                if records is None:
                    raise ConfigError(f"--records: {given} does not record the results of queries")
                return Documents("\n".join(records), sent.notes)
            return Documents("\n".join(advisor.dashboard(drawn, scope)), (*sent.notes, *advisor.omissions(drawn)))
    wanted, missing = alarms(sent.metrics, options, count=advisor.board.counts_hosts)
    if wanted and not re.search(r"://(?!chipwatch\.example/)|\$", options.runbooks):
        page = scope.runbook(wanted[0].rule)
        missing.append(f"alarms link to pages such as {page}, which leads nowhere; set --runbooks URL")
    with asked(name):
        return Documents("\n".join(advisor.alarms(wanted, scope)), (*sent.notes, *missing))


def _charts(sent: SentMetrics, options: BoardOptions, limits: Board) -> list[Chart]:
    if not options.board:
        return charts(sent.metrics, limits.max_lines)
    if options.board not in BOARDS:
        raise ConfigError(f"--board {options.board}: no such dashboard{nearest(options.board, BOARDS)}")
    machines = limits.by_name or bool(sent.machine or options.dims_as)
    if not (drawn := board(options.board, sent.metrics, limits.max_lines, machines=machines)):
        raise ConfigError(f"--board {options.board}: nothing of it is sent; name its collectors with --for")
    return drawn


def drawn_by_all() -> dict[str, str]:
    """Return the cloud or program that draws dashboards -> the sink whose metrics it draws."""
    boards = {name: advisor_class(name).board for name in plugins.installed(plugins.ADVISORS)}
    return {board.program or name: name for name, board in boards.items() if board}
