"""
The contract of plugins: datapoints, the bases of plugins and what they declare, facts, errors, and checks of a plugin.

Nothing here knows of the engine, the host or a cloud. Plugins import these names from `chipwatch`.
"""
