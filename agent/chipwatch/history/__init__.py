"""
The past: the ring of readings in memory, recordings of runs and incidents on disk, and the events beside them.

Who asks what was reads it here.
"""
