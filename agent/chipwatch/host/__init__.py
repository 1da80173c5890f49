"""How to read a host: files, counters, processes, tools."""
