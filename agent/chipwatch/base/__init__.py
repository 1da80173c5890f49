"""Small helpers that every other package may import: texts, redaction of secrets, tables, files, the version."""
