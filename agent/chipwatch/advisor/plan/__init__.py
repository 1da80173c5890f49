"""`chipwatch plan`: what a configuration will send, and what that costs."""
