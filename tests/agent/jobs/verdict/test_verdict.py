"""The real command on machines that are fit, degraded, not fit, or do not answer."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.doubles.kmsg.log import record

from chipwatch.commands.verdict import as_kubernetes, as_text
from chipwatch.config.instances import build_collectors
from chipwatch.config.load import load
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import gauge
from chipwatch.contract.errors import ConfigError
from chipwatch.host.failures import DAY, Failure, file_of, note, read
from chipwatch.jobs.verdict import reading
from chipwatch.jobs.verdict.callers import STARTED
from chipwatch.jobs.verdict.events import WATCHED
from chipwatch.jobs.verdict.judge import judge
from chipwatch.jobs.verdict.reading import UNWATCHED
from chipwatch.jobs.verdict.rules import Seen
from chipwatch.net.status_socket import ask, serve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fake driver needs Linux")
CALLERS = {  # fit, degraded, not fit, unknown
    "person": (0, 0, 1, 2), "slurm": (0, 0, 1, 0), "npd": (0, 0, 1, 2), "nagios": (0, 1, 2, 3),
}  # fmt: skip
callers = pytest.mark.parametrize("caller", CALLERS)
TAINT = {"key": "chipwatch/health", "value": "Unhealthy", "effect": "NoSchedule"}
LOST = "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."


def told(done):
    return json.loads(done.stdout)


def make(machine, verdict):
    """Put the machine into a state of which this is the verdict; return further words."""
    if verdict == "degraded":
        machine.ring.write(record(0, "nvme nvme5: I/O 494 QID 4 timeout, aborting", age=60))
    elif verdict == "not fit":
        machine.driver.gpus[1]["lost"] = 1
    elif verdict == "unknown":
        machine.driver.gpus[1]["handle"] = "!4"
    elif verdict == "hangs":
        machine.driver.gpus[1]["utilization"] = {"gpu": "hang"}
    return ("--expect", "gpus=2")


@pytest.mark.parametrize("verdict", ["fit", "degraded", "not fit", "unknown"])
@callers
def test_the_exit_code_is_the_callers_own(machine, caller, verdict):
    words = make(machine, verdict)
    done = machine.ask("--for", caller, *words)
    assert done.stdout.startswith(verdict.upper()), done.stdout + done.stderr
    assert done.returncode == CALLERS[caller][["fit", "degraded", "not fit", "unknown"].index(verdict)]
    if caller != "person":
        assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--expekt", "gpus=8"], "--expekt: no such option; did you mean --expect?"),
        (["--expect", "gpu=8"], "--expect gpu=8: no such thing to expect; did you mean gpus?"),
        (["--expect", "gpus=eight"], "--expect gpus=eight: expected gpus=NUMBER"),
        (["--expect", "gpus=8,gpus=4"], "--expect gpus=4: gpus was given before; give it once"),
        (["--expect", "gpus=8x400"], "--expect gpus=8x400: expected gpus=NUMBER"),
        (["--expect", "rdma=8x"], "--expect rdma=8x: expected rdma=NUMBER, or NUMBERxGBIT such as 8x400"),
        (["--expect", ""], "--expect: expected THING=NUMBER, ..., of: gpus, neuron, tpus, rdma, nvme"),
        (["--expect-from", "weather"], "--expect-from weather: no such choice; choose from: instance_type"),
        (["--expect", "gpus=8", "--expect-from", "instance_type"], "--expect, --expect-from: give one of them"),
        (["--config", "/nonexistent"], "/nonexistent"),
        (["--proc", "/nonexistent"], "--proc /nonexistent: it is not a folder"),
        (["--root", "/nonexistent"], "--root /nonexistent: it is not a folder"),
        (["--sys", "/usr"], "--sys /usr: it has none of the files of the host's /sys"),
        (["now"], "now: neither an option nor a value of one"),
    ],
)
@callers
def test_wrong_usage_is_a_line_and_never_reads_as_not_fit(here, caller, words, message):
    done = here("verdict", "--for", caller, *words)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert message in done.stderr
    assert done.returncode == CALLERS[caller][3]


@pytest.mark.parametrize(
    ("verdict", "status", "reason", "code"),
    [
        ("fit", "False", "HardwareIsFit", 0), ("degraded", "False", "HardwareIsDegraded", 0),
        ("not fit", "True", "HardwareIsNotFit", 1), ("unknown", "Unknown", "HardwareIsUnknown", 2),
    ],
)  # fmt: skip
def test_kubernetes_gets_the_condition_of_the_node(machine, verdict, status, reason, code):
    done = machine.ask("--for", "kubernetes", *make(machine, verdict), NODE_NAME="node-7")
    (node,) = told(done)["items"]  # without an agent, no GPU has a name in DRA
    (condition,) = node["status"]["conditions"]
    assert (node["kind"], node["metadata"], done.returncode) == ("Node", {"name": "node-7"}, code)
    assert condition.pop("message").startswith(verdict.upper())
    assert condition == {"type": "HardwareProblem", "status": status, "reason": reason}


def test_a_gpu_that_is_not_fit_has_a_taint_by_its_minor_number(monkeypatch):
    monkeypatch.setenv("K8S_NODE_NAME", "node-7")
    names = {"GPU-a": "6", "6": "6", "gpu-2": "6", "gpu-2-mig-1g.5gb-0": "6", "gpu-6": "2", "gpu-None": "6"}
    series = [Seen("gpu.state", {"gpu": gpu}, gpu != "6") for gpu in ("2", "6")]
    verdict = judge({"series": series, "collectors": {}}, [], Path("/"), [], "agent")
    _, rule = json.loads(as_kubernetes(verdict, {name: {"gpu": gpu} for name, gpu in names.items()}))["items"]
    where = {"driver": "gpu.nvidia.com", "pool": "node-7", "device": "gpu-2"}
    assert rule == {
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "chipwatch-node-7-gpu-2"},
        "spec": {"deviceSelector": where, "taint": TAINT},
    }  # fmt: skip


@pytest.mark.parametrize("words", [["--for", "slrum"], ["--for"], ["--for="], ["--for=slurn"]])
def test_a_misspelt_caller_drains_nothing(here, words):
    done = here("verdict", *words)
    assert (done.returncode, done.stdout) == (0, "")
    assert "--for" in done.stderr


@pytest.mark.parametrize("words", [["verdict", "--for", "Slurm"], ["Verdict", "--for=SLURM"]])
def test_case_does_not_count_in_a_callers_name_and_code(here, words):
    assert here(*words, "--expect", "gpus").returncode == CALLERS["slurm"][3]


WRAPPER = Path(__file__).parents[4] / "docs/node-health.md"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("echo 'NOT FIT: gpu 3: is lost.'; exit 1", 1),
        ("echo 'FIT: 8 GPUs'", 0),
        ("echo 'UNKNOWN: nvidia: no answer'", 0),
        ("echo 'ModuleNotFoundError: no module named chipwatch' >&2; exit 1", 0),
        ("kill -SEGV $$", 0),
        ("sleep 60", 0),
        ("exec /nonexistent", 0),
    ],
)
def test_the_wrapper_of_the_docs_drains_only_by_a_verdict(tmp_path, answer, code):
    text = WRAPPER.read_text().partition("```sh\n#!/bin/sh\n")[2].partition("```")[0]
    assert "timeout -k 1 10 chipwatch verdict --for slurm" in text
    (tmp_path / "chipwatch").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "chipwatch").chmod(0o755)
    (tmp_path / "prolog").write_text(text.replace("1 10 chipwatch", "1 2 chipwatch"))
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(["sh", tmp_path / "prolog"], env={"PATH": path}, capture_output=True, check=False)
    assert done.returncode == code
    assert done.stdout.startswith(b"NOT FIT: ") == bool(code)


@callers
def test_a_bug_never_reads_as_not_fit(machine, plugins_folder, caller):
    plugins_folder.add(
        "breaks", "from chipwatch.contract.collector import Collector\nclass Breaks(Collector):\n"
        "    class Config: pass\n    metrics = 5\n    def __init__(self, config): raise SystemExit(1)\n",
        collectors=[("breaks", "Breaks")],
    )  # fmt: skip
    done = machine.ask("--for", caller, PYTHONPATH=str(plugins_folder.folder))
    assert done.returncode == CALLERS[caller][3]


@callers
def test_without_memory_or_with_a_closed_output_it_never_reads_as_not_fit(agent_command, agent, machine, caller):
    make(machine, "fit")
    machine.driver.write()
    command = [*agent_command, "verdict", "--for", caller, "--spool", str(machine.spool)]

    def little():
        resource.setrlimit(resource.RLIMIT_AS, (60 << 20, 60 << 20))

    done = subprocess.run(command, env=agent.env(), preexec_fn=little, capture_output=True, check=False)
    assert done.returncode != CALLERS[caller][2] or b"Traceback" not in done.stderr
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, env=agent.env(**machine.env), stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == CALLERS[caller][3]
    assert b"standard output: the disk is full (No space left on device)" in done.stderr


# -- what it finds ------------------------------------------------------------------------------------------------


def test_a_machine_that_has_what_is_expected_is_fit(machine):
    for n in range(8):
        machine.port(f"mlx5_{n}")
    done = machine.ask("--expect", "gpus=2,rdma=8x400")
    assert " ".join(done.stdout.partition("UNKNOWN")[0].split()) == (
        "FIT FINE 2 GPUs, memory of GPUs, NVLinks, NVLink fabric, clocks of GPUs, PCIe of GPUs, 8 RDMA ports, kernel log"
    )
    assert "UNKNOWN      GPUs (not told by the driver: nvlink bit errors)" in done.stdout
    assert done.stderr == ""


def test_a_message_of_the_last_hour_is_a_reason_with_time_and_text_and_an_older_one_is_none(machine):
    machine.ring.write(record(0, LOST, age=600))
    done = machine.ask()
    assert done.returncode == 1
    assert "a GPU has fallen off the bus at " in done.stdout
    assert f"           {LOST}\n" in done.stdout
    machine.ring.write(record(0, LOST, age=4000))
    assert machine.ask().stdout.startswith("FIT\n")


def test_a_message_cannot_steer_the_terminal(machine):
    machine.ring.write(record(0, "nfs: server \x1b]0;owned\x07 not responding"))
    done = machine.ask()
    assert "\x1b" not in done.stdout
    assert r"\x1b]0;owned" in done.stdout


def test_missing_and_slow_ports(machine):
    for n in range(6):
        machine.port(f"mlx5_{n}")
    machine.port("mlx5_6", state="1: DOWN")
    machine.port("mlx5_7", rate="200 Gb/sec (4X HDR)")
    done = machine.ask("--expect", "rdma=8x400")
    assert done.stdout.splitlines()[0] == "NOT FIT"
    assert "8 expected, 7 work; down: mlx5_6." in done.stdout
    machine.port("mlx5_6")
    done = machine.ask("--expect", "rdma=8x400")
    assert done.stdout.splitlines()[0] == "DEGRADED"
    assert "mlx5_7     runs at 200 of 400 Gbit/s." in done.stdout
    assert machine.ask("--expect", "rdma=7x400").stdout.startswith("FIT\n")


@pytest.mark.parametrize(("name", "how", "says"), [
    ("rate", "no file", "8 of 400 Gbit/s expected; the rate of mlx5_7 cannot be read"),
    ("rate", "a FIFO", "8 of 400 Gbit/s expected; the rate of mlx5_7 cannot be read"),
    ("state", "empty", "8 expected, 7 work; mlx5_7 cannot be read"),
])  # fmt: skip
def test_a_rate_or_a_state_that_cannot_be_read_is_unknown_where_it_is_expected(machine, how, name, says):
    for n in range(8):
        machine.port(f"mlx5_{n}")
    file = machine.folder / f"sys/class/infiniband/mlx5_7/ports/1/{name}"
    file.write_text("")
    if how != "empty":
        file.unlink()
    if how == "a FIFO":
        os.mkfifo(file)
    done = machine.ask("--for", "nagios", "--expect", "rdma=8x400")
    assert (done.returncode, done.stdout.strip()) == (3, f"UNKNOWN: rdma: {says}")
    assert machine.ask("--for", "nagios", "--expect", "rdma=7x400").returncode == 0
    assert machine.ask("--for", "nagios", "--expect", "rdma=9x400").returncode == 2


def test_gpus_that_are_not_on_the_bus_or_have_no_driver_are_missing_even_where_no_driver_answers(machine):
    (machine.folder / "proc/driver/nvidia/version").unlink()
    machine.pci(bound=1, free=1)
    done = machine.ask("--for", "slurm", "--expect", "gpus=2")
    assert done.returncode == 1
    assert done.stdout.startswith("NOT FIT: gpus: 2 expected, 2 on the PCI bus, 1 with a driver. ")


def test_no_gpu_of_those_expected_is_not_fit_also_where_the_bus_has_them(machine):
    machine.driver.gpus.clear()
    done = machine.ask("--for", "slurm", "--expect", "gpus=8")
    assert (done.returncode, done.stdout.partition(". ")[0]) == (1, "NOT FIT: gpus: 8 expected, NVML lists no GPU")
    machine.pci(bound=8)
    assert machine.ask("--for", "npd", "--expect", "gpus=8").returncode == 1
    assert machine.ask("--for", "npd").returncode == 0


def test_a_driver_that_cannot_be_asked_is_unknown_where_the_bus_has_all_gpus(machine):
    (machine.folder / "proc/driver/nvidia/version").unlink()
    machine.pci(bound=2)
    done = machine.ask("--for", "nagios", "--expect", "gpus=2")
    assert (done.returncode, done.stdout.partition(": amd")[0]) == (3, "UNKNOWN: gpus: 2 expected")


@pytest.mark.parametrize(
    ("given", "verdict"), [("p5.48xlarge", "NOT FIT"), ("g5.xlarge", "FIT"), ("m7i.large", "UNKNOWN"), ("", "UNKNOWN")]
)
def test_the_instance_type_tells_what_is_expected(machine, given, verdict):
    env = {"AWS_EC2_METADATA_DISABLED": "true", **({"CHIPWATCH_DIMS__INSTANCE_TYPE": given} if given else {})}
    done = machine.ask("--expect-from", "instance_type", **env)
    assert done.stdout.splitlines()[0] == verdict, done.stdout


def test_a_kernel_log_that_may_not_be_read_is_listed_and_decides_nothing(machine):
    done = machine.ask(CHIPWATCH_COLLECTORS__KERNEL__PATH=machine.folder / "absent")
    assert done.stdout.startswith("FIT\n")
    assert "UNKNOWN kernel log (" in " ".join(done.stdout.split())


# -- a driver that hangs, an agent that runs ------------------------------------------------------------------------


def test_where_a_driver_hangs_it_ends_as_unknown_in_less_than_two_seconds(machine):
    make(machine, "hangs")
    done = machine.ask("--for", "nagios", timeout="2s")
    assert (done.returncode, done.stdout.partition(":")[0]) == (3, "UNKNOWN")
    assert machine.seconds < 2 * max(1, os.getloadavg()[0])


ENDS = """
import os, resource, signal, time
from optionless import *
class Ends(Optionless, Collector):
    metrics = (gauge("gpu.state", "1", "Works.", dims=("gpu",)),)
    def open(self, given):
        {}
    def collect(self, at): return ()
