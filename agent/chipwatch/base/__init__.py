"""Words and their redaction, tables, files, the version: every room stands on them, and they know none."""
