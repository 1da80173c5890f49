"""
What is shown of accelerators and of a finished run, shared by the summary, `top`, `jobs` and `status`.

Nothing here reads a device or a file: it takes datapoints and answers.
"""
