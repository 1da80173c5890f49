"""One module a source of readings."""
