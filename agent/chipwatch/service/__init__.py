"""
The life of the process beside the engine: signals, state on disk, heartbeat, status, health, announcements, log files.

Nothing here parses options or prints a result.
"""
