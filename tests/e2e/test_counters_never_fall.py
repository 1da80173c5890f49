"""Counters over restarts of the agent, while their members come, go and start again: at every sink, and by a real run."""

import io
import itertools
import json
import os
import subprocess
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.doubles import otlp, sysfs

from chipwatch.collectors.disk import DiskCollector
from chipwatch.collectors.hardware import HardwareCollector
from chipwatch.collectors.network import NetworkCollector
from chipwatch.collectors.rdma import RdmaCollector
from chipwatch.contract.datapoint import Kind, counter
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.engine.window import Window
from chipwatch.host.counters import Counters
from chipwatch.host.last_values import LastValues
from chipwatch_sinks.cloudwatch.wire import DatumEncoder
from chipwatch_sinks.google.history import Last, SentHistory
from chipwatch_sinks.otlp.encoding import OtlpEncoder
from chipwatch_sinks.prometheus.page import Format, Page
from chipwatch_sinks.stdout import StdoutSink

S = 10**9
BEGUN = 1_795_168_800 * S
TICK = 5 * S
SENT = counter("network.sent", "By", "Sent by all interfaces.")
TERABYTE = 10**12


def falls(shown):
    """Return where a counter fell without a newer start, in pairs of value and start."""
    return [(a, b) for a, b in itertools.pairwise(shown) if b[0] < a[0] and not b[1] > a[1]]


def increase(shown):
    """Return what PromQL's increase() adds up over values: a fall is a reset to 0."""
    return sum(now - last if now >= last else now for (last, _), (now, _) in itertools.pairwise(shown))


def since_starts(shown):
    """Return what a reader adds up that knows starts: a newer start is a reset to 0, and so is the first one."""
    return sum(
        now if start != began else now - last for (last, began), (now, start) in itertools.pairwise([(0, -1), *shown])
    )


class Sinks:
    """The values of one counter that each sink gets; Google keeps its history over restarts, the others start again."""

    def __init__(self) -> None:
        self.shown: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """Value and start at the cumulative sinks."""
        self.added: dict[str, float] = defaultdict(float)
        """Increases at those that take increases."""
        self._history = SentHistory()
        self.start(BEGUN)

    def start(self, born: int) -> None:
        """Start with the agent; what the windows held is lost if it was killed."""
        self._live = Window(0, born=born)
        self._minutes = {name: Window(20, born=born, increases=name == "cloudwatch") for name in ("cloudwatch", "otlp")}
        self._google = Window(20, born=born, spacing=10)
        self._page, self._otlp = Page(), OtlpEncoder({})

    def tick(self, point, at: int) -> None:
        """Take one reading."""
        self._instant(self._live.add([point], at))
        for name, window in self._minutes.items():
            self._send(name, window.add([point], at))
        self._to_google(self._google.add([point], at))

    def stop(self) -> None:
        """End in order: windows are sent."""
        for name, window in self._minutes.items():
            self._send(name, window.close())
        self._to_google(self._google.close())

    def _instant(self, points) -> None:
        stream = io.BytesIO()
        sink = StdoutSink(StdoutSink.Config(format="json"), stream)
        sink.open()
        sink.write(points)
        for line in map(json.loads, stream.getvalue().splitlines()):
            self.shown["stdout"].append((line["value"], datetime.fromisoformat(line["start_time"]).timestamp()))
            self.added["stdout"] += line.get("increase", 0)
        self._page.take(points)
        page = self._page.body(Format.OPENMETRICS, zipped=False).decode()
        found = {one.name: one.value for family in text_string_to_metric_families(page) for one in family.samples}
        self.shown["prometheus"].append((found["network_sent_bytes_total"], found["network_sent_bytes_created"]))

    def _send(self, name: str, points) -> None:
        if points and name == "cloudwatch":
            _, datums, rejected = DatumEncoder(high_resolution=False).encode(points, None)
            assert not rejected
            self.added[name] += sum(json.loads(datum)["Value"] for datum in datums)
        elif points:
            for one in otlp.read(self._otlp.encode(points)):
                self.shown[name].append((one.value, one.start))

    def _to_google(self, points) -> None:
        for point in points:
            last = self._history.follow(b"series", point)
            if isinstance(last, Last):
                self._history.keep(b"series", last)
                self.shown["google"].append((last.value - last.base, last.start))


