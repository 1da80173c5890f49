"""
`chipwatch top`: this machine, or a recording, on a full screen.

It sends and stores nothing. Text that other commands also print belongs in `report/`.
"""
