"""
The points that each sink has not yet taken, in memory and on disk, and the ledger of all points.

A spool knows points, dimensions and destinations as texts. It knows no sink, window or configuration.
"""
