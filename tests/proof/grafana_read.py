"""Reads a dashboard on standard input by Grafana's own model; writes what that model keeps of it."""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()
sys.stdout.write(JSONEncoder().encode(Dashboard.from_json(json.load(sys.stdin))))
