"""
Network helpers: an HTTP client and a page server with limits, metadata services, protobuf, the status socket.

They know no sink, no collector and no configuration.
"""
