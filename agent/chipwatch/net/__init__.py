"""
Network helpers: HTTP with limits, a page server, metadata services, and a clock checked against a service's.

It knows no sink, no collector and no configuration.
"""
