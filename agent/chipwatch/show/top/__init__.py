"""
Shows this machine, or a recording, on a full screen: `chipwatch top`.

Nothing here sends or keeps a point; what other commands print too belongs in `report/`.
"""
