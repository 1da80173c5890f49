"""`chipwatch plan`: how much a configuration will send, and the cost."""
