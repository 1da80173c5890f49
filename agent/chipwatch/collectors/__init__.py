"""
Collectors: one module or folder for each source of readings, listed in pyproject.toml.

They import from host/, never from each other, from sinks or from the pipeline.
"""
