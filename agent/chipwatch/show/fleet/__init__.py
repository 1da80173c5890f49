"""
Many machines on one screen: `chipwatch top HOST`, `chipwatch top --once`, and both from a store with Prometheus' API.

It asks nodes for their page, by ssh or by PromQL, shows the answers, and keeps nothing.
"""
