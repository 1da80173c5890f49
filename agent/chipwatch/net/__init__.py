"""
Network helpers: HTTP with limits, a page server, metadata services, protobuf, the status socket.

It knows no sink, no collector and no configuration.
"""
