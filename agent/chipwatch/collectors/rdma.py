"""
Collects metrics of InfiniBand, RoCE and EFA ports: from sysfs, and pauses of RoCE from the driver of the interface.

Drivers have different counters (Documentation/ABI/stable/sysfs-class-infiniband of Linux), so every file is read. A
counter may send a command to the card's firmware, so there is a longer interval, and only files that the level needs
are read. Pauses: Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst; bnxt_ethtool.c.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import Final

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, counter, gauge
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.counters import Counters
from chipwatch.host.ethtool import DriverCounters, Ethtool, ethtool
from chipwatch.host.last_values import LastValues
from chipwatch.host.pace import Backoff
from chipwatch.host.procfs import close_all, read, read_small
from chipwatch.host.rows import FileRow, Folder, Folders, RowFiles

FOLDERS: Final = ("counters", "hw_counters", "diag_counters", "counters_ext")
SETTINGS: Final = frozenset({"lifespan"})
WHOLE: Final = "all"
"""Value of the dimension `port` for counters of a whole device."""
REFUSALS: Final = 3
"""Failures without a success after which the firmware counts as refusing; more would only fill the kernel's log."""

PORT: Final = ("device", "port")
PRIORITY: Final = ("priority", "direction")
# fmt: off
STATE: Final = gauge("rdma.state", "1", "Whether the port is active: 1, else 0.", dims=PORT)
RATE: Final = gauge("rdma.rate", "Gbit/s", "Rate of the link.", dims=PORT)
ACTIVE: Final = gauge("rdma.ports.active", "{port}", "Number of active ports.")
SENT: Final = counter("rdma.sent", "By", "Sent by the port.", dims=PORT)
RECEIVED: Final = counter("rdma.received", "By", "Received by the port.", dims=PORT)
PACKETS: Final = counter(
    "rdma.packets", "{packet}", "Packets that the port sent or received.", Level.DETAILED, (*PORT, "direction"))
ERRORS: Final = counter("rdma.errors", "{error}", "Errors and discarded packets of the link, all kinds.", dims=PORT)
DETAIL: Final = counter(
    "rdma.errors.detail", "{error}", "Errors of one kind, under the driver's name.", Level.DETAILED, (*PORT, "error"))
DOWNED: Final = counter("rdma.link.downed", "{event}", "How often the link went down.", dims=PORT)
RETRANSMITS: Final = counter(
    "rdma.retransmits", "{packet}", "Retransmissions, or the events that cause one, as the card counts.", dims=PORT)
CONGESTION: Final = counter(
    "rdma.congestion", "{packet}", "Packets that notify of congestion.", Level.DETAILED, (*PORT, "kind"))
WAIT: Final = counter(
    "rdma.wait", "{tick}", "Ticks of the card in which the port had data to send and could not.", Level.DETAILED, PORT)
SIZES: Final = counter(
    "rdma.operation.size", "By", "Transferred by one kind of operation.", Level.DETAILED, (*PORT, "operation"))
OPERATIONS: Final = counter(
    "rdma.operations", "{operation}", "Work requests of one kind.", Level.DETAILED, (*PORT, "operation"))
PAUSES: Final = counter(
    "rdma.pause.frames", "{frame}", "Pause frames of a priority, or of all.", Level.DETAILED, (*PORT, *PRIORITY))
PAUSED: Final = counter(
    "rdma.pause.time", "s", "Time in which pauses stopped a priority: received ones the port, sent ones its peer.",
    Level.DETAILED, (*PORT, *PRIORITY))
STORMS: Final = counter(
    "rdma.pause.storms", "{event}", "How often the port sent pauses for long; error: the card ended them.",
    Level.DETAILED, (*PORT, "kind"))
TRAFFIC: Final = counter(
    "rdma.priority.traffic", "By", "Sent and received by the port with a priority.", Level.DETAILED, (*PORT, *PRIORITY))
OTHER: Final = counter("rdma.counter", "1", "Any other counter of the driver.", Level.ALL, (*PORT, "counter"))
# fmt: on

