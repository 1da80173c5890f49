"""
Reads the counters of a network driver (`ethtool -S`) by an ioctl, which needs no permission.

Each driver has other names. A reading may send commands to the card's firmware.
"""

from __future__ import annotations

import fcntl
import struct
from array import array
from collections.abc import Callable
from contextlib import closing
from socket import AF_INET, SOCK_DGRAM, socket
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
SIOCETHTOOL: Final = 0x8946
DRIVER, STRINGS, STATISTICS = 0x03, 0x1B, 0x1D
"""ETHTOOL_GDRVINFO, ETHTOOL_GSTRINGS, ETHTOOL_GSTATS: include/uapi/linux/ethtool.h."""
DRIVER_SIZE, COUNT_AT, NAME_SIZE = 196, 180, 32
MOST: Final = 1 << 14
"""Most counters of an interface. Buffers have room for all: the kernel may write more than it announced."""
MOST_INTERFACES: Final = 1000
"""Most interfaces that are remembered; interfaces of containers come and go."""
Ethtool = Callable[[str, bytes], bytes]


def ethtool(interface: str, request: bytes) -> bytes:
    """Send a request of ethtool to the kernel; return its answer. Raise OSError."""
    data = array("B", request)
    with closing(socket(AF_INET, SOCK_DGRAM)) as control:
        fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP16x", interface.encode(), data.buffer_info()[0]))
    return data.tobytes()


class DriverCounters(Generic[Key]):
    """The chosen counters of interfaces. An interface that has none is asked once, for the names."""

    def __init__(self, choose: Callable[[str], Key | None], call: Ethtool = ethtool) -> None:
        """`choose` returns the key under which a counter is read, by its name; None leaves the counter out."""
        self._choose, self._call = choose, call
        self._chosen: dict[str, tuple[int, list[tuple[int, Key]]]] = {}
        """Interface -> the number of its counters, and the places and keys of those that are read."""

    def read(self, interface: str) -> list[tuple[Key, int]]:
        """Return keys and counts; [] if the interface has none, is gone, or has other counters than before."""
        if interface not in self._chosen:
            if len(self._chosen) >= MOST_INTERFACES:
                self._chosen.clear()
            names = self._names(interface)
            keys = ((place, self._choose(name)) for place, name in enumerate(names))
            self._chosen[interface] = len(names), [(place, key) for place, key in keys if key is not None]
        size, chosen = self._chosen[interface]
        if not chosen:
            return []
        try:
            data = self._call(interface, struct.pack("=II", STATISTICS, size) + bytes(8 * MOST))
        except OSError:
            data = b""
        if data[4:8] != struct.pack("=I", size):  # it is gone, or its queues or its priorities have changed
            del self._chosen[interface]
            return []
        values = struct.unpack_from(f"={size}Q", data, 8)
        return [(key, values[place]) for place, key in chosen]

    def _names(self, interface: str) -> list[str]:
        """Return the names of all counters of an interface; [] if it has none, or too many."""
        try:
            driver = self._call(interface, struct.pack("=I", DRIVER).ljust(DRIVER_SIZE, b"\0"))
            (size,) = struct.unpack_from("=I", driver, COUNT_AT)
            if not 0 < size <= MOST:
                return []
            strings = self._call(interface, struct.pack("=III", STRINGS, 1, size) + bytes(NAME_SIZE * MOST))
        except OSError:
            return []
        names = struct.iter_unpack(f"{NAME_SIZE}s", strings[12 : 12 + NAME_SIZE * size])
        return [text.split(b"\0")[0].decode("ascii", "replace") for (text,) in names]
