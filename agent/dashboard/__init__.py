"""`agent dashboard`: dashboards and alarms for the metrics and dimensions that a configuration sends."""
