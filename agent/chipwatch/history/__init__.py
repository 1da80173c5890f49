"""
The past: the ring of readings in memory, recordings of runs and incidents on disk, and the events beside them.

Whatever shows or judges the past reads it from this package.
"""
