"""
The spool: a queue on disk, or in memory, of the points that a sink has not yet taken, and the counts of all points.

It knows points, dimensions, and destinations as texts. It knows no sink, window or configuration.
"""
