"""
The cost of a configuration, and dashboards and alarms for its metrics.

Loaded by commands alone: a run that sends never imports it, and no cloud or collector is named here.
"""
