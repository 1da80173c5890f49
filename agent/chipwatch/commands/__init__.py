"""
The commands of the command line: each parses its options, calls other packages, and prints the result.

State of a running agent and decisions about readings belong in those packages, not here.
"""
