"""
Shows accelerators, tables and a finished run to people; shared by the summary, `top`, `jobs` and `status`.

Nothing here reads a device or a file: it takes datapoints and answers, and returns text.
"""
