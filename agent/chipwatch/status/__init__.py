"""
The status of a running agent: heartbeat file, health server, status socket.

It takes its answers as functions, and knows neither pipeline nor sinks.
"""
