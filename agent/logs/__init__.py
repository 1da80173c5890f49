"""How this program logs."""