WORDS: Final = re.compile(r"port_(xmit|rcv)_data(_64)?")
"""Matches counters in units of four bytes."""
FIRST_OF: Final[tuple[tuple[Metric, Mapping[str, str], tuple[str, ...]], ...]] = (
    (SENT, {}, ("port_xmit_data_64", "port_xmit_data", "tx_bytes", "ip4OutOctets+ip6OutOctets",
            "tx_rdma_ucast_bytes+tx_rdma_mcast_bytes")),
    (RECEIVED, {}, ("port_rcv_data_64", "port_rcv_data", "rx_bytes", "ip4InOctets+ip6InOctets",
                "rx_rdma_ucast_bytes+rx_rdma_mcast_bytes")),
    (DOWNED, {}, ("link_downed",)),
    (RETRANSMITS, {}, ("retrans_pkts", "tcpRetransSegs", "rc_resends", "to_retransmits+seq_err_naks_rcvd",
                       "local_ack_timeout_err+packet_seq_err", "tx_rdma_retx_pkts",
                       "tx_rdma_ack_timeout+req_rx_pkt_seq_err", "req_rx_pkt_seq_err")),
    (WAIT, {}, ("port_xmit_wait",)),
    (PACKETS, {"direction": "sent"}, ("port_xmit_packets_64", "port_xmit_packets", "tx_pkts", "ip4OutPkts+ip6OutPkts",
                                      "tx_rdma_ucast_pkts+tx_rdma_mcast_pkts")),
    (PACKETS, {"direction": "received"}, ("port_rcv_packets_64", "port_rcv_packets", "rx_pkts", "ip4InPkts+ip6InPkts",
                                          "rx_rdma_ucast_pkts+rx_rdma_mcast_pkts")),
    (CONGESTION, {"kind": "cnp_sent"}, ("np_cnp_sent", "cnpSent", "tx_cnp_pkts", "tx_rdma_cnp_pkts")),
    (CONGESTION, {"kind": "cnp_handled"}, ("rp_cnp_handled", "cnpHandled", "rx_cnp_pkts", "rx_rdma_cnp_pkts")),
    (CONGESTION, {"kind": "ecn_marked"}, ("np_ecn_marked_roce_packets", "RxECNMrkd", "rx_ecn_marked_pkts",
                                          "rx_rdma_ecn_pkts")),
)  # fmt: skip
"""Metric, dimensions, and files of several drivers: the first readable file counts; `+` adds two."""
LINK_ERROR: Final = re.compile(
    r"symbol_error|link_error_recovery|local_link_integrity_errors|excessive_buffer_overrun_errors"
    r"|port_(rcv|xmit)_(constraint_)?errors|port_rcv_remote_physical_errors|port_(rcv|xmit)_discards"
    r"|[rt]x_roce_(errors|discards)|(un)?recoverable_err(ors)?|rx_drops|ip[46]InDiscards|rxVlanErrors"
    r"|rx_rdma_mtu_discard_pkts|req_rx_inval_pkts"
)
"""Matches counters that ERRORS sums. Errors of applications, such as a wrong key, are only in DETAIL."""
ERROR: Final = re.compile(
    r"err|discard|drop|over(run|flow)|ovr|nak|out_of_|exceed|missing|timeout|truncated|noroute|impaired|unresponsive"
    r"|inval_pkts|outou?f_",
    re.IGNORECASE,
)
OPERATION: Final = re.compile(r"(send|recv|rdma_(?:read|write)(?:_resp|_recv)?)_(bytes|wrs)")
OF_DRIVERS: Final = (
    (PAUSES, re.compile(r"([rt]x)_(?:prio(\d)|global)_pause|([rt]x)_pfc_ena_frames_pri(\d)")),
    (PAUSED, re.compile(r"([rt]x)_(?:prio(\d)|global)_pause_duration|pfc_pri(\d)_([rt]x)_duration_us")),
    (STORMS, re.compile(r"tx_pause_storm_(warning|error)_events")),
    (TRAFFIC, re.compile(r"([rt]x)_prio(\d)_bytes|([rt]x)_bytes_pri(\d)")),
    (DETAIL, re.compile(r"(rx)_prio(\d)_(?:buf_|cong_)?discards?")),
)
"""Metrics, and names of the counters of mlx5's and bnxt's interfaces; times are in microseconds."""
DIRECTIONS: Final = {"rx": "received", "tx": "sent"}
METRICS: Final = tuple(value for value in list(vars().values()) if isinstance(value, Metric))

GAUGES: Final = (
    # The kernel returns EINVAL for a width or speed that it does not know.
    FileRow(STATE, "state", pattern=re.compile(rb"^(?:(4:)|\d:)")),
    FileRow(RATE, "rate", pattern=re.compile(rb"^(\d+(?:\.\d+)?) Gb/sec")),
)
"""Files of a port: `4: ACTIVE` and `100 Gb/sec (4X EDR)`."""


