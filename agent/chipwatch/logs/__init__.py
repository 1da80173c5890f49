"""
Log records: their forms, limits and files.

It knows no part of the agent; plugins log through the standard library.
"""
