"""
A running agent beside its engine: signals, saved state, heartbeat, status, health, recordings, logs.

It parses no options and prints no results.
"""
