"""
Names of other tools for our metrics: a table for each profile, and the code that renames points.

It declares no metric and reads nothing from the machine.
"""
