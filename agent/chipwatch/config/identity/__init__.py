"""
The identity of this machine: the dimensions of `--common-dims` and the sources of their values.

It knows no collector and no sink; values of single devices stay with their collector.
"""
