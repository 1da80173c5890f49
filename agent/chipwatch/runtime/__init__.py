"""
Lives beside the pipeline while the agent runs: state on disk, status snapshot, announcements, signals.

Nothing here parses options or prints a result.
"""
