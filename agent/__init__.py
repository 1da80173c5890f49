"""The frame of chipwatch and its collectors."""
