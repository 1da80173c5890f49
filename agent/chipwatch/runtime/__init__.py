"""
What lives beside the pipeline while the agent runs: its state on disk, the status snapshot, announcements, signals.

Nothing here parses options or prints a result.
"""
