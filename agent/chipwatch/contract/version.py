"""The version, in the one place where it is written."""

__version__ = "0.1.0"

USER_AGENT = f"chipwatch/{__version__}"
"""Names this program in requests."""
