"""
The verdict: whether this machine is fit for work, and what to do if it is not.

Expectations, rules, readings and exit codes are here. `commands/verdict.py` parses options and prints.
"""
