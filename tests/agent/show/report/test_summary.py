"""The summary of a wrapped command, from datapoints of every maker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.jobs.machine import Machine, job

from chipwatch.advisor.catalogue import catalogue
from chipwatch.collectors.neuron.metrics import CORE_MEMORY, CORE_UTILIZATION
from chipwatch.collectors.nvidia.metrics import GPU as KEY
from chipwatch.collectors.nvidia.metrics import INSTANCE, MIG, MODEL, shaped
from chipwatch.collectors.nvidia.metrics import WHOLE as GPU
from chipwatch.collectors.process import COUNT, CPU_LIMIT, CPU_UTILIZATION, RSS
from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.contract.facts import Device, DeviceActivity, DeviceFacts, DeviceProcess
from chipwatch.engine.spool.file import Ledger
from chipwatch.host.wrapped import WrappedCommand
from chipwatch.jobs.metrics import BUSY as WORK
from chipwatch.jobs.metrics import IDLE, SPENT
from chipwatch.show.report import amounts
from chipwatch.show.report.accelerators import ADVICE, COLUMNS, ROLES, DeviceUsage
from chipwatch.show.report.summary import TAKEN, RunSummary

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
SHARES = {"busy": 0.88, "stalled": 0.11, "free": 0.006, "lost": 0.004}


class Pipeline:
    """Routes by name, of which only the ledgers count, and listeners."""

    def __init__(self, **ledgers):
        class Route:
            def __init__(self, name, ledger):
                self.name, self.spool, self.worker = name, self, self
                self.ledger, self.elsewhere, self.last_error = ledger, 0, None
                self.health = self

        self.routes = [Route(name, ledger) for name, ledger in ledgers.items()]
        self.listeners, self.derivations, self.samplers, self.devices = [], [], [], {}

    def tick(self, second, *points):
        at = START + second * SECOND
        for listener in self.listeners:
            listener([point._replace(at=at + point.at) for point in points], at)


@pytest.fixture
def pipeline():
    return Pipeline()


@pytest.fixture
def summary(pipeline):
    made = RunSummary()
    made.listen(pipeline)
    return made


@pytest.fixture
def ended():
    command = WrappedCommand(["true", "file", "--token", "secret"])
    command.code()
    return command


def table(summary, command):
    return [line for line in summary.lines(command) if line.startswith(("  GPU", "  Neuron", "  TPU", "  IPU", "    "))]


def test_every_metric_that_it_takes_is_one_that_a_collector_declares():
    declared = {metric.name for metrics in catalogue().values() for metric in metrics}
    assert declared >= TAKEN
    assert declared >= ROLES.keys()


@pytest.mark.parametrize(
    ("script", "told"),
    [("kill -9 $$", "137 (SIGKILL)"), ("exit 1", "1"), ("exit 143", "143 (SIGTERM)"), ("exit 255", "255")],
)
def test_the_first_line_has_no_options_since_they_may_be_secret_and_names_a_signal_that_exists(summary, script, told):
    command = WrappedCommand(["env", "sh", "-c", script])
    command.code()
    assert next(summary.lines(command)).startswith(f"chipwatch: env sh ended with {told} after ")


def test_cpu_and_memory_have_their_peaks_and_the_number_of_processes_at_the_peak(pipeline, summary, ended):
    for second, share, rss, processes in ((0, 10, 1e9, 2), (5, 50, 8e9, 18), (10, 20, 4e9, 30)):
        pipeline.tick(second, CPU_LIMIT.point(0, 8), CPU_UTILIZATION.point(0, share), RSS.point(0, rss),
                      COUNT.point(0, processes))  # fmt: skip
    ended.seconds = 10.0
    lines = [*summary.lines(ended)]
    assert not any(line.startswith("  time") for line in lines), "it was on a CPU all the time"
    assert "  CPU       mean 2.8 cores, peak 4.0 of 8; 28.0 CPU seconds" in lines
    assert "  memory    peak 7.5 GiB in 18 processes" in lines


def test_time_without_a_process_on_a_cpu_is_named_as_far_as_it_is_certain(pipeline, summary, ended):
    for second, share in ((0, 0), (5, 5), (10, 50)):
        pipeline.tick(second, CPU_LIMIT.point(0, 8), CPU_UTILIZATION.point(0, share))
    ended.seconds = 10.0
    assert "  time      waited at least 30 % of it: none of its processes was on a CPU" in [*summary.lines(ended)]


def test_cpu_time_and_the_largest_process_between_two_readings_are_known_from_the_system(summary):
    script = "import time; x = b'x' * 1_500_000_000\nwhile time.process_time() < 0.3: pass"
    command = WrappedCommand([sys.executable, "-c", script])
    command.code()
    lines = {line.split()[0]: line for line in summary.lines(command)}
    assert 0.3 <= float(lines["CPU"].split("; ")[1].split()[0]) < 5
    assert lines["memory"].startswith("  memory    peak 1.4 GiB in 1 process")


def test_each_gpu_has_its_row_and_counters_their_increase(pipeline, summary, ended):
    for second, (busy, used, joules, thermal) in enumerate(
        ((0, 10, 500, 7), (100, 61.2, 4e5, 12.2), (100, 20, 3.6e6 + 500, 19))
    ):
        for n in "0", "1":
            dims = Dimensions(gpu=n)
            pipeline.tick(
                5 * second,
                GPU["gpu.utilization"].point(0, busy, dims),
                GPU["gpu.memory.used"].point(0, used * 2**30, dims),
                GPU["gpu.energy"].point(0, joules, dims),
                GPU["gpu.efficiency"].point(0, 0.4 * busy, dims),
                *(SPENT.point(0, share * joules, dims | {"state": state}) for state, share in SHARES.items()),
                GPU["gpu.throttled"].point(0, thermal, dims | {"reason": "thermal"}),
                GPU["gpu.throttled"].point(0, 100 * thermal, dims | {"reason": "low_utilization"}),
            )
    assert table(summary, ended) == [
        "  GPU       util mean  util p95  memory peak  efficiency    energy                   energy, by state        throttled",
        "    0            67 %     100 %     61.2 GiB        27 %  1.00 kWh  busy 88 %, stalled 11 %, free 1 %  0:00:12 thermal",
        "    1            67 %     100 %     61.2 GiB        27 %  1.00 kWh  busy 88 %, stalled 11 %, free 1 %  0:00:12 thermal",
    ]


class Priced:
    """A processor of jobs that knows the price of a GPU, and devices with their slices."""

    def __init__(self, dollars_per_hour, **slices):
        self._dollars, self.processor = dollars_per_hour, self
        self._devices = [
            {"place": dict(zip(("gpu", "mig"), name[3:].split("_"), strict=False)), "slices": share}
            for name, share in slices.items()
        ]

    def answer(self):
        return {"dollars_per_hour": self._dollars, "devices": self._devices}

    def listen(self, pipeline, *words):
        """Return a summary of a run with this processor."""
        pipeline.derivations, made = [self], RunSummary(*words)
        made.listen(pipeline)
        return made


def test_idle_time_is_listed_by_cause_and_with_its_cost_where_a_price_is_set(pipeline, ended):
    summary = Priced(3000.0).listen(pipeline)
    of = {cause: Dimensions(gpu="0", cause=cause) for cause in ("data", "no_\x1bcause")}
    for second in (0, 600):
        pipeline.tick(
            second, GPU["gpu.utilization"].point(0, 50, Dimensions(gpu="0")),
            IDLE.point(0, 0.4 * second, of["data"], start_time=START), IDLE.point(0, 0.2 * second, of["no_\x1bcause"], start_time=START),
        )  # fmt: skip
    ended.seconds = 600.0
    lines = [*summary.lines(ended)]
    assert any(line.endswith("data 0:04:00, no \\x1bcause 0:02:00") for line in lines)
    assert "  time      accelerators busy 0 %, idle 100 %: data 67 %, no \\x1bcause 33 %" in lines
    assert "  cost      1 x 10 min at $3000.00 an hour = $500.00, of which idle $300.00" in lines
    assert f"  advice    GPU 0 was idle 40 % of the time; {ADVICE['data']}" in lines
    ended.seconds = 6000.0
    assert not any("advice" in line for line in summary.lines(ended))


def test_busy_is_the_share_of_time_with_kernels_and_named_apart_from_the_mean_of_readings(pipeline, summary, ended):
    jobs = Machine(interval=5.0)
    for n in range(10):  # busy for 5 s, then for 2.5 s twice: idle for 35 of 45 s, and a moment shows 1 %
        active = {2: 1.0, 8: 0.5, 9: 0.5}.get(n, 0.0)
        points = jobs.tick([(0, 100, 1)], {0: {"active": active}}, owners={100: job(7)})
        moment = GPU["gpu.utilization"].point(0, 1, Dimensions(gpu="0"))
        pipeline.tick(5 * n + 5, moment, *(point._replace(at=0) for point in points if point.metric in (IDLE, WORK)))
    head, row = (line.split() for line in table(summary, ended))
    assert head[:4] == ["GPU", "busy", "busy", "p95"]
    assert "util" not in head
    assert row[:5] == ["0", "22", "%", "100", "%"]
    assert row[5:] == ["other", "0:00:35"]


def test_an_instance_costs_its_share_of_a_gpu_and_the_whole_is_not_counted_beside_it(pipeline, ended):
    summary = Priced(7.0, gpu0_1=3 / 7, gpu0_2=1 / 7, gpu1=1.0).listen(pipeline)
    part = shaped(INSTANCE["gpu.memory.used"], KEY, MIG)
    pipeline.tick(0, GPU["gpu.power"].point(0, 300, Dimensions(gpu="0")), GPU["gpu.utilization"].point(0, 50, Dimensions(gpu="1")),
                  *(part.point(0, 5, Dimensions(gpu="0", mig=str(n))) for n in (1, 2)))  # fmt: skip
    ended.seconds = 3600.0
    assert "  cost      1.57 x 1 h at $7.00 an hour = $11.00, of which idle $0.00" in [*summary.lines(ended)]


def test_idle_time_of_an_instance_is_its_own_time_and_not_that_of_its_slices(pipeline, ended):
    summary = Priced(7.0, gpu0_1=1 / 7).listen(pipeline)
    dims = {"gpu": "0", "mig": "1"}
    for second in (0, 3600):  # it waits half of the time; the processor weighs time by slices
        pipeline.tick(
            second, IDLE.point(0, second / 14, Dimensions(dims, cause="data"), start_time=START),
            WORK.point(0, second / 14, Dimensions(dims, kind="compute"), start_time=START),
        )  # fmt: skip
    ended.seconds = 3600.0
    lines = [*summary.lines(ended)]
    assert any(line.endswith("data 0:30:00") for line in lines)
    assert "  cost      0.143 x 1 h at $7.00 an hour = $1.00, of which idle $0.50" in lines
    assert any("GPU 0.1 was idle 50 % of the time" in line for line in lines)


def test_only_gpus_that_the_command_used_are_shown_where_they_are_known(pipeline, summary, ended):
    for n in range(10):
        pipeline.tick(n, GPU["gpu.utilization"].point(0, 10 * n, Dimensions(gpu=str(n))))
    assert len(table(summary, ended)) == 11
    for n in "10", "2":
        pipeline.tick(0, GPU["gpu.process.memory.used"].point(0, 1, Dimensions(gpu=n)))
    assert [line.split()[0] for line in table(summary, ended)] == ["GPU", "2", "10", "9"]
    assert table(summary, ended)[-1].strip() == "9 more, not used by the command"


class Node:
    """A machine with GPUs whose processes the driver lists, and a summary of the process of this test."""

    def __init__(self, pipeline, many, pid=None, proc=Path("/proc")):
        self._pipeline, self._moment = pipeline, 0
        self._all = [Dimensions(gpu=str(n)) for n in range(many)]
        self.summary = Priced(3000.0).listen(pipeline, pid or os.getpid(), proc)

    def tick(self, *listed, busy=(), names=True, refused=()):
        """Read once: the pids on each GPU, the GPUs that worked, and those whose list was refused."""
        self._moment += 1
        processes = [DeviceProcess(self._all[n], pid) for n, pids in enumerate(listed) for pid in pids]
        activity = [DeviceActivity(self._all[n], 0.0, unlisted="NVML error 4") for n in refused]
        facts = DeviceFacts(self._moment, processes if names else None, {}, activity, "it", [*map(Device, self._all)])
        self._pipeline.devices["it"] = facts
        points = [GPU["gpu.utilization"].point(0, 90 * (n in busy), dims) for n, dims in enumerate(self._all)]
        idle = [IDLE.point(0, self._moment, dims | {"cause": "data"}, start_time=START) for dims in self._all]
        self._pipeline.tick(self._moment, *points, *idle)

    def lines(self, command):
        command.seconds = float(self._moment)
        ours = ("  GPU", "   ", "  time      acc", "  cost", "  advice")
        return [line for line in self.summary.lines(command) if line.startswith(ours)]


@pytest.mark.parametrize(
    ("listed", "busy", "said"),
    [
        ([[1], [1], [1]], (0, 1, 2), "3 here, used by others"),
        ([[], [1], []], (), "3 here, 1 used by others"),
        ([[], []], (), "2 here"),
    ],
)
def test_a_command_that_used_no_gpu_has_no_times_cost_or_advice_of_others(pipeline, ended, listed, busy, said):
    node = Node(pipeline, len(listed))
    for processes in (*[listed] * 4, [*listed[:-1], []]):
        node.tick(*processes, busy=busy if processes is listed else ())
        assert node.lines(ended) == [f"  GPU       used no GPU ({said})"]


def test_a_command_is_charged_the_gpus_that_it_used_by_the_list_of_processes(pipeline, ended):
    node, child = Node(pipeline, 4), subprocess.Popen(["sleep", "60"])
    try:
        node.tick([], [], [1], [1], busy=(2, 3))
        node.tick([1, os.getpid()], [child.pid], [1], [1], busy=(0, 1, 2, 3))
    finally:
        child.kill()
        child.wait()
    node.tick([child.pid], [], [1], [1], busy=(2, 3))
    time, *table, more, cost, advice = node.lines(ended)
    assert "idle 100 %: data 100 %" in time
    assert [line.split()[0] for line in table] == ["GPU", "0", "1"]
    assert more.strip() == "2 more, not used by the command"
    assert cost.startswith("  cost      2 x ")
    assert "GPU 0 was idle" in advice or "GPU 1 was idle" in advice


def test_a_gpu_that_worked_for_nobody_who_was_listed_may_have_been_the_commands(pipeline, ended):
    node = Node(pipeline, 3)
    node.tick([], [1], [])
    node.tick([], [1], [], busy=(1, 2))
    assert [line.split()[0] for line in node.lines(ended)[1:4]] == ["GPU", "2", "2"]


@pytest.mark.parametrize("listed", [{"names": False}, {}])
def test_where_the_users_of_a_gpu_are_not_known_it_is_shown(pipeline, ended, listed):
    node = Node(pipeline, 1)
    for _ in range(3):
        node.tick([2**22 + 1], busy=(0,), **listed)  # no process here has this number
    lines = node.lines(ended)
    assert [line.split()[0] for line in lines] == ["time", "GPU", "0", "it", "cost", "advice"]
    assert lines[3].strip() == "it is not known whether the command used it"
    assert lines[4].startswith("  cost      at most 1 x ")


def test_what_srun_starts_may_be_the_commands_and_another_job_of_slurm_is_not(pipeline, ended, tmp_path):
    for pid, parent, number in ((100, 1, 7), (200, 50, 7), (300, 50, 8)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (python) S {parent}" + " 0" * 48)
        group = f"0::/system.slice/slurmstepd.scope/job_{number}/step_0/user/task_0\n"
        (tmp_path / str(pid) / "cgroup").write_text(group)
    node = Node(pipeline, 3, 100, tmp_path)
    for _ in range(3):
        node.tick([300], [200], [300], busy=(0, 1))
    lines = node.lines(ended)
    assert [line.split()[0] for line in lines] == ["time", "GPU", "1", "2", "it", "cost", "advice"]
    assert lines[4].strip() == "it is not known whether the command used it"


def test_a_gpu_whose_list_is_refused_may_have_been_the_commands(pipeline, ended):
    node = Node(pipeline, 2)
    for _ in range(3):
        node.tick([1], [], busy=(0,), refused=[1])
    table = [line.split()[0] for line in node.lines(ended) if line.startswith(("  GPU", "   "))]
    assert table == ["GPU", "1", "1", "it"]


def test_instances_and_models_are_named_and_what_no_device_told_has_no_column(pipeline, summary, ended):
    dims = Dimensions(gpu="0", mig="1", model="H100")
    pipeline.tick(0, shaped(INSTANCE["gpu.memory.used"], KEY, MIG, MODEL).point(0, 2**30, dims))
    assert table(summary, ended) == ["  GPU             memory peak", "    0 MIG 1 H100      1.0 GiB"]


def test_the_cores_of_a_neuron_device_are_its_mean_and_their_memory_its_sum(pipeline, summary, ended):
    points = []
    for core, busy in ("0", 100), ("1", 50):
        dims = Dimensions(neuron_core=core, neuron_device="3")
        points.append(CORE_UTILIZATION.point(0, busy, dims))
        points += [CORE_MEMORY.point(0, 2**30, dims | {"category": kind}) for kind in ("tensors", "constants")]
    pipeline.tick(0, *points)
    assert [line.split() for line in table(summary, ended)] == [
        ["Neuron", "util", "mean", "util", "p95", "memory", "peak"],
        ["3", "75", "%", "75", "%", "4.0", "GiB"],
    ]


def test_a_reading_that_came_late_counts_at_the_time_of_its_points(pipeline, summary, ended):
    dims = Dimensions(gpu="0")
    late, now = (GPU["gpu.memory.used"].point(at, 2**30, dims) for at in (-5 * SECOND, 0))
    pipeline.tick(5, late, now)
    assert table(summary, ended)[1].split() == ["0", "1.0", "GiB"]


@pytest.mark.parametrize(
    ("name", "title"), [("tpu.duty_cycle", "TPU"), ("ipu.utilization", "IPU"), ("gpu.utilization", "GPU")]
)
def test_every_family_has_a_table(pipeline, summary, ended, name, title):
    key = name.partition(".")[0]
    pipeline.tick(0, gauge(name, "%", "A.", dims=(key,)).point(0, 42, Dimensions({key: "3"})))
    assert [line.split() for line in table(summary, ended)] == [
        [title, "util", "mean", "util", "p95"],
        ["3", "42", "%", "42", "%"],
    ]


def test_energy_is_counted_by_the_device_and_by_its_power_since_then_or_where_it_does_not_count():
    device = DeviceUsage("0")
    readings = ((0, 100, [], None), (10, 200, [], 2000), (20, 300, [7000], 7000), (25, 100, [], 7500))
    for second, watts, increases, joules in readings:
        device.take(second * SECOND, [("power", "", watts), *(("energy", "", increase) for increase in increases)])
        assert device.joules == joules
    assert COLUMNS["energy"](device) == "2.08 Wh"
    device = DeviceUsage("1")
    for second in range(100):
        device.take(second * SECOND, [("power", "", 690), ("energy", "", 0)])
    assert COLUMNS["energy"](device) == "18.98 Wh by power", "its counter stands still"


def test_the_95th_percentile_is_that_of_all_readings_to_the_percent():
    device = DeviceUsage("0")
    values = [(17 * n) % 97 + 0.4 for n in range(1000)]
    for n, value in enumerate(values):
        device.take(n, [("utilization", "", value)])
    assert device.read.percentile(0.95) == round(sorted(values)[949])
    assert device.read.mean == pytest.approx(sum(values) / 1000)


def test_what_each_sink_was_owed_in_this_run_and_what_came_of_it():
    ledger = Ledger(collected=1000, sent=900, spooled=100)
    pipeline, summary = Pipeline(cloud=ledger, otlp=Ledger()), RunSummary()
    summary.listen(pipeline)
    ledger.add({"collected": 8200, "sent": 8190, "rejected:too old": 50, "dropped:spool full": 40})
    ledger.spooled = 20
    pipeline.routes[1].ledger.add({"collected": 3, "sent": 3})
    command = WrappedCommand(["true"])
    command.code()
    assert [*summary.lines(command)][-1] == (
        "  sent      cloud 8,090 of 8,200 points, 50 rejected, 40 dropped, 20 kept, 100 sent for earlier runs; otlp 3 of 3 points"
    )


@pytest.mark.parametrize(
    "case",
    [
        (0, {"collected": 14}, 14, {"last_error": "no run: set MLFLOW_RUN_ID\n"}, "0 of 14 points, 14 kept: no run: set MLFLOW_RUN_ID"),
        (480, {"collected": 18}, 498, {}, "0 of 18 points, 18 kept, 480 kept from earlier runs"),
        (17, {"collected": 14, "sent": 14}, 17, {"elsewhere": 17}, "14 of 14 points, 17 kept for another destination"),
    ],
    ids=["the reason", "an earlier run", "another destination"],
)  # fmt: skip
def test_points_that_are_kept_have_the_reason_beside_them_and_others_are_counted_apart(case, ended):
    earlier, owed, kept, state, said = case
    pipeline, summary = Pipeline(cloud=Ledger(collected=earlier, spooled=earlier)), RunSummary()
    summary.listen(pipeline)
    (route,) = pipeline.routes
    route.ledger.add(owed)
    route.ledger.spooled = kept
    route.last_error = state.get("last_error")
    route.ledger.elsewhere = state.get("elsewhere", 0)
    assert [*summary.lines(ended)][-1] == f"  sent      cloud {said}"


def test_counters_that_are_reset_do_not_fall(pipeline, summary, ended):
    sent = counter("network.sent", "By", "A.")
    for second, value in enumerate((5000, 7048, 10, 1034)):
        pipeline.tick(second, sent.point(0, value, start_time=START))
    assert "  network   sent 3.0 KiB (the whole machine)" in [*summary.lines(ended)]


@pytest.mark.parametrize(
    ("text", "of"),
    [
        (amounts.binary, {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 61.2 * 2**30: "61.2 GiB", 3 * 2**50: "3072.0 TiB"}),
        (amounts.clock, {0: "0:00:00", 12.4: "0:00:12", 3723: "1:02:03", 86399: "23:59:59", 360000: "4 d 4:00"}),
        (amounts.energy, {0: "0.00 Wh", 3600: "1.00 Wh", 2.556e6: "0.71 kWh"}),
        (lambda seconds: amounts.spent(seconds, "CPU"), {0.25: "0.2 CPU seconds", 90: "1.5 CPU minutes", 17640: "4.9 CPU hours"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_amounts_are_printed_in_units_that_people_read(text, of):
    assert {amount: text(amount) for amount in of} == of
