"""
Readers of the host that several collectors share: files, counters, cgroups, processes, other programs.

No collector lives here, and nothing here imports collectors or the engine.
"""
