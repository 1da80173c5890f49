"""Recordings: files of the JSON lines that the agent writes."""
