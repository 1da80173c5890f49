"""
Accelerators, amounts and finished runs as text: for the summary of a run, `top`, `jobs` and `report`.

It gets datapoints and answers, and returns text; it reads no device.
"""
