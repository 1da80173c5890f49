"""A configuration and what is wanted -> the document, ready to be printed."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from agent.commands.dashboard import cloudwatch, google
from agent.commands.dashboard.alarms import alarms
from agent.commands.dashboard.charts import charts
from agent.commands.dashboard.options import Wishes
from agent.commands.dashboard.sent import find
from agent.config.load import Config


class Made(NamedTuple):
    """What `agent dashboard` prints."""

    document: Any
    """A dashboard, or a list of alarms."""
    notes: tuple[str, ...]
    """What is left out, and why."""

    @property
    def text(self) -> str:
        """The document as JSON, the same for the same input."""
        return json.dumps(self.document, indent=2, ensure_ascii=False)


def make(config: Config, wishes: Wishes) -> Made:
    """Return the dashboard or the alarms for what `config` sends, with no network. Raise ConfigError or NotLoaded."""
    found = find(config, wishes)
    if wishes.cloud == "google":
        found = google.by_name(found)
    if wishes.alarms:
        wanted, missing = alarms(found, wishes)
        write = cloudwatch.metric_alarms if wishes.cloud == "cloudwatch" else google.alert_policies
        return Made(write(wanted, found, wishes), (*found.notes, *missing))
    draw, most = (
        (cloudwatch.dashboard, cloudwatch.MOST_SERIES)
        if wishes.cloud == "cloudwatch"
        else (google.dashboard, google.MOST_LINES)
    )
    return Made(draw(charts(found.sent, most), found, wishes), found.notes)
