"""What is owed to each sink, on disk."""
