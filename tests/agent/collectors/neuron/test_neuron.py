"""The collector on its standard input; with its monitor: test_monitor.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.doubles.fake_neuron_monitor import line
from tests.told import devices, processes

from chipwatch.collectors.neuron import MOMENT, NeuronCollector
from chipwatch.contract.datapoint import Dimensions
from chipwatch.contract.errors import InputEnded, PartlyCollected, Unavailable
from chipwatch.contract.facts import DeviceFacts, names_of
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.engine.window import Window
from chipwatch.jobs.device_key import device_of
from chipwatch.jobs.evidence import UTILIZATIONS, from_points

NEURON = Path(__file__).parents[3] / "fixtures/neuron"
AT = 1_800_000_000_000_000_000
SECOND = 10**9


class Fed:
    """A collector, and the far end of its standard input."""

    def __init__(self, folder, **config):
        self.reading, self.writing = os.pipe()
        self.now = 100.0
        config = {"stdin": True, "interval": 1.0, "proc": folder, "sys": folder} | config
        config = NeuronCollector.Config(**config)
        self.collector = NeuronCollector(config, stdin=self.reading, clock=lambda: self.now)

    def write(self, data):
        with os.fdopen(os.dup(self.writing), "wb") as file:
            file.write(data)

    def end(self):
        os.close(self.writing)
        self.writing = -1

    def tick(self, at=AT):
        """Return points and what was raised after them."""
        points = []
        try:
            for point in self.collector.collect(at):
                points.append(point)  # noqa: PERF402  # what came before the exception stays
        except (PartlyCollected, InputEnded) as raised:
            return points, raised
        return points, None

    def close(self):
        self.collector.close()
        for fd in (self.reading, self.writing):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def fed(tmp_path):
    made = Fed(tmp_path)
    made.collector.open(Given())
    yield made
    made.close()


def completed(points):
    return [p.value for p in points if p.dims.get("outcome") == "completed"]


@pytest.mark.parametrize("tagged", [False, True])
def test_the_collector_keeps_the_contract(tmp_path, tagged):
    made = Fed(tmp_path, neuron_runtime_tag=tagged)
    made.write((NEURON / "synthetic_edge_cases.jsonl").read_bytes() + line(runtimes=2, cores=4))
    points = check_collector(made.collector)
    assert len({p.metric.name for p in points}) == 14
    made.close()


def test_all_waiting_records_are_read_in_one_tick(fed):
    fed.write(line() * 3)
    points, raised = fed.tick()
    assert raised is None
    assert completed(points) == [30]
    assert fed.collector.describe() == "standard input, 1 devices"


def test_a_pod_is_found_by_the_core_or_by_the_device_that_the_scheduler_gave_it(fed):
    """`aws.amazon.com/neuroncore` and `aws.amazon.com/neuron` of AWS's device plugin."""
    fed.write(line(runtimes=2, cores=4))
    fed.tick()
    names = names_of(devices(fed.collector))
    cores = {f"core{number}": {"neuron_core": f"{number}", "neuron_device": "0"} for number in range(2)}
    assert {name: dict(dims) for name, dims in names.items()} == {**cores, "neuron0": {"neuron_device": "0"}}
    every = [Dimensions(neuron_core=f"{number}", neuron_device="0") for number in range(4)]
    values = {device_of(dims): {UTILIZATIONS[-1]: 50.0} for dims in every}
    active = from_points(DeviceFacts(1, processes(fed.collector), names, (), "neuron"), values)
    assert [activity.dims["neuron_core"] for activity in active] == [*"0123"], "also cores without a runtime"


def test_the_counts_of_the_first_record_are_an_increase_for_the_window(fed):
    fed.write(line())
    window = Window(1.0, born=AT - MOMENT, increases=True)
    window.add(fed.tick()[0], AT)
    increases = {p.dims["outcome"]: p.increase for p in window.close() if "outcome" in p.dims}
    assert increases["completed"] == 10
    assert increases["timed_out"] == 0


def test_no_count_is_lost_between_ticks_and_windows(fed):
    window, told = Window(2.0, born=AT - MOMENT, increases=True), 0
    for n in range(10):
        fed.now += 1
        fed.write(line() * (n % 3))
        done = window.add(fed.tick(AT + n * SECOND)[0], AT + n * SECOND)
        told += sum(p.increase for p in done if p.dims.get("outcome") == "completed")
    told += sum(p.increase for p in window.close() if p.dims.get("outcome") == "completed")
    assert told == 10 * sum(n % 3 for n in range(10))


def test_an_end_between_records_is_clean_and_is_raised_after_the_last_points(fed):
    fed.write(line())
    fed.end()
    points, raised = fed.tick()
    assert completed(points) == [10]
    assert (raised.clean, str(raised), raised.problems) == (True, "standard input has ended", [])


def test_a_last_record_without_a_newline_counts(fed):
    fed.write(line() + line().strip())
    fed.end()
    points, raised = fed.tick()
    assert completed(points) == [20]
    assert raised.clean


