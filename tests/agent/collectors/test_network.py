import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from chipwatch.collectors.network import (
    DROPS,
    ERRORS,
    INTERFACE_RECEIVED,
    INTERFACE_SENT,
    RECEIVED,
    SENT,
    NetworkCollector,
)
from chipwatch.contract.datapoint import Dimensions, Kind, Level
from chipwatch.contract.errors import Unavailable
from chipwatch.engine.window import Window

PROC = Path(__file__).parents[2] / "fixtures/host/node_exporter/proc"
S = 10**9
BOOT = 1418183276 * S
HEADER = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes ...\n"


@pytest.fixture
def host(tmp_path):
    """A /proc whose net/dev can be rewritten."""
    (tmp_path / "net").mkdir()
    shutil.copyfile(PROC / "stat", tmp_path / "stat")
    shutil.copyfile(PROC / "net/dev", tmp_path / "net/dev")
    return tmp_path


@pytest.fixture
def opened(begun):
    """Open a collector on a /proc."""

    def make(proc: Path, level: Level = Level.BASIC, **config) -> NetworkCollector:
        return begun(NetworkCollector(NetworkCollector.Config(proc=proc, **config)), level)

    return make


def write(proc: Path, **interfaces: tuple[int, int]) -> None:
    """Write a net/dev with the bytes sent and received by each interface."""
    lines = [
        f"{name:>6}: {received} 9 0 0 0 0 0 0 {sent} 9 0 0 0 0 0 0\n" for name, (sent, received) in interfaces.items()
    ]
    (proc / "net/dev").write_text(HEADER + "".join(lines))


def sums(collector: NetworkCollector) -> tuple[float, float] | None:
    found = {p.metric: p.value for p in collector.collect(at=7)}
    return (found[SENT], found[RECEIVED]) if found else None


@pytest.mark.parametrize(("loopback", "sent", "received"), [(False, 3, 30), (True, 103, 1030)])
def test_the_sums_include_all_interfaces_and_the_loopback_if_configured(host, opened, loopback, sent, received):
    write(host, eth0=(1000, 100), eth1=(5000, 500), lo=(9000, 900))
    collector = opened(host, loopback=loopback)
    assert list(collector.collect(at=7)) == [SENT.point(7, 0, start_time=7), RECEIVED.point(7, 0, start_time=7)]
    write(host, eth0=(1001, 110), eth1=(5002, 520), lo=(9100, 1900))
    assert list(collector.collect(at=8)) == [
        SENT.point(8, sent, start_time=7), RECEIVED.point(8, received, start_time=7)
    ]  # fmt: skip


def test_level_all_adds_bytes_errors_and_drops_of_each_interface(host, opened):
    (host / "net/dev").write_text(
        HEADER + "  eth0:100 1 2 3 4 5 6 7 200 11 12 13 14 15 16 17\n    lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n"
    )
    one = Dimensions(interface="eth0")
    sent, received = one | {"direction": "sent"}, one | {"direction": "received"}
    assert list(opened(host, Level.ALL).collect(at=7)) == [
        SENT.point(7, 0, start_time=7),
        RECEIVED.point(7, 0, start_time=7),
        INTERFACE_SENT.point(7, 200, one, start_time=BOOT),
        INTERFACE_RECEIVED.point(7, 100, one, start_time=BOOT),
        ERRORS.point(7, 12, sent, start_time=BOOT),
        ERRORS.point(7, 2, received, start_time=BOOT),
        DROPS.point(7, 13, sent, start_time=BOOT),
        DROPS.point(7, 3, received, start_time=BOOT),
    ]


def test_level_detailed_leaves_out_the_bytes_of_each_interface(opened):
    assert {p.metric for p in opened(PROC, Level.DETAILED).collect(at=7)} == {SENT, RECEIVED, ERRORS, DROPS}