"""


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process of the readings has ended by SIGSEGV"),
        ("os._exit(7)", "the process of the readings has ended with 7"),
        ("os.closerange(3, 99); time.sleep(60)", "the process of the readings has ended"),
    ],
)
def test_the_verdict_says_what_ended_the_readings_and_not_that_they_did_not_return(machine, plugins_folder, code, why):
    plugins_folder.add("ends", ENDS.format(code), collectors=[("ends", "Ends")])
    done = machine.ask("--for", "nagios", timeout="10s", PYTHONPATH=str(plugins_folder.folder))
    assert (done.returncode, done.stdout.strip()) == (3, f"UNKNOWN: machine: {why}")


def test_readings_that_cannot_begin_say_why():
    class Full(dict):
        def items(self):
            raise OSError(errno.EMFILE, "Too many open files")

    answer = reading._read_in_child(Full(), 10.0)
    why = "the readings have ended: too many files are open (`ulimit -n`) (Too many open files)"
    assert answer["collectors"]["machine"]["error"] == why


def test_what_only_deliveries_need_is_not_loaded():
    program = "import sys, chipwatch.commands.verdict; print({'sqlite3', 'chipwatch.engine.delivery'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_reader_that_does_not_end_keeps_nobody_waiting(machine, plugins_folder):
    """A process that a driver holds does not end by a signal; here it is one that the reader has started."""
    pid = machine.folder / "pid"
    code = f"""child = os.fork()
        if child:
            open({str(pid)!r}, "w").write(str(child))
        time.sleep(120)
        os._exit(0)"""
    plugins_folder.add("ends", ENDS.format(code), collectors=[("ends", "Ends")])
    done = None
    try:
        done = machine.ask("--for", "nagios", timeout="8s", PYTHONPATH=str(plugins_folder.folder))
    finally:
        assert pid.exists(), done
        os.kill(int(pid.read_text()), signal.SIGKILL)
    assert done.returncode == 3
    assert machine.seconds < 60


def test_the_running_agent_is_asked_first_and_knows_the_last_hour_and_the_failures_of_a_month(machine, until):
    failures, now = file_of(machine.spool, machine.folder / "root", machine.folder / "sys"), time.time_ns()
    for days in (13, 6, 1.5):
        note(failures, Failure(int(now - days * DAY), "gpu-lost", "gpu 6 is lost", "41337"))
    machine.start("--collector", "nvidia", "--collector", "kernel", "--collector", "hardware")
    until(lambda: told(machine.ask("--json"))["source"] == "agent")
    until(lambda: {"2 GPUs", "NVLinks", "kernel log"} <= {*told(machine.ask("--json"))["fine"]})
    machine.ring.append(record(1, LOST), record(2, LOST))
    done = until(lambda: (done := machine.ask("--json")).returncode == 1 and done)
    reason, past = told(done)["reasons"]
    assert past["says"] == "failed 3 times in 30 days (gpu-lost)"
    assert past["shown_by"]["message"].startswith("the third time in 12 days: gpu 6 is lost (")
    assert reason["shown_by"]["last_hour"] == 2
    assert reason["shown_by"]["message"] == LOST
    assert "2 times in the last hour, last at " in machine.ask().stdout
    assert ask(machine.spool, "verdict")["names"]["gpu-1"] == {"gpu": "1"}, "what a taint names it by"
    until(lambda: [one.kind for one in read(failures)] == ["gpu-lost"] * 4, 20)


def test_a_collector_of_the_running_agent_that_hangs_is_unknown(machine, until):
    make(machine, "hangs")
    machine.start("--collector", "nvidia", "--collector", "kernel")
    until((machine.spool / "status.sock").exists)  # before that each would read for itself, and wait for the driver
    until(lambda: told(machine.ask("--json"))["source"] == "agent")
    done = machine.ask("--for", "npd", "--expect", "gpus=2")
    why = "nvidia: GPU 1: NVML did not answer in time"
    assert (done.returncode, done.stdout.strip()) == (2, f"UNKNOWN: gpus: 2 expected: {why}; {why}")


@pytest.mark.parametrize("hangs", [{"lost": "hang"}, {"handle": "hang"}, {"memory": {"total": "hang"}}])
def test_a_gpu_whose_calls_do_not_return_is_named_and_none_is_called_missing(machine, hangs):
    machine.driver.gpus[1] |= hangs
    machine.pci(bound=0)
    machine.file("sys/bus/pci/devices/0000:00:1f.0/class", "0x060100\n")
    machine.file("sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n")
    done = machine.ask("--for", "npd", "--expect", "gpus=2", timeout="4s")
    assert (done.returncode, done.stdout.partition("; ")[0]) == (
        2, "UNKNOWN: gpus: 2 expected: nvidia: GPU 1: NVML did not answer in time",
    )  # fmt: skip


def test_a_table_of_mounts_that_is_not_answered_is_unknown_and_in_time(machine):
    (machine.folder / "proc/1").mkdir(parents=True)
    os.mkfifo(machine.folder / "proc/1/mountinfo")
    done = machine.ask("--for", "npd", timeout="4s")
    assert (done.returncode, done.stdout.strip()) == (
        2, "UNKNOWN: storage: no answer: a driver or a file server may hang"
    )  # fmt: skip


@pytest.mark.parametrize("words", [[], ["--expect", "gpus=2"]])
def test_a_driver_that_is_not_loaded_is_unknown_where_its_device_file_is_there(machine, words):
    (machine.folder / "proc/driver/nvidia/version").unlink()
    machine.file("root/dev/nvidiactl", "")
    machine.driver.machine["init"] = "!9"
    done = machine.ask("--for", "nagios", *words)
    assert done.returncode == 3
    assert "nvidia: NVML: Driver Not Loaded (NVML 9): the kernel module is not loaded" in done.stdout


def test_what_shows_only_between_two_readings_is_found_without_an_agent(machine):
    machine.driver.gpus[0]["field"] |= {"163.1": "5000@250", "170": "1u", "231": "7@30"}
    machine.driver.gpus[1]["reasons"] = 0x88
    done = machine.ask("--json")
    reasons = {(one["about"], one["shown_by"]["dims"].get("kind") or one["shown_by"]["dims"]["fault"])
               for one in told(done)["reasons"]}  # fmt: skip
    assert reasons == {("gpu 0", "nvlink_crc"), ("gpu 0", "c2c"), ("gpu 1", "power_brake")}
    assert told(done)["verdict"] == "degraded"


@pytest.mark.parametrize(("left", "readings"), [(0.2, 1), (5.0, 2)])
def test_where_there_is_no_time_for_a_second_reading_it_says_so(left, readings):
    class Fault(Collector):
        metrics = (gauge("gpu.fault", "1", "Faults.", dims=("gpu", "fault")),)
        times = ()

        def open(self, given):
            pass

        def collect(self, at):
            self.times += (at,)
            return ()

    collector = Fault()
    answer = reading._read({"fault": collector}, (time.monotonic() - STARTED + left) / reading.AGAIN_SHARE)
    assert len(collector.times) == readings
    lines = as_text(judge(answer, [], Path("/nonexistent"), [], "reading")).splitlines()
    says = "UNKNOWN      rates of errors of GPUs (there was no time for a second reading)"
    assert (says in lines) == (readings == 1)
    assert readings == 1 or 1e9 <= collector.times[1] - collector.times[0] < 3e9


def test_an_agent_that_does_not_answer_is_not_waited_for(machine):
    import socket

    machine.spool.mkdir()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(machine.spool / "status.sock"))
        silent.listen()
        done = machine.ask("--json", timeout="10s")
    assert (told(done)["source"], told(done)["verdict"]) == ("reading", "fit")


def test_an_answer_of_another_version_never_gives_not_fit(machine, until):
    machine.spool.mkdir()
    fine = {"a": {"state": "ok", "error": None, "metrics": []}}
    for body in ({"series": [["x"]], "collectors": fine}, {"series": 5, "collectors": [1]}, {}):
        server = serve(machine.spool, {"verdict": lambda body=body: body})
        done = machine.ask("--for", "slurm")
        server.close()
        assert done.returncode == 0
        assert "no verdict: " in done.stderr


def test_the_collectors_that_a_verdict_leaves_out_have_nothing_that_it_is_made_of():
    config = load(None, {}, {})
    of_no_use = {
        name
        for name, collector in build_collectors(config).items()
        if not WATCHED & {metric.name for metric in collector.metrics}
    }
    assert of_no_use == UNWATCHED
    assert build_collectors(config, UNWATCHED).keys() == build_collectors(config).keys() - UNWATCHED


def test_a_collector_that_is_left_out_is_built_where_it_has_options_that_may_be_wrong(tmp_path):
    file = tmp_path / "chipwatch.toml"
    file.write_text("[collectors.disk]\nno_such = 1\n")
    with pytest.raises(ConfigError, match=r"collectors\.disk\.no_such: no such option"):
        build_collectors(load(file, {}, {}), UNWATCHED)
