"""
Shows many machines: `chipwatch top HOST`, `chipwatch top --once`, and the same from a store with Prometheus' API.

It keeps nothing: nodes are asked, by their page, by ssh or by PromQL, and what they answer is shown.
"""
