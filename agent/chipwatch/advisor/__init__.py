"""
What a configuration costs, and the dashboards and alarms for what it sends.

Loaded by commands alone: a run that sends never imports it, and no cloud or collector is named here.
"""
