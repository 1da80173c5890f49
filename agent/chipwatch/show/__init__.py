"""
The agent for the eyes: the full screen `top`, many machines (`fleet`), tables and pages (`report`), notebooks.

It draws what others measured, and changes nothing.
"""
