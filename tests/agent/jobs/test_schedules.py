"""A driver that replays a known schedule of kernels: what jobs are charged is what ran."""

import pytest
from tests.doubles.nvml.driver import Loaded

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.errors import PartlyCollected
from chipwatch.contract.facts import DeviceFacts
from chipwatch.contract.owner import Allocation, JobFacts, Owner
from chipwatch.contract.plugin import Given
from chipwatch.jobs.processor import JobsProcessor

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
ADA, BOB = Owner("slurm", "41337", user="ada"), Owner("slurm", "41340", user="bob")


class Replay:
    """A collector on the fake driver, and the processor, which are read each five seconds of the driver's time."""

    def __init__(self, driver, proc, level=Level.BASIC, **config):
        self.driver, self.level, self.moment, self.at = driver, level, 1000 * SECOND, START
        driver.machine["clock"] = "stopped"
        self.collector = NvidiaCollector(NvidiaCollector.Config(proc=proc, root=proc))
        self.collector._clock = lambda: self.moment
        self.processor = JobsProcessor(JobsProcessor.Config(**config))
        self.owners, self.allocations, self.points = {}, [], []

    def tick(self, seconds=5.0):
        self.driver.let_pass(seconds)
        self.moment += int(seconds * SECOND)
        self.at += int(seconds * SECOND)
        tick = []
        try:
            tick += (point for point in self.collector.collect(self.at) if point.metric.level <= self.level)
        except PartlyCollected as partly:
            raise AssertionError(partly.problems) from partly
        listed = [*self.collector._gpus.processes()]
        names = {
            str(n): dims
            for n, dims in enumerate(device.dims for device in self.collector._gpus.devices() if device.model)
        }
        devices = DeviceFacts(self.moment, listed, names, [*self.collector._gpus.activity()])
        jobs = JobFacts(self.moment, self.owners, self.allocations)
        self.facts = [devices, jobs]
        self.points = [*self.processor.derive(tick, self.at, self.facts)]

    def states(self, job):
        """Return the seconds by state of a job."""
        found = {}
        for point in self.points:
            if point.metric.name == "job.gpu.time" and point.dims["job"] == job and point.value:
                found[point.dims["state"]] = point.value
        return found


@pytest.fixture
def replay(library, tmp_path, monkeypatch, at_the_end):
    """Return a machine whose GPUs follow schedules."""

    def start(profile="h100", many=1, level=Level.BASIC, **config):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setenv("FAKE_NVML", "")
        proc = tmp_path / "proc"
        (proc / "driver/nvidia").mkdir(parents=True)
        (proc / "driver/nvidia/version").touch()
        one = Replay(Loaded(library, tmp_path, profile, many), proc, level, **config)
        at_the_end.callback(one.collector.close)
        return one

    return start


@pytest.fixture
def machine(replay):
    """A machine with one H100 that follows a schedule."""
    return replay()


HALF_HOUR = 1800


