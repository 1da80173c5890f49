"""The status of a running agent: heartbeat file, health server, status socket."""
