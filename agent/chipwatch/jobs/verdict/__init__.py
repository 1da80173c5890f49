"""
Judges whether this machine is fit for work, and what to do if it is not: expectations, rules, readings, exit codes.

Nothing here parses options or prints: `commands/verdict.py` does.
"""
