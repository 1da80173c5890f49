"""The commands of the command line: they parse and print."""
