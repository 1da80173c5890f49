"""Recordings: files with the points of a run or of an incident, written and read."""
