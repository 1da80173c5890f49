"""
The contract of plugins: datapoints, the four contracts and their extensions, errors, words, and checks of a plugin.

Nothing here knows of the pipeline, the host or a cloud. Plugins import these names from `chipwatch`.
"""
