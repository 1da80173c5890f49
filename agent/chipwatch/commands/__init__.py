"""
The commands of the command line: they parse their options, and print.

A state that lives on while the agent runs, or a judgement, belongs in a room below.
"""
