"""Metrics under other tools' names."""
