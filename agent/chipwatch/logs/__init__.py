"""
Log records: their forms, limits and files.

The notices of the agent about itself are rows here; plugins log through the standard library.
"""