def test_left_out_utilization_is_reported_at_the_end_of_the_input(fed):
    fed.write(line(period=0.008))
    fed.end()
    points, end = fed.tick()
    assert "neuron.core.utilization" not in {point.metric.name for point in points}
    assert end.clean
    assert [problem.partition(" of ")[0] for problem in end.problems] == ["utilization is left out"]


def test_an_end_within_a_record_is_reported(fed):
    fed.write(line() + line()[:1000])
    fed.end()
    points, raised = fed.tick()
    assert completed(points) == [10]
    assert (raised.clean, str(raised)) == (False, "standard input ended within a record, which is lost")
    assert raised.problems == ["a record was cut, or is not JSON"]


def test_an_end_within_a_record_that_is_too_long_is_reported(fed, monkeypatch):
    fed.collector._source._splitter._max_size = 1000
    fed.write(b'{"x":"' + b"x" * 2000)
    fed.end()
    assert fed.tick()[1].clean is False


def test_an_invalid_line_before_the_end_leaves_the_end_clean(fed):
    fed.write(line() + b"usage\n\n")
    fed.end()
    _, raised = fed.tick()
    assert raised.clean
    assert raised.problems == ["neuron-monitor printed: usage"]


def test_after_the_end_each_tick_raises_it_again_and_yields_nothing(fed):
    fed.write(line())
    fed.end()
    fed.tick()
    points, raised = fed.tick(AT + SECOND)
    assert points == []
    assert raised.clean


def test_values_of_a_silent_input_expire_without_a_problem(fed):
    fed.write(line())
    assert fed.tick()[0]
    fed.now += 3
    assert fed.tick()[0]
    fed.now += 0.1
    assert fed.tick() == ([], None)
    fed.write(line())
    assert completed(fed.tick()[0]) == [20]


def test_sysfs_is_read_in_addition_to_the_records(tmp_path):
    folder = tmp_path / "devices/virtual/neuron_device/neuron0/stats"
    (folder / "power").mkdir(parents=True)
    (folder / "hardware").mkdir()
    (folder / "power/utilization").write_text(f"POWER_STATUS_VALID,{AT // SECOND},1.50,3.50,2.00\n")
    (folder / "hardware/mem_ecc_repairable_uncorrected").write_text("3\n")
    made = Fed(tmp_path)
    points = check_collector(made.collector)
    assert {(p.metric.name, p.value) for p in points} == {
        ("neuron.device.power.utilization", 2.0),
        ("neuron.ecc.repairable", 3),
    }
    made.close()


def test_counters_of_devices_count_since_the_boot(tmp_path):
    (tmp_path / "stat").write_text("cpu 1\nbtime 1790000000\n")
    made = Fed(tmp_path)
    made.collector.open(Given())
    made.write(line())
    start_time = {p.start_time for p in made.tick()[0] if p.metric.name == "neuron.ecc.events"}
    assert start_time == {1_790_000_000 * SECOND}
    made.close()


def test_an_input_that_is_closed_or_a_terminal_is_unavailable(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    config = NeuronCollector.Config(stdin=True)
    with pytest.raises(Unavailable, match="standard input is closed"):
        NeuronCollector(config, stdin=reading).open(Given())
    ours, theirs = os.openpty()
    with pytest.raises(Unavailable, match=r"is a terminal; run `neuron-monitor \| chipwatch --stdin neuron`"):
        NeuronCollector(config, stdin=theirs).open(Given())
    os.close(ours)
    os.close(theirs)


def test_an_unreadable_input_ends_uncleanly(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    collector = NeuronCollector(NeuronCollector.Config(stdin=True, proc=tmp_path, sys=tmp_path), stdin=fd)
    collector.open(Given())
    with pytest.raises(InputEnded, match="standard input: Is a directory") as raised:
        list(collector.collect(AT))
    assert raised.value.clean is False
    collector.close()
    os.close(fd)


def test_the_real_standard_input_in_a_pipe_of_a_shell(tmp_path):
    (tmp_path / "records").write_bytes(line() * 5)
    code = (
        "from chipwatch.collectors.neuron import NeuronCollector\n"
        "from chipwatch.contract.errors import InputEnded\n"
        "from chipwatch.contract.plugin import Given\n"
        "c = NeuronCollector(NeuronCollector.Config(stdin=True)); c.open(Given()); n = 0; found = []\n"
        "while True:\n"
        "    try:\n"
        "        n += 1; found += c.collect(n)\n"
        "    except InputEnded as end:\n"
        "        print(end.clean, next(iter(c.facts())).words['instance_id']); break\n"
    )
    done = subprocess.run(
        f"cat {tmp_path}/records | {sys.executable} -c '{code.replace(chr(39), chr(34))}'",
        shell=True, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout == "True i-0aaaabbbbccccdddd\n", done.stderr