NAMES = st.sampled_from(["eth0", "eth1", "veth1", "veth2"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("gain"), NAMES, st.integers(0, 10**6)),
        st.tuples(st.just("gain"), NAMES, st.integers(0, 10**6)),
        st.tuples(st.just("come"), NAMES, st.sampled_from([0, 5, 4 * TERABYTE // 10])),
        st.tuples(st.just("go"), NAMES, st.just(0)),
        st.tuples(st.just("reset"), NAMES, st.integers(0, 100)),
        st.tuples(st.just("kill"), NAMES, st.just(0)),
        st.tuples(st.just("restart"), NAMES, st.just(0)),
    ),
    max_size=40,
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60, deadline=None)
@given(STEPS)
def test_a_sum_falls_at_no_sink_without_a_newer_start_and_stdout_agrees_with_prometheus(steps):
    members, counters, sinks = {"eth0": TERABYTE, "veth1": 4 * TERABYTE // 10}, Counters(), Sinks()
    at, seen, gained = BEGUN, {}, 0
    for step, name, amount in [*steps, ("gain", "eth0", 7)]:
        if step in {"kill", "restart"}:
            if step == "restart":
                sinks.stop()
            counters, seen = Counters(), {}
            sinks.start(at + S)
            at += 4 * TICK
            continue
        if step == "come":
            members.setdefault(name, amount)
        elif step == "go":
            members.pop(name, None)
        elif name in members:
            members[name] = members[name] + amount if step == "gain" else min(members[name], amount)
        at += TICK
        sinks.tick(counters.total(SENT, at, dict(members)), at)
        gained += sum(now - seen[one] if now >= seen[one] else now for one, now in members.items() if one in seen)
        seen = dict(members)
    sinks.stop()
    assert {name: falls(shown) for name, shown in sinks.shown.items() if falls(shown)} == {}
    assert sinks.added["stdout"] == gained
    assert increase([(0, 0), *sinks.shown["prometheus"]]) == gained
    is_killed = any(step == "kill" for step, _, _ in steps)  # which loses the open window
    assert sinks.added["cloudwatch"] == gained or (is_killed and sinks.added["cloudwatch"] < gained)
    assert since_starts(sinks.shown["google"]) == gained or (is_killed and since_starts(sinks.shown["google"]) < gained)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(1, 10**6), st.just("reset")), max_size=30))
def test_a_single_counter_that_starts_again_loses_nothing_at_any_sink(steps):
    counters, sinks, at, value, gained = Counters(BEGUN - 9 * S), Sinks(), BEGUN + S, 1000, 0
    for _ in range(6):  # until a window has told the value that was there before
        at += TICK
        sinks.tick(counters.point(SENT, at, value), at)
    for step in steps:
        at += TICK
        before, value = value, 3 if step == "reset" else value + step
        gained += value - before if value >= before else value
        sinks.tick(counters.point(SENT, at, value), at)
    sinks.stop()
    assert {name: falls(shown) for name, shown in sinks.shown.items() if falls(shown)} == {}
    assert sinks.added == {"stdout": gained, "cloudwatch": gained} or not steps
    assert increase(sinks.shown["prometheus"]) == gained
    assert since_starts(sinks.shown["google"]) == 1000 + gained
    # A cumulative point of a window cannot tell what came between the last window and a reset in this one.
    assert since_starts(sinks.shown["otlp"]) == 1000 + gained or "reset" in steps


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(1, 10**6),
            st.sampled_from(["reset", "kill", "restart"]),
            st.tuples(st.sampled_from(["kill", "restart"]), st.integers(0, 2 * 10**6)),
        ),
        max_size=30,
    )
)
def test_a_single_counter_falls_at_no_sink_without_a_newer_start_over_restarts_of_agent_and_device(steps):
    """After a pair, or a new start after a kill, the device is another one with another value."""
    end = ""
    with TemporaryDirectory() as folder:
        host, sinks, at, value = Host(Path(folder)), Sinks(), BEGUN, 1000
        device = host.sys / "class/net/eth0"
        device.mkdir(parents=True)
        kept = LastValues(host.state, "network", host.proc)
        counters = Counters(kept=kept, device=device)
        for step in [1, *steps, 7]:
            was, (end, comes) = end, step if isinstance(step, tuple) else (step, None)
            if was == "kill" and end == "reset":
                device.rename(host.sys / f"reset{at}")
                device.mkdir()
                counters = Counters(kept=kept, device=device)
            if end in {"kill", "restart"}:
                if end == "restart":
                    sinks.stop()
                    kept.close()
                if comes is not None:
                    value = comes
                    device.rename(host.sys / f"gone{at}")
                    device.mkdir()
                kept = LastValues(host.state, "network", host.proc)
                counters = Counters(kept=kept, device=device)
                sinks.start(at + S)
                at += TICK
                continue
            value = 3 if end == "reset" else value + end
            at += TICK
            sinks.tick(counters.point(SENT, at, value), at)
            kept.save(at)
        sinks.stop()
    assert {name: falls(shown) for name, shown in sinks.shown.items() if falls(shown)} == {}


