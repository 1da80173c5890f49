"""Counters of TCP and of the cloud's network cards; the traffic is in test_network.py."""

import socket
import struct
import sys

import pytest
from tests.doubles.ethtool import Card

from chipwatch.collectors import network
from chipwatch.collectors.network import Allowances, NetworkCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.host.ethtool import MOST, ethtool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files and ioctl of Linux")
SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens RetransSegs
Tcp: 1 200 120000 -1 3556 230 419
"""
NETSTAT = """TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPTimeouts
TcpExt: 0 2 3 115
IpExt: InNoRoutes
IpExt: 0
"""
DEV = "Inter-|   Receive\n face |bytes\n  eth0: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n"


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "net").mkdir()
    for name, text in {"dev": DEV, "snmp": SNMP, "netstat": NETSTAT}.items():
        (tmp_path / "net" / name).write_text(text)
    (tmp_path / "stat").write_text("btime 1700000000\n")
    return tmp_path


def read(proc):
    collector = NetworkCollector(NetworkCollector.Config(proc=proc))
    points = check_collector(collector, ticks=1)
    return {point.metric.name: point for point in points if ".tcp." in point.metric.name}


def test_what_tcp_sent_again_and_refused_is_counted_since_boot(proc):
    found = read(proc)
    assert {name: point.value for name, point in found.items()} == {
        "network.tcp.retransmits": 419, "network.tcp.timeouts": 115, "network.tcp.listen.drops": 3,
    }  # fmt: skip
    assert found["network.tcp.retransmits"].start_time == 1700000000 * 10**9


def test_a_host_without_these_files_has_traffic_only(proc):
    (proc / "net/netstat").unlink()
    (proc / "net/snmp").unlink()
    assert not read(proc)


def test_a_file_that_the_kernel_did_not_write_is_an_error_with_its_name(proc):
    (proc / "net/snmp").write_text("Tcp: RetransSegs\nTcp: many\n")
    with pytest.raises(OSError, match="net/snmp has an unknown format"):
        read(proc)


ENA = (("tx_timeout", 0), ("bw_in_allowance_exceeded", 5), ("bw_out_allowance_exceeded", 14368),
       ("pps_allowance_exceeded", 0), ("conntrack_allowance_exceeded", 1), ("linklocal_allowance_exceeded", 0),
       ("conntrack_allowance_available", 601984), ("queue_0_tx_cnt", 9))  # fmt: skip


def values(allowances, *interfaces):
    return {
        " ".join([point.metric.name, *point.dims.values()]): point.value for point in allowances.points(7, interfaces)
    }


def test_the_allowances_of_ena_have_an_interface_and_a_limit():
    assert values(Allowances(Card(*ENA)), "ens5") == {
        "network.allowance.exceeded ens5 bandwidth_in": 5,
        "network.allowance.exceeded ens5 bandwidth_out": 14368,
        "network.allowance.exceeded ens5 packets": 0,
        "network.allowance.exceeded ens5 connections": 1,
        "network.allowance.exceeded ens5 link_local": 0,
        "network.allowance.connections ens5": 601984,
    }


QUEUES = (("rx_queue_drop_cnt[0]", 3), ("rx_queue_drop_cnt[1]", 4), ("tx_stop[0]", 1))


def test_the_queues_of_gvnic_are_added_up():
    card, name = Card(("rx_packets", 9), *QUEUES), "network.allowance.exceeded eth0 receive_queue"
    allowances = Allowances(card)
    assert values(allowances, "eth0") == {name: 0}
    card.counters[1:3] = [("rx_queue_drop_cnt[0]", 5), ("rx_queue_drop_cnt[1]", 5)]
    assert values(allowances, "eth0") == {name: 3}


def test_a_card_that_gets_fewer_queues_keeps_what_the_others_dropped():
    card, name = Card(*QUEUES), "network.allowance.exceeded eth0 receive_queue"
    allowances = Allowances(card)
    values(allowances, "eth0")
    card.counters[:] = [("rx_queue_drop_cnt[0]", 9), *card.counters[1:]]
    assert values(allowances, "eth0") == {name: 6}
    del card.counters[1]
    assert not values(allowances, "eth0")  # its names are asked again
    assert values(allowances, "eth0") == {name: 6}


def test_a_card_with_other_counters_is_asked_for_their_names_once():
    card = Card(("rx_drops", 0), ("tx_kicks", 5))
    allowances = Allowances(card)
    assert not values(allowances, "eth0")
    assert not values(allowances, "eth0")
    assert card.asked == [("eth0", 0x03), ("eth0", 0x1B)]


def test_names_are_asked_again_once_a_card_has_other_counters():
    card = Card(*ENA)
    allowances = Allowances(card)
    values(allowances, "ens5")
    card.counters.append(("queue_1_tx_cnt", 2))
    assert not values(allowances, "ens5")
    assert values(allowances, "ens5")["network.allowance.exceeded ens5 bandwidth_in"] == 5
    card.is_gone = True
    assert not values(allowances, "ens5")


def test_a_card_that_promises_more_counters_than_there_is_room_for_is_left_alone():
    assert not values(Allowances(lambda *_: struct.pack("=I176sI12x", 3, b"odd", MOST + 1)), "eth0")


def test_the_real_kernel_answers_without_any_right():
    names = [name for _, name in socket.if_nameindex()]
    assert not values(Allowances(), *names).keys() - {"network.allowance"} or "ena" in str(names)
    found = []
    for name in names:
        try:
            found.append(ethtool(name, struct.pack("=I", 3).ljust(196, b"\0"))[4:36].rstrip(b"\0"))
        except OSError as error:
            assert error.errno in {95, 1}  # noqa: PT017  # the loopback has no such counters
    assert all(driver.decode().isprintable() for driver in found)


def test_the_names_of_a_line_are_parsed_once(proc):
    network._places.cache_clear()
    collector = NetworkCollector(NetworkCollector.Config(proc=proc))
    collector.open(Given())
    list(collector.collect(1))
    (proc / "net/netstat").write_text(NETSTAT.replace("TCPTimeouts", "Else TCPTimeouts").replace(" 115", " 7 116"))
    values = {point.metric.name: point.value for point in collector.collect(9)}
    assert values["network.tcp.timeouts"] == 116
    assert network._places.cache_info().misses == 3


@pytest.mark.parametrize(("level", "names"), [(Level.BASIC, {"snmp"}), (Level.DETAILED, {"snmp", "netstat"})])
def test_a_file_of_which_no_sink_wants_a_metric_is_not_read(proc, monkeypatch, level, names):
    opened, keep = set(), network.open_kept
    monkeypatch.setattr(network, "open_kept", lambda path: opened.add(path.name) or keep(path))
    collector = NetworkCollector(NetworkCollector.Config(proc=proc))
    collector.open(Given(level=level))
    values = {point.metric.name: point.value for point in collector.collect(9)}
    assert (opened, values["network.tcp.retransmits"]) == (names, 419)
