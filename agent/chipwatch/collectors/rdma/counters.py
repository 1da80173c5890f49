"""The drivers' counters as our metrics; each driver has other ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Dimensions, Level, Metric, counter, gauge

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


class CounterSeries(NamedTuple):
    """A counter that is the sum of some files."""

    metric: Metric
    dims: Dimensions
    files: tuple[str, ...]
    factor: int = 1


def plan(names: Sequence[str], dims: Dimensions) -> Iterator[CounterSeries]:
    """Yield the series that the readable files make."""
    used: set[str] = set()
    for metric, more, choices in FIRST_OF:
        for files in (tuple(choice.split("+")) for choice in choices):
            if all(name in names for name in files):
                used.update(files)
                yield CounterSeries(metric, dims | more, files, 4 if WORDS.fullmatch(files[0]) else 1)
                break
    if errors := tuple(name for name in names if LINK_ERROR.fullmatch(name)):
        yield CounterSeries(ERRORS, dims, errors)
    for name in names:
        if operation := OPERATION.fullmatch(name):
            metric = SIZES if operation[2] == "bytes" else OPERATIONS
            yield CounterSeries(metric, dims | {"operation": operation[1]}, (name,))
        elif ERROR.search(name):
            yield CounterSeries(DETAIL, dims | {"error": name}, (name,))
        elif name not in used:
            yield CounterSeries(OTHER, dims | {"counter": name}, (name,))