# -- real collectors on trees of files ---------------------------------------------------------------------------------

HEADER = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes ...\n"


class Host:
    """Files of interfaces, disks, memory controllers, PCIe devices and ports with one number each."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys, self.state = folder / "proc", folder / "sys", folder / "state"
        for path in (self.proc / "net", self.sys / "bus/pci/devices", self.state):
            path.mkdir(parents=True)
        (self.proc / "stat").write_text(f"btime {BEGUN // S - 1000}\n")
        sysfs.write(self.proc / "sys/kernel/random/boot_id", "a boot")

    def renew(self) -> None:
        """Make all devices go; those that `write` then makes are others."""
        self.sys.rename(self.sys.with_name(f"gone{len(list(self.sys.parent.iterdir()))}"))
        (self.sys / "bus/pci/devices").mkdir(parents=True)

    def write(self, members: dict[str, int]) -> None:
        """Write all files for the members that are there."""
        net = [f"{name}: {n} {n} {n} {n} 0 0 0 0 {n} {n} {n} {n} 0 0 0 0\n" for name, n in members.items()]
        text = HEADER + "".join(net)
        number = os.open(self.proc / "net/dev", os.O_RDWR | os.O_CREAT)
        os.pwrite(number, text.encode(), 0)  # in place: an agent that reads meanwhile must not see an empty file
        os.truncate(number, len(text))
        os.close(number)
        disks = [f"8 0 sd{name} {n} 0 {n} {n} {n} 0 {n} {n} 0 {n} {n}\n" for name, n in members.items()]
        (self.proc / "diskstats").write_text("".join(disks))
        for name in members:
            (self.sys / "class/net" / name).mkdir(parents=True, exist_ok=True)
            (self.sys / f"block/sd{name}/device").mkdir(parents=True, exist_ok=True)
        for path in (self.sys / "bus/pci/devices").iterdir():
            path.rename(self.sys / path.name)
        for letter in "abcd":
            number = members.get(letter)
            controller = self.sys / f"devices/system/edac/mc/mc{ord(letter) - ord('a')}"
            device = self.sys / f"bus/pci/devices/0000:0{letter}:00.0"
            ports = self.sys / f"class/infiniband/mlx5_0/ports/1/counters/{ERRORS_OF[letter]}"
            if number is None:
                for path in (controller / "ce_count", controller / "ue_count", ports):
                    path.unlink(missing_ok=True)
                continue
            if (self.sys / device.name).exists():
                (self.sys / device.name).rename(device)
            sysfs.write(ports, str(number))
            for name, text in {
                controller / "ce_count": str(number), controller / "ue_count": str(number),
                controller / "dimm0/dimm_ce_count": str(number),
                device / "class": "0x030200", device / "vendor": "0x10de",
                device / "aer_dev_correctable": f"TOTAL_ERR_COR {number}",
                device / "aer_dev_nonfatal": f"TOTAL_ERR_NONFATAL {number}",
                device / "aer_dev_fatal": f"TOTAL_ERR_FATAL {number}",
            }.items():  # fmt: skip
                sysfs.write(name, text)
        sysfs.write(self.sys / "class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
        sysfs.write(self.sys / "class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)")

    def collectors(self):
        """Return the collectors of a new agent."""
        return [
            NetworkCollector(NetworkCollector.Config(proc=self.proc, sys=self.sys)),
            DiskCollector(DiskCollector.Config(proc=self.proc, sys=self.sys, paths=())),
            HardwareCollector(HardwareCollector.Config(every=0.0, proc=self.proc, sys=self.sys)),
            RdmaCollector(RdmaCollector.Config(every=0.0, proc=self.proc, sys=self.sys)),
        ]


ERRORS_OF = {
    "a": "symbol_error", "b": "link_error_recovery", "c": "port_rcv_errors", "d": "port_xmit_discards",
}  # fmt: skip
SUMS = {
    "network.sent", "network.received", "disk.read", "disk.written", "pcie.errors", "memory.errors", "rdma.errors",
}  # fmt: skip
MEMBERS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 10**6), min_size=1)
LIVES = st.lists(
    st.tuples(st.lists(MEMBERS, min_size=1, max_size=3), st.sampled_from(["killed", "stopped"])), min_size=1, max_size=4
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25, deadline=None)
@given(LIVES)
def test_no_counter_of_a_real_collector_falls_without_a_newer_start(lives):
    """A fall while no agent runs, after a kill, means another device; after a stop the value shows it."""
    shown, at, seen = defaultdict(list), BEGUN, dict[str, int]()
    with TemporaryDirectory() as folder:
        host = Host(Path(folder))
        for readings, end in lives:
            if any(value < seen.get(name, 0) for name, value in readings[0].items()):
                host.renew()
            host.write(readings[0])
            collectors = host.collectors()
            for collector in collectors:
                collector.open(Given(state=host.state))
            for members in readings:
                host.write(members)
                at += TICK
                for collector in collectors:
                    for point in collector.collect(at):
                        if point.metric.kind is Kind.COUNTER:
                            shown[point.metric.name, point.dims].append((point.value, point.start_time))
                seen |= members
            if end == "stopped":
                seen = {}
                for collector in collectors:
                    collector.close()
    assert {name for name, _ in shown} >= SUMS
    assert {key: falls(of) for key, of in shown.items() if falls(of)} == {}


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_after_a_member_has_gone_a_restart_of_each_collector_keeps_the_contract(host):
    host.write({"a": TERABYTE, "b": 4 * TERABYTE // 10})
    first = [check_collector(one, at=BEGUN, given=Given(state=host.state)) for one in host.collectors()]
    host.write({"a": TERABYTE})
    for one, earlier in zip(host.collectors(), first, strict=True):
        later = check_collector(one, at=BEGUN + 60 * S, earlier=earlier, given=Given(state=host.state))
        sums = [point for point in later if point.metric.name in SUMS]
        assert sums
        assert {(point.value, point.start_time) for point in sums} == {(0, BEGUN + 60 * S)}


@pytest.fixture
def lived(host, agent_command, tmp_path, until):
    """Run an agent on a host's files, kill it, and return value and start of all points of a metric."""

    def lines(path, name, key):
        whole = path.read_text().rpartition("\n")[0]
        points = [json.loads(line) for line in whole.splitlines()]
        wanted = [one for one in points if one["name"] == name and key in ("", one["dims"].get("interface"))]
        return [(one["value"], one["start_time"]) for one in wanted]

    def live(name, key, change, last):
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        given = ["--proc", host.proc, "--sys", host.sys, "--level", "all", "--interval", "0.2", "--format", "json"]
        with out.open("wb") as file:
            agent = subprocess.Popen(
                [*agent_command, "--collector", "network", *given],
                stdout=file,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "STATE_DIRECTORY": str(tmp_path / "state")},  # another agent's has a lock
            )
            try:
                until(lambda: lines(out, name, key))
                change()
                until(lambda: lines(out, name, key)[-1][0] == last)
            finally:
                agent.kill()
                agent.wait()
        return lines(out, name, key)

    return live


def test_a_real_agent_that_is_killed_knows_an_interface_from_another_one_of_its_name(host, lived):
    name, last = "network.interface.sent", TERABYTE + 1000
    host.write({"a": TERABYTE})
    shown = lived(name, "a", lambda: host.write({"a": last}), last)
    again = lived(name, "a", lambda: host.write({"a": last + 7}), last + 7)
    assert {start for _, start in shown + again} == {shown[0][1]}
    host.renew()
    host.write({"a": TERABYTE + 500})  # above what was kept, below what was sent
    other = lived(name, "a", lambda: host.write({"a": TERABYTE + 600}), TERABYTE + 600)
    assert falls(shown + again + other) == []
    assert {start for _, start in other} == {other[0][1]}
    assert other[0][1] > shown[0][1]
