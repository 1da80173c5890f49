"""
Collectors: one module or folder for each source of readings. pyproject.toml lists them as entry points.

They import shared readers from host/, but not from each other, nor from sinks or the engine.
"""