def counter_rows(files: Mapping[str, str]) -> Iterator[FileRow]:
    """Yield the rows for the counters of a port; `files`: name -> path."""
    used: set[str] = set()
    for metric, more, choices in FIRST_OF:
        there = [names for choice in choices if files.keys() >= {*(names := choice.split("+"))}]
        used.update(*there[:1])
        for names in there:
            scale = 4 if WORDS.fullmatch(names[0]) else 1
            yield FileRow(metric, "+".join(files[name] for name in names), scale, dims=Dimensions(more))
    for name, path in files.items():
        if operation := OPERATION.fullmatch(name):
            metric = SIZES if operation[2] == "bytes" else OPERATIONS
            yield FileRow(metric, path, dims=Dimensions(operation=operation[1]))
        elif ERROR.search(name):
            total = ERRORS if LINK_ERROR.fullmatch(name) else None
            yield FileRow(DETAIL, path, dims=Dimensions(error=name), total=total)
        elif name not in used:
            yield FileRow(OTHER, path, dims=Dimensions(counter=name))


def driver_series(name: str) -> tuple[Metric, Dimensions] | None:
    """Return the metric of a driver's counter, and its dimensions beside the port's; None if it has none."""
    for metric, pattern in OF_DRIVERS:
        if found := pattern.fullmatch(name):
            words = [word for word in found.groups() if word]
            priority = next(filter(str.isdigit, words), WHOLE)
            direction = next((DIRECTIONS[word] for word in words if word in DIRECTIONS), "")
            values = {"error": name, "kind": words[0], "priority": priority, "direction": direction}
            return metric, Dimensions({key: values[key] for key in metric.dims if key in values})
    return None


class _Card:
    """Keeps track of a card's firmware that refuses to answer; its ports share it."""

    def __init__(self) -> None:
        self.backoff = Backoff()
        self.problem = ""
        """Why the card refused in this reading; "" if it did not."""

    def refuse(self, now: float, error: OSError) -> None:
        """Record a refusal at `now` (monotonic s); the card is not read for a while."""
        delay = self.backoff.fail(now)
        self.problem = f"refuses its counters: {error.strerror}; asked again in {delay / 60:.0f} min"

    def end(self, now: float) -> None:
        """End a reading at `now` (monotonic s); without a refusal, the card counts as working."""
        if not self.problem and self.backoff.allows(now):
            self.backoff.succeed()
        self.problem = ""


class _Port(RowFiles):
    """The files of one port, or of a whole card; a file that fails is not read for a while."""

    def __init__(self, folder: Path, card: _Card, clock: Callable[[], float]) -> None:
        super().__init__(folder)
        self._card, self._clock = card, clock
        self._now, self._refused, self._has_answered = 0.0, 0, False
        self._chosen: dict[tuple[str, Dimensions], str] = {}
        """Series -> its file. It never changes, because another file may have counted from another time."""
        self._retry: dict[str, Backoff] = {}

    def read(self, rows: Iterable[FileRow]) -> Iterator[tuple[FileRow, float]]:
        self._now, self._refused, self._has_answered = self._clock(), 0, False
        if self._card.backoff.allows(self._now):
            of_source = (row for row in rows if self._chosen.get((row.metric.name, row.dims), row.path) == row.path)
            for row, value in super().read(of_source):
                self._chosen[row.metric.name, row.dims] = row.path
                self._retry.pop(row.path, None)
                yield row, value

    def text(self, path: str) -> bytes | None:
        if "/" not in path:  # state and rate, which need no command
            return super().text(path)
        if self._card.problem or (path in self._retry and not self._retry[path].allows(self._now)):
            return None
        try:
            text = read_small(f"{self.folder}/{path}")
        except FileNotFoundError:
            self.is_stale = True
            return None
        except OSError as error:
            self._leave(path)
            self._refused += 1
            if self._refused == REFUSALS and not self._has_answered:
                self._card.refuse(self._now, error)
            return None
        self._has_answered = True
        return text

    def reject(self, row: FileRow, text: bytes) -> None:
        for path in row.path.split("+"):  # the file has `N/A (no PMA)`
            self._leave(path)

    def _leave(self, path: str) -> None:
        self._retry.setdefault(path, Backoff()).fail(self._now)


def counter_files(folder: Path) -> dict[str, str]:
    """Return name -> path of a port's counters."""
    paths = (path for name in FOLDERS for path in sorted((folder / name).glob("*")))
    return {path.name: f"{path.parent.name}/{path.name}" for path in paths if path.name not in SETTINGS}


def by_turns(rows: Iterable[FileRow]) -> list[FileRow]:
    """Alternate rows of different folders, so that a failing folder does not look like a refusing card."""
    folders: dict[str, list[list[FileRow]]] = {}
    for _, of_series in groupby(rows, key=lambda row: (row.metric, row.dims)):
        choices = list(of_series)
        folders.setdefault(choices[0].path.partition("/")[0], []).append(choices)
    turns = chain.from_iterable(zip_longest(*folders.values(), fillvalue=[]))
    return list(chain.from_iterable(turns))


