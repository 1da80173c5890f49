"""
The agent for the eyes: the full screen `top`, many machines (`fleet`), the tables and page of a run (`report`), `watching`.

It draws what others measured, and changes nothing.
"""
