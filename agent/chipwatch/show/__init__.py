"""
Shows readings to people: the screen `top`, many machines (`fleet`), a finished run (`report`), notebooks (`watching`).

It draws what other parts have measured, and changes nothing.
"""