def test_a_name_may_contain_a_colon_and_touch_the_first_number(opened):
    found = {
        p.dims["interface"]: p.value for p in opened(PROC, Level.ALL).collect(at=7) if p.metric is INTERFACE_RECEIVED
    }
    assert found == {
        "tun0": 1888,
        "veth4B09XN": 648,
        "eth0": 68210035552,
        "lxcbr0": 0,
        "wlan0": 10437182923,
        "docker0": 64910168,
        "ibr10:30": 0,
    }


def test_the_sums_neither_jump_nor_fall_when_an_interface_goes_and_returns(host, opened):
    write(host, eth0=(1000, 100), eth1=(5000, 500))
    collector = opened(host)
    assert sums(collector) == (0, 0)
    write(host, eth0=(1010, 101), eth1=(5005, 500))
    assert sums(collector) == (15, 1)
    write(host, eth0=(1010, 101))
    assert sums(collector) == (15, 1)
    write(host, eth0=(1020, 102), eth1=(4, 40))
    assert sums(collector) == (25, 2)
    write(host, eth0=(1020, 102), eth1=(7, 70))
    assert sums(collector) == (28, 32)


def test_a_restart_after_an_interface_has_gone_begins_at_zero_with_a_newer_start(host, opened):
    """Prometheus would take 1.0e12 after 1.4e12 under one start for a reset, and count 1.0e12 bytes once more."""
    shown, terabyte = [], 10**12
    write(host, eth0=(terabyte, 1), veth1=(4 * terabyte // 10, 1))
    collector = opened(host)
    for at, interfaces in ((7, {"veth1": 4 * terabyte // 10 + 60}), (8, {})):
        write(host, **{"eth0": (terabyte + 100 * at, 1), **{name: (sent, 1) for name, sent in interfaces.items()}})
        shown += [(p.value, p.start_time) for p in collector.collect(at) if p.metric is SENT]
    collector.close()
    collector = opened(host)
    for at in (9, 10):
        write(host, eth0=(terabyte + 100 * at, 1))
        shown += [(p.value, p.start_time) for p in collector.collect(at) if p.metric is SENT]
    assert shown == [(0, 7), (100, 7), (0, 9), (100, 9)]


def test_an_interface_that_starts_again_in_place_has_a_new_start_and_loses_nothing(host, opened):
    write(host, eth0=(100, 1))
    collector, window, rises, starts = opened(host, Level.ALL), Window(0, born=BOOT + S), {}, []
    for at, sent in ((BOOT + 10 * S, 100), (BOOT + 20 * S, 1375), (BOOT + 30 * S, 49), (BOOT + 40 * S, 51)):
        write(host, eth0=(sent, 1))
        points = window.add(collector.collect(at), at)
        for point in points:
            if point.metric in (SENT, INTERFACE_SENT):
                rises[point.metric] = rises.get(point.metric, 0) + (point.increase or 0)
        starts += [(p.value, p.start_time) for p in points if p.metric is INTERFACE_SENT]
    assert rises == {SENT: 1275 + 49 + 2, INTERFACE_SENT: 1275 + 49 + 2}
    assert starts == [(100, BOOT), (1375, BOOT), (49, BOOT + 20 * S), (51, BOOT + 20 * S)]


def test_the_series_of_an_interface_that_returns_with_a_larger_count_does_not_jump(host, opened):
    write(host, eth0=(1000, 100), veth1=(50, 5))
    collector, window = opened(host, Level.ALL), Window(0, born=0)

    def gained(at):
        points = window.add(collector.collect(at), at)
        return {p.increase for p in points if p.metric is INTERFACE_SENT and p.dims["interface"] == "veth1"}

    assert gained(10) == {None}
    write(host, eth0=(1000, 100), veth1=(60, 6))
    assert gained(20) == {10}
    write(host, eth0=(1000, 100))
    assert gained(30) == set()
    write(host, eth0=(1000, 100), veth1=(9_000_000, 7))
    assert gained(40) == {None}
    write(host, eth0=(1000, 100), veth1=(9_000_005, 7))
    assert gained(50) == {5}


def test_without_interfaces_nothing_is_yielded(host, opened):
    write(host, eth0=(1000, 100))
    collector = opened(host, Level.ALL)
    write(host, lo=(1, 1))
    assert sums(collector) is None
    write(host, eth0=(2000, 200))
    assert sums(collector) == (0, 0)


def test_in_a_hosts_proc_mounted_elsewhere_the_namespace_of_process_1_is_read(host, opened):
    write(host, mine=(1, 1))
    (host / "1/net").mkdir(parents=True)
    (host / "1/net/dev").write_text((PROC / "net/dev").read_text())
    assert opened(host).describe() == "tun0, veth4B09XN, eth0, lxcbr0, wlan0, docker0, ibr10:30"


def test_without_access_to_process_1_the_agents_own_namespace_is_read(host, opened):
    write(host, mine=(1, 1))
    assert opened(host).describe() == "mine"


def test_describe_shortens_a_long_list_of_interfaces(host, opened):
    write(host, **{f"eth{n}": (1, 1) for n in range(20)})
    assert opened(host).describe() == "eth0, eth1, eth2, eth3, eth4, eth5, eth6 and 13 more"


def test_without_a_source_the_message_says_where_it_looked(host, opened):
    write(host, lo=(1, 1))
    with pytest.raises(Unavailable, match=f"no network interface but the loopback in {host}/net/dev"):
        opened(host)
    (host / "net/dev").unlink()
    with pytest.raises(Unavailable, match=f"{host}/net/dev"):
        opened(host)


def of_psutil() -> tuple[int, int]:
    counted = [c for name, c in psutil.net_io_counters(pernic=True, nowrap=False).items() if name != "lo"]
    return sum(c.bytes_sent for c in counted), sum(c.bytes_recv for c in counted)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_counters_of_this_machine_agree_with_psutil(opened, monkeypatch, platform):
    before = of_psutil()
    monkeypatch.setattr(sys, "platform", platform)
    try:
        collector = opened(Path("/proc"), Level.ALL)
    except Unavailable as error:
        pytest.skip(str(error))
    points = list(collector.collect(at=7))
    monkeypatch.undo()
    after = of_psutil()
    assert [(p.value, p.start_time) for p in points[:2]] == [(0, 7)] * 2
    for metric, least, most in zip((INTERFACE_SENT, INTERFACE_RECEIVED), before, after, strict=True):
        assert least <= sum(p.value for p in points if p.metric is metric) <= most
    assert all(
        p.metric.kind is Kind.COUNTER and p.start_time == pytest.approx(psutil.boot_time() * 1e9, abs=2e9)
        for p in points[2:]
    )


def test_outgoing_drops_are_absent_on_macos(opened, monkeypatch):
    counted = SimpleNamespace(bytes_sent=1, bytes_recv=2, errin=3, errout=4, dropin=5, dropout=0)
    monkeypatch.setattr(psutil, "net_io_counters", lambda pernic, nowrap: {"lo0": counted, "en0": counted})
    monkeypatch.setattr(sys, "platform", "darwin")
    points = list(opened(Path("/proc"), Level.ALL).collect(at=7))
    assert [(p.metric, p.value, p.dims["direction"]) for p in points[4:]] == [
        (ERRORS, 4, "sent"),
        (ERRORS, 3, "received"),
        (DROPS, 5, "received"),
    ]
    assert {p.dims["interface"] for p in points[2:]} == {"en0"}


def test_a_name_of_an_interface_in_odd_bytes_costs_no_points_of_others(host, opened):
    write(host, eth0=(5, 7))
    with (host / "net/dev").open("ab") as file:
        file.write(b"vlan\xff: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n")
    points = opened(host, Level.ALL).collect(at=7)
    assert {point.dims["interface"] for point in points if point.metric is INTERFACE_SENT} == {"eth0", r"vlan\xff"}
