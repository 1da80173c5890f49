"""An agent beside a Python program: `chipwatch.watch`, and the magic `%chipwatch` of IPython."""
