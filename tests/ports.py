"""Ports of loopback for programs that are given theirs."""

import itertools
import os
import socket
from contextlib import suppress

FIRST, COUNT = 10_000, 18_000
"""Below those that systems give to connections and to servers that ask for any: Linux from 32768, others from 49152."""
_numbers = itertools.count(37 * os.getpid())


def free_port() -> int:
    """Return a port at which nobody listens, which the system gives to nobody meanwhile; another at each call."""
    for number in itertools.islice(_numbers, COUNT):
        with suppress(OSError), socket.create_server(("127.0.0.1", port := FIRST + number % COUNT)):
            return port
    raise OSError("no port is free")
