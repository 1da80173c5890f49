"""
A node of eight GPUs for 24 minutes: what each job is charged by state is what happened, within half a percent.

Ten jobs on the compiled driver: whole GPUs, one that two share by 70 to 30, instances that are made otherwise, a pid
that is used again, a GPU that is reset, a driver that is loaded again with other UUIDs, two kills and a stop of the
agent.
"""

from contextlib import suppress
from math import ceil
from typing import NamedTuple

import pytest
from tests.doubles.nvml.driver import CannotBuild, Loaded, build, profile

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import PartlyCollected
from chipwatch.contract.facts import DeviceFacts, names_of
from chipwatch.contract.owner import Allocation, JobFacts, Owner
from chipwatch.contract.plugin import Given
from chipwatch.jobs.processor import JobsProcessor

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
BOOT = 1000
INTERVAL, SAVES = 5, 60
STEP = 0.05
"""Seconds of a step of the truth."""
END, KILLED, KILL_ENDS, STOPPED, STOP_ENDS = 1440, 297, 312, 1202, 1260
KILLED_AGAIN, SECOND_KILL_ENDS = 803, 814
RESET, RESET_ENDS, RELOAD, LOADS, RELOAD_ENDS = 401, 519, 1001, 1012, 1033
DIVIDED = 611


class Hold(NamedTuple):
    """A job on a GPU, or on a part of one, from its process's start to its end."""

    job: str
    place: str
    pid: int
    start: float
    end: float
    share: float = 1.0
    work: float = 1.0
    """Its part of the kernels of a GPU that it shares."""


HOLDS = [
    Hold("1", "0", 101, 10, 1430),
    Hold("1", "1", 102, 11, 1430),
    Hold("2", "2", 103, 22, 702),
    Hold("3", "2", 103, 716, 1423),
    Hold("4", "3", 104, -500, 1440),
    Hold("5", "4", 105, 33, 1404, 1 / 2, 0.7),
    Hold("6", "4", 106, 33, 1404, 1 / 2, 0.3),
    Hold("7", "5", 107, 41, 1402),
    Hold("8", "7.0", 108, 52, 604, 3 / 7),
    Hold("9", "7.1", 109, 53, 603, 4 / 7),
    Hold("10", "7.2", 110, DIVIDED + 0.5, 1401, 2 / 7),
    Hold("9", "7.3", 111, 631, 1403, 5 / 7),
]
KERNELS = {
    "0": "4/5", "1": "3/7+1", "2": "0.2/5;702", "3": "1/2;100", "4": "2/3", "5": "5/6", "6": "0/5", "7.0": "2/5",
    "7.1": "1/1", "7.2": "1/3", "7.3": "4/5",
}  # fmt: skip
LATER = "1/4+716;900"
"""Kernels of GPU 2 for its second job."""


def runs(schedule, at):
    """Return whether a kernel of a schedule ON/EVERY+FIRST;UNTIL runs."""
    rest, _, until = schedule.partition(";")
    rest, _, first = rest.partition("+")
    on, every = map(float, rest.split("/"))
    since = at - float(first or 0)
    return since >= 0 and at < float(until or 1e9) and since % every < on


