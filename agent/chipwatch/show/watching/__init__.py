"""Watches a Python program from inside: `chipwatch.watch`, and the magic `%chipwatch` of IPython."""
