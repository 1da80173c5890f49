"""What every room stands on, and what knows none of them: words and their redaction, tables, files, the version."""
