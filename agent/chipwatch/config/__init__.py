"""
Configuration: reads a file, flags and the environment, checks the values, and builds the plugins that they name.

It starts nothing: engine and service use its values. `identity` finds the dimensions of this machine, `naming` gives
metrics the names of other tools.
"""
