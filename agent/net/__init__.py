"""What takes a network, or a time from it: bounded sockets, a clock that can be trusted."""
