"""
Configuration: from files, flags and the environment to checked values, and to the plugins they name.

It starts nothing: engine and service use its values.
"""
