"""
The way from a tick of the clock to a delivered batch: collectors, processors, windows, admission, delivery.

`build` puts the parts together and alone reads the configuration. No collector, sink or cloud is named here.
"""