class Node:
    """The node, whose time the test moves; the agent on it runs, or does not."""

    def __init__(self, library, folder):
        self.now, self.saved, self.saved_at = 0, b"", 0
        self.folder, self.driver = folder, Loaded(library, folder, "h100", 8)
        self.driver.machine |= {"uptime": "kept", "clock": "stopped"}
        divided = profile("h100_mig")["gpus"][0]
        self.driver.gpus[7] = {**divided, "uuid": self.driver.gpus[7]["uuid"], "minor": 7, "processes": None}
        for n, gpu in enumerate(self.driver.gpus):
            gpu["kernels"] = KERNELS.get(str(n))
        self.driver.gpus[4]["parts"] = "105:70,106:30"
        self.instances = [(0, 3), (1, 4)]
        self.windows, self.seen = [], {}
        """Times in which the agent did not read; when each place was first read."""
        self.collector = self.processor = None

    def tell(self):
        """Have the driver list who is where, and which instances there are."""
        for n, gpu in enumerate(self.driver.gpus):
            gpu["processes"] = self.listed(str(n))
        self.driver.gpus[7]["mig"] = {
            str(number): {
                "uuid": f"MIG-{number}{slices}000000-0000-0000-0000-000000000000", "name": "H100 MIG", "gi": number + 1,
                "memory": {"total": 10**10, "used": 10**9, "reserved": 0}, "slices": slices,
                "processes": self.listed(f"7.{number}"), "kernels": KERNELS[f"7.{number}"],
            }
            for number, slices in self.instances
        }  # fmt: skip
        self.driver.tell()

    def listed(self, place):
        """Return the processes of a place as the driver lists them, None if there are none."""
        mine = [hold for hold in HOLDS if hold.place == place and hold.start <= self.now < hold.end]
        return ",".join(f"{hold.pid}:1000000" for hold in mine) or None

    def begin(self):
        """Start the agent, with what it saved last."""
        self.collector = NvidiaCollector(NvidiaCollector.Config(proc=self.folder / "proc", root=self.folder))
        self.collector._clock = lambda: int((BOOT + self.now) * SECOND)
        self.processor = JobsProcessor(JobsProcessor.Config(interval=INTERVAL))
        if self.saved:
            self.processor.restore(self.saved)
        self.collector.open(Given(level=Level.BASIC))

    def end(self, *, kill):
        """End the agent; one that is killed saves nothing."""
        self.collector.close()
        if not kill:
            self.saved, self.saved_at = self.processor.saved() or self.saved, self.now - 1 - (self.now - 1) % INTERVAL
        self.processor = None

    def tick(self):
        """Read, as the frame does; return the places that are lost."""
        moment, at, points = int((BOOT + self.now) * SECOND), START + int(self.now * SECOND), []
        with suppress(PartlyCollected):
            points += (point for point in self.collector.collect(at) if point.metric.level <= Level.BASIC)
        processes, activity = [*self.collector._gpus.processes()], [*self.collector._gpus.activity()]
        devices = DeviceFacts(moment, processes, names_of(self.collector._gpus.devices()), activity, "nvidia")
        here = {
            hold.pid: Owner("slurm", hold.job, since=START + int(hold.start * SECOND))
            for hold in HOLDS if hold.start <= self.now < hold.end
        }  # fmt: skip
        # Of jobs on a GPU that is lost only the scheduler knows.
        given = [Allocation("5", owner, "mapping") for pid, owner in here.items() if pid == 107]
        jobs = JobFacts(moment, here, given)
        self.facts = [devices, jobs]
        [*self.processor.derive(points, at, self.facts)]
        for one in activity:
            self.seen.setdefault(".".join(one.dims.values()), self.now)
        if self.now % SAVES == 0:
            self.saved, self.saved_at = self.processor.saved() or self.saved, self.now
        return {".".join(one.dims.values()) for one in activity if one.lost}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Return a node after its 24 minutes, and which places were lost at which ticks."""
    folder = tmp_path_factory.mktemp("node")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_NVML", "")
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        (folder / "proc/driver/nvidia").mkdir(parents=True)
        (folder / "proc/driver/nvidia/version").touch()
        try:
            node = Node(build(folder), folder)
        except CannotBuild as reason:
            pytest.skip(str(reason))
        yield node, live(node)
        node.collector.close()


def events(node):
    """Return what happens, by second."""
    gpus, machine = node.driver.gpus, node.driver.machine

    def load():
        del machine["init"]
        for n, gpu in enumerate(gpus):
            del gpu["lost"]
            gpu["uuid"] = f"GPU-{n}1111111-0000-0000-0000-000000000000"

    return {
        KILLED: lambda: node.end(kill=True),
        KILLED_AGAIN: lambda: node.end(kill=True),
        STOPPED: lambda: node.end(kill=False),
        705: lambda: gpus[2].update(kernels=LATER),
        RESET: lambda: gpus[5].update(lost=1),
        RESET_ENDS: lambda: gpus[5].pop("lost"),
        DIVIDED: lambda: setattr(node, "instances", [(2, 2), (3, 5)]),
        RELOAD: lambda: [gpu.update(lost=1) for gpu in gpus],
        LOADS: lambda: machine.update(init="!9"),
        RELOAD_ENDS: load,
    }


def live(node):
    """Let the 24 minutes pass, second by second; return the ticks in which each place was lost."""
    lost, happens = {}, events(node)
    edges = {ceil(edge) for hold in HOLDS for edge in (hold.start, hold.end)}
    node.tell()
    node.begin()
    while node.now < END:
        node.driver.let_pass(1)
        node.now += 1
        if node.now in happens:
            happens[node.now]()
        if node.now in edges | happens.keys():
            node.tell()
        if node.now in (KILL_ENDS, SECOND_KILL_ENDS, STOP_ENDS):
            node.windows.append((node.saved_at, node.now + -node.now % INTERVAL))
            node.begin()
        if node.now % INTERVAL == 0 and node.processor:
            for place in node.tick():
                lost.setdefault(place, []).append(node.now)
    return lost


def truth(node, lost):
    """
    Return the seconds by job and state that were, as far as one can know who reads every five seconds.

    A job counts until it was last seen. An instance has no utilization in the first tick after a loss.
    """
    found = {}
    for hold in HOLDS:
        states, ran = found.setdefault(hold.job, {}), max(hold.start, 0.0)
        down = [(tick - INTERVAL, tick) for tick in lost.get(hold.place, ())]
        begun, ended = max(hold.start, INTERVAL), hold.end - hold.end % INTERVAL
        for n in range(round((ended - begun) / STEP)):
            at = begun + (n + 0.5) * STEP
            schedule = LATER if hold.place == "2" and hold.start > 702 else KERNELS[hold.place]
            active = runs(schedule, at)
            ran = at if active else ran
            if any(first < at < last for first, last in node.windows) or at < node.seen[hold.place]:
                state = "unseen"
            elif any(first < at < last for first, last in down):
                state = "lost"
            elif "." in hold.place and any(last < at < last + INTERVAL for _, last in down[-1:]):
                state = "unknown"
            else:
                state = "busy" if active else "stalled" if at - ran < 60 else "held"
            is_shared = state == "busy" and "." not in hold.place and hold.share < 1
            states[state] = states.get(state, 0.0) + STEP * (hold.work if is_shared else hold.share)
    return found


def test_each_job_is_charged_within_half_a_percent_by_state(node):
    machine, lost = node
    want = truth(machine, lost)
    ledger = machine.processor._ledger
    got = {one.owner.job: ledger.row(one)["seconds"] for one in ledger.accounts.values()}
    assert got.keys() == want.keys()
    off = {
        (job, state): (got[job].get(state, 0.0), states.get(state, 0.0))
        for job, states in want.items()
        for state in {*states, *got[job]}
        if abs(got[job].get(state, 0.0) - states.get(state, 0.0)) > 0.005 * sum(states.values())
    }
    assert off == {}


def test_the_charged_time_is_the_held_time(node):
    answer = node[0].processor.answer()
    assert answer["charged_seconds"] == pytest.approx(answer["allocated_seconds"], abs=1e-3)


def test_what_changes_is_seen_within_ten_seconds(node):
    machine, lost = node
    assert lost["5"][0] - RESET < INTERVAL
    assert RESET_ENDS - 10 <= max(tick for tick in lost["5"] if tick < RELOAD) <= RESET_ENDS + 10
    assert all(RELOAD_ENDS - 10 <= ticks[-1] <= RELOAD_ENDS + 10 for ticks in lost.values())
    assert {*lost} == {"0", "1", "2", "3", "4", "5", "6", "7.2", "7.3"}
    assert DIVIDED < machine.seen["7.2"] <= DIVIDED + INTERVAL
