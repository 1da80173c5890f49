"""
The identity of this machine: finds values for the words of `--common-dims`, such as its instance id.

They become dimensions of every point. It knows no collector and no sink.
"""