def watch(machine, gpus, owners, seconds=HALF_HOUR):
    """Read machines for a time after the first reading."""
    for number, told in gpus.items():
        machine.driver.gpus[number] |= told
    machine.driver.tell()
    machine.collector.open(Given(level=machine.level))
    machine.owners = owners
    for _ in range(seconds // 5 + 1):
        machine.tick()


def sums_agree(machine):
    answer = machine.processor.answer()
    return answer["charged_seconds"] == pytest.approx(answer["allocated_seconds"], abs=1e-3)


@pytest.mark.parametrize(
    ("schedule", "share"), [("0.2/5", 0.04), ("3/40", 0.075), ("1/1", 1.0), ("0.02/0.05", 0.4), ("7/11+3", 7 / 11)]
)
@pytest.mark.parametrize("has_samples", [True, False], ids=["samples", "gpm"])
def test_a_schedule_of_kernels_is_charged_within_two_percent(machine, schedule, share, has_samples):
    told = {"kernels": schedule, "processes": "10:1000000"}
    if not has_samples:
        told["samples.utilization"] = "!3"
    watch(machine, {0: told}, {10: ADA})
    found = machine.states("41337")
    assert machine.processor.answer()["devices"][0]["state"] in ("busy", "stalled")
    assert ("driver samples" if has_samples else "GPM") in machine.processor.describe()
    assert sum(found.values()) == pytest.approx(HALF_HOUR, abs=0.5)
    assert found["busy"] == pytest.approx(share * HALF_HOUR, rel=0.02)
    assert found.get("stalled", 0.0) == pytest.approx((1 - share) * HALF_HOUR, rel=0.02, abs=1)
    assert sums_agree(machine)


@pytest.mark.parametrize("basis", ["driver samples", "GPM"])
def test_a_better_basis_that_comes_after_the_start_is_taken_within_two_minutes(machine, basis):
    told = {"kernels": "2/5", "processes": "10:1", "samples.utilization": "!3", "gpm": {"supported": 0}}
    watch(machine, {0: told}, {10: ADA}, seconds=60)
    assert "utilization by point value" in machine.processor.describe()
    if basis == "GPM":
        machine.driver.gpus[0]["gpm"] = {"supported": 1}
    else:
        del machine.driver.gpus[0]["samples.utilization"]
    machine.driver.tell()
    for _ in range(14):
        machine.tick()
    before = machine.states("41337")["busy"]
    for _ in range(20):
        machine.tick()
    assert f"utilization by {basis}" in machine.processor.describe()
    assert machine.states("41337")["busy"] - before == pytest.approx(0.4 * 100, rel=0.02)


def test_a_device_without_a_kernel_for_a_minute_is_held(replay):
    machine = replay(level=Level.DETAILED)
    watch(machine, {0: {"kernels": "1/4;600", "processes": "10:1000000"}}, {10: ADA})
    found = machine.states("41337")
    assert found["busy"] == pytest.approx(150, rel=0.02)
    assert found["stalled"] == pytest.approx(450 + 57, rel=0.02)  # the last kernel ends after 597 s
    assert found["held"] == pytest.approx(HALF_HOUR - 657, rel=0.02)
    assert machine.processor.answer()["devices"][0]["state"] == "held"


def test_a_gpu_that_two_jobs_share_is_charged_to_each_by_half(machine):
    watch(machine, {0: {"kernels": "2/5", "processes": "10:3000000,11:5000000"}}, {10: ADA, 11: BOB})
    for job in ("41337", "41340"):
        found = machine.states(job)
        assert found["busy"] == pytest.approx(0.2 * HALF_HOUR, rel=0.02)
        assert sum(found.values()) == pytest.approx(HALF_HOUR / 2, abs=0.5)
    assert machine.processor.answer()["devices"][0]["basis"] == "equal"
    assert sums_agree(machine)


def test_two_pods_that_share_a_gpu_are_charged_by_what_each_ran(machine):
    pods = [Owner("kubernetes", name, namespace="ml", pod=name, container="main") for name in ("large", "small")]
    machine.allocations = [Allocation("0", pod, "kubelet") for pod in pods]
    told = {"kernels": "5/5", "processes": "10:3000000,11:5000000", "parts": "10:70,11:30"}
    watch(machine, {0: told}, dict(zip((10, 11), pods, strict=True)))
    large, small = machine.states("large"), machine.states("small")
    assert sum(large.values()) / HALF_HOUR == pytest.approx(0.7, abs=0.01)
    assert sum(small.values()) / HALF_HOUR == pytest.approx(0.3, abs=0.01)
    held = {point.dims["job"]: point for point in machine.points if point.metric.name == "job.gpu.held"}
    assert {name: point.value for name, point in held.items()} == pytest.approx({"large": 0.7, "small": 0.3})
    (shared,) = (point for point in machine.points if point.metric.name == "gpu.jobs")
    assert (shared.value, shared.dims) == (2, Dimensions(gpu="0", basis="utilization"))
    assert sums_agree(machine)


def test_of_a_shared_gpu_each_job_has_its_kernels_and_half_of_the_rest(machine):
    told = {"kernels": "2/5", "processes": "10:3000000,11:5000000", "parts": "10:75,11:25"}
    watch(machine, {0: told}, {10: ADA, 11: BOB})
    for job, busy in ("41337", 0.3), ("41340", 0.1):
        found = machine.states(job)
        assert found["busy"] == pytest.approx(busy * HALF_HOUR, rel=0.02)
        assert found["stalled"] == pytest.approx(0.3 * HALF_HOUR, rel=0.02)
    assert sums_agree(machine)


def test_mig_instances_are_charged_by_their_compute_slices(replay):
    machine = replay("h100_mig")
    gpu = machine.driver.gpus[0]
    for number, (slices, kernels) in {"0": (3, "0.2/5"), "1": (2, "4/5")}.items():
        gpu["mig"][number] |= {"slices": slices, "kernels": kernels}
    gpu["mig"]["0"]["processes"], gpu["mig"]["1"]["processes"] = "10:1000000", "11:1000000"
    watch(machine, {}, {10: ADA, 11: BOB})
    ada, bob = machine.states("41337"), machine.states("41340")
    assert ada["busy"] == pytest.approx(0.04 * HALF_HOUR * 3 / 7, rel=0.02)
    assert sum(ada.values()) == pytest.approx(HALF_HOUR * 3 / 7, abs=0.5)
    assert bob["busy"] == pytest.approx(0.8 * HALF_HOUR * 2 / 7, rel=0.02)
    gpus = {point.dims["job"]: point.value for point in machine.points if point.metric.name == "job.gpus"}
    assert gpus == pytest.approx({"41337": 3 / 7, "41340": 2 / 7})
    assert sums_agree(machine)


def test_a_mig_instance_without_a_basis_is_unknown_and_not_held(replay):
    machine = replay("h100_mig")
    gpu = machine.driver.gpus[0]
    for number in gpu["mig"]:
        gpu["mig"][number] |= {"slices": 3, "gpm": {"sample": "!3"}, "processes": "10:1000000"}
    gpu["gpm"] = {"supported": 0}
    watch(machine, {}, {10: ADA}, seconds=60)
    assert {*machine.states("41337")} == {"unknown"}


def test_heat_takes_its_share_of_the_busy_time_and_a_power_cap_takes_none(machine):
    hot = {"kernels": "5/5", "processes": "10:1"}
    machine.driver.gpus[0]["field"] |= {"75": "1000000000@300000000", "74": "1000000000@900000000"}
    machine.driver.gpus[0]["reasons"] = 4  # the software power cap
    watch(machine, {0: hot}, {10: ADA})
    found = machine.states("41337")
    assert found["throttled"] == pytest.approx(0.3 * HALF_HOUR, rel=0.02)
    assert found["busy"] == pytest.approx(0.7 * HALF_HOUR, rel=0.02)


@pytest.mark.parametrize(
    ("reasons", "throttled"), [(0x04, False), (0x80, True), (0x20, True), (0x08, True), (0x01, False)]
)
def test_without_counters_the_reasons_of_low_clocks_tell_a_throttle(machine, reasons, throttled):
    machine.driver.gpus[0]["field"]["75"] = None
    watch(machine, {0: {"kernels": "5/5", "processes": "10:1", "reasons": reasons}}, {10: ADA}, seconds=60)
    assert ("throttled" in machine.states("41337")) == throttled


def test_a_gpu_that_falls_off_is_lost_for_the_job_that_it_was_given_to(replay):
    machine = replay(many=2)
    told = {number: {"kernels": "5/5", "processes": "10:1"} for number in (0, 1)}
    machine.allocations = [Allocation("0", ADA, "mapping"), Allocation("1", ADA, "mapping")]
    watch(machine, told, {10: ADA}, seconds=100)
    machine.driver.gpus[1]["lost"] = 1
    machine.driver.tell()
    for _ in range(20):
        machine.tick()
    found = machine.states("41337")
    assert found["lost"] == pytest.approx(100, abs=6)
    assert found["busy"] == pytest.approx(300, abs=6)
    assert [one["state"] for one in machine.processor.answer()["devices"]] == ["busy", "lost"]
    assert sums_agree(machine)


def test_a_gpu_that_is_given_and_not_used_is_held(replay):
    machine = replay(many=2)
    machine.allocations = [Allocation("1", BOB, "kubelet")]
    idle = {"kernels": "0/5", "processes": None}
    watch(machine, {0: idle, 1: idle}, {}, seconds=100)
    assert machine.states("41340") == {"held": pytest.approx(100, abs=0.5)}
    assert {point.dims["source"] for point in machine.points if point.metric.name == "job.gpus"} == {"kubelet"}


def test_without_host_pids_the_idle_time_of_a_given_gpu_is_unknown(replay):
    machine = replay(level=Level.DETAILED)
    machine.allocations = [Allocation("0", BOB, "kubelet")]
    watch(machine, {0: {"kernels": "1/5", "processes": "999:1000"}}, {}, seconds=100)
    found = machine.states("41340")
    assert found == {"busy": pytest.approx(20, rel=0.02), "unknown": pytest.approx(80, rel=0.02)}
    assert {point.dims["cause"] for point in machine.points if point.metric.name == "gpu.idle.time"} == {"unknown"}


def test_energy_and_cost_follow_the_time_that_each_job_was_charged(replay):
    machine = replay(level=Level.DETAILED, dollars_per_hour=2.5)
    machine.driver.gpus[0]["field"]["83"] = "1000000@700000"  # 700 W
    watch(machine, {0: {"kernels": "5/5", "processes": "10:3000000,11:5000000"}}, {10: ADA, 11: BOB})
    values = {(point.metric.name, point.dims["job"]): point.value for point in machine.points if "job" in point.dims}
    for job in ("41337", "41340"):
        assert values["job.energy", job] == pytest.approx(700 * HALF_HOUR / 2, rel=0.02)
        assert values["job.cost", job] == pytest.approx(2.5 / 4, rel=0.001)
    assert values["job.gpu.memory.max", "41340"] == 5000000


def test_energy_is_that_of_the_power_where_the_counter_stands_still(replay):
    machine = replay(level=Level.DETAILED)
    machine.driver.gpus[0]["field"]["83"] = "1000000@0"
    watch(machine, {0: {"kernels": "5/5", "processes": "10:1", "power": 690000}}, {10: ADA}, seconds=100)
    (energy,) = (point.value for point in machine.points if point.metric.name == "job.energy")
    assert energy == pytest.approx(69000, rel=0.02)


def test_what_was_not_read_for_over_two_intervals_is_unseen(machine):
    watch(machine, {0: {"kernels": "5/5", "processes": "10:1"}}, {10: ADA}, seconds=50)
    machine.tick(3600)
    found = machine.states("41337")
    assert found["unseen"] == pytest.approx(3590, abs=0.1)
    assert sum(found.values()) == pytest.approx(3650, abs=0.5)


def test_samples_that_have_one_time_stamp_count_once_and_end_nothing(machine):
    watch(machine, {0: {"kernels": "2/5", "processes": "10:1", "samples": {"same": 3}}}, {10: ADA}, seconds=600)
    # A reading may cut two samples of 1/6 s off from the one with their time: 40 s in 120 readings.
    assert machine.states("41337")["busy"] == pytest.approx(240, abs=40)
    assert "driver samples" in machine.processor.describe()


def test_after_the_clock_was_set_back_the_samples_serve_again(machine):
    watch(machine, {0: {"kernels": "0.2/5", "processes": "10:1"}}, {10: ADA}, seconds=100)
    machine.driver.let_pass(7200)
    machine.tick()
    machine.driver.let_pass(-3600)
    machine.at -= 3600 * SECOND
    for _ in range(HALF_HOUR // 5):
        machine.tick()
    assert machine.states("41337")["busy"] == pytest.approx(0.04 * (HALF_HOUR + 100), abs=6)
    assert "driver samples" in machine.processor.describe()


def test_instances_of_a_lost_gpu_count_by_their_slices(replay):
    machine = replay("h100_mig")
    gpu = machine.driver.gpus[0]
    for number, slices in {"0": 3, "1": 2}.items():
        gpu["mig"][number] |= {"slices": slices, "kernels": "5/5"}
    machine.allocations = [Allocation("0", ADA, "mapping")]
    watch(machine, {}, {}, seconds=100)
    before = sum(machine.states("41337").values())
    machine.driver.gpus[0]["lost"] = 1
    machine.driver.tell()
    for _ in range(20):
        machine.tick()
    assert sum(machine.states("41337").values()) == pytest.approx(2 * before, rel=0.01)
    assert machine.states("41337")["lost"] == pytest.approx(before, rel=0.06)
