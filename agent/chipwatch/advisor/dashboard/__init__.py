"""`chipwatch dashboard`: dashboards and alarms for what a configuration sends."""
