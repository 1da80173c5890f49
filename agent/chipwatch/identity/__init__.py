"""The identity of this machine: the dimensions of `--common-dims` and the sources of their values."""