class RdmaCollector(Collector):
    """Reads the ports of all RDMA devices, at the longer interval `every`."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The options of [collectors.rdma]."""

        every: float = 15.0
        """Seconds between two readings, at least; each one costs commands to the firmware of the cards."""
        exclude: tuple[str, ...] = ()
        """Devices to leave alone."""
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")

    metrics = METRICS
    needs = Needs(level=True, state=True, always=(PAUSED.name, STORMS.name))

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic, call: Ethtool = ethtool) -> None:
        self._config, self._clock, self.every = config, clock, config.every
        self._drivers, self._counters = DriverCounters(self._series, call), Counters()
        self._folder = config.sys / "class/infiniband"
        self._cards: dict[str, _Card] = {}
        self._ports: Folders | None = None
        self._kept: LastValues | None = None
        self._silent: dict[Dimensions, str] = {}

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        self._cards, self._kept = {}, LastValues(given.state, "rdma", self._config.proc)
        self._counters = Counters(kept=self._kept)
        self._ports = Folders(self._folder, "*/ports/*", self._find, self._level, kept=self._kept, reader=self._reader)
        if not len(self._ports):
            raise Unavailable(f"no RDMA device in {self._folder}")

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield the readings; raise PartlyCollected if a device refuses."""
        if self._kept is None or self._ports is None:
            return
        states = {}
        for point in self._ports.points(at):
            if point.metric is STATE:
                states[point.dims] = point.value
            yield point
        yield from self._pauses(at, self._ports)
        ports = {port.dims for port in self._ports if port.dims["port"] != WHOLE}
        self._silent = dict.fromkeys(ports - states.keys(), "its state cannot be read")
        problems = [f"{name} {card.problem}" for name, card in self._cards.items() if card.problem]
        if not problems and not self._silent:
            yield ACTIVE.point(at, sum(states.values()))
        self._kept.save(at)
        for card in self._cards.values():
            card.end(self._clock())
        if problems:
            raise PartlyCollected(problems)

    def _series(self, name: str) -> tuple[Metric, Dimensions] | None:
        """Return the metric and dimensions of a driver's counter; None if nobody wants it."""
        found = driver_series(name)
        return found if found and (found[0].level <= self._level or found[0].name in self.needs.always) else None

    def _pauses(self, at: int, ports: Iterable[Folder]) -> Iterator[Datapoint]:
        """Yield the counters of the interfaces of ports of RoCE; a bond has the sum of its members."""
        for port in ports:
            name = read(f"{port.path}/gid_attrs/ndevs/0").decode().strip()  # absent for a port of InfiniBand
            if not name or not self._cards[port.dims["device"]].backoff.allows(self._clock()):
                continue
            bonded = [link.name.removeprefix("lower_") for link in self._config.sys.glob(f"class/net/{name}/lower_*")]
            series: dict[tuple[Metric, Dimensions], dict[str, float]] = {}
            for interface in bonded or [name]:
                for (metric, dims), value in self._drivers.read(interface):
                    number = value / 1e6 if metric is PAUSED else value
                    series.setdefault((metric, port.dims | dims), {})[interface] = number
            for (metric, dims), members in series.items():
                if bonded:
                    yield self._counters.total(metric, at, members, dims)
                else:
                    yield self._counters.point(metric, at, members[name], dims)

    def silent(self) -> dict[Dimensions, str]:
        return self._silent

    def describe(self) -> str:
        names = list(self._cards)
        return ", ".join(names[:8]) + " …" * (len(names) > 8)

    def _find(self, ports: Sequence[Path]) -> Iterator[Folder]:
        """Yield a folder for each port, and for each card as a whole."""
        cards = {card.name: card for card in (port.parents[1] for port in ports)}
        names = cards.keys() - {*self._config.exclude}
        self._cards = {name: self._cards.get(name) or _Card() for name in sorted(names)}
        seen: dict[str, set[str]] = {name: set() for name in self._cards}
        for port in ports:
            name = port.parents[1].name
            if name in names:
                files = counter_files(port)
                seen[name] |= files.keys()
                rows = [*GAUGES, *by_turns(counter_rows(files))]
                yield Folder(port, Dimensions(device=name, port=port.name), rows)
        for name in self._cards if self._level >= Level.DETAILED else ():
            # Before Linux 5.14, the card's folder repeats the counters of its only port.
            own = {file: path for file, path in counter_files(cards[name]).items() if file not in seen[name]}
            yield Folder(cards[name], Dimensions(device=name, port=WHOLE), by_turns(counter_rows(own)))

    def _reader(self, folder: Path) -> _Port:
        name = folder.parents[1].name if folder.parent.name == "ports" else folder.name
        return _Port(folder, self._cards[name], self._clock)

    def close(self) -> None:
        """Save the counters."""
        close_all(self._kept)
