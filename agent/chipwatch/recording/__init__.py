"""
Recordings: files of the JSON lines that the agent writes.

It only reads them; the sink `stdout` writes them.
"""
