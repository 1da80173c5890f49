"""The drivers' counters as our metrics; each driver has other ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from chipwatch.contract.datapoint import Dimensions, Level, Metric, counter, gauge
from chipwatch.host.rows import FileRow

PORT: Final = ("device", "port")
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
OTHER: Final = counter("rdma.counter", "1", "Any other counter of the driver.", Level.ALL, (*PORT, "counter"))
# fmt: on

WORDS: Final = re.compile(r"port_(xmit|rcv)_data(_64)?")
"""Counters of units of four bytes."""
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
"""Metric, dimensions, and the files of the drivers: the first that can be read counts; `+` adds two."""
LINK_ERROR: Final = re.compile(
    r"symbol_error|link_error_recovery|local_link_integrity_errors|excessive_buffer_overrun_errors"
    r"|port_(rcv|xmit)_(constraint_)?errors|port_rcv_remote_physical_errors|port_(rcv|xmit)_discards"
    r"|[rt]x_roce_(errors|discards)|(un)?recoverable_err(ors)?|rx_drops|ip[46]InDiscards|rxVlanErrors"
    r"|rx_rdma_mtu_discard_pkts|req_rx_inval_pkts"
)
"""The counters in ERRORS; an application's own errors, such as a wrong key, are in DETAIL only."""
ERROR: Final = re.compile(
    r"err|discard|drop|over(run|flow)|ovr|nak|out_of_|exceed|missing|timeout|truncated|noroute|impaired|unresponsive"
    r"|inval_pkts|outou?f_",
    re.IGNORECASE,
)
OPERATION: Final = re.compile(r"(send|recv|rdma_(?:read|write)(?:_resp|_recv)?)_(bytes|wrs)")
METRICS: Final = tuple(value for value in list(vars().values()) if isinstance(value, Metric))

GAUGES: Final = (
    # The kernel answers EINVAL for a width or speed that it does not know.
    FileRow(STATE, "state", pattern=re.compile(rb"^(?:(4:)|\d:)")),
    FileRow(RATE, "rate", pattern=re.compile(rb"^(\d+(?:\.\d+)?) Gb/sec")),
)
"""Of a port: `4: ACTIVE` and `100 Gb/sec (4X EDR)`."""


def counter_rows(files: Mapping[str, str]) -> Iterator[FileRow]:
    """Yield the rows that files make, given their paths by name."""
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
