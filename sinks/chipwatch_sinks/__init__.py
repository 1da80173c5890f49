"""Sinks: a folder for each destination, with its limits, encoding, errors and advisor; a sink never imports another."""
