"""
Computes the cost of a configuration, and dashboards and alarms for its metrics.

Only commands load it; a run that sends does not. It names no cloud and no collector: the sinks' advisors know these.
"""
