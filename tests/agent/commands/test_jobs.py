"""`chipwatch jobs`: a running agent with a fake driver and real processes tells who holds what."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
from datetime import datetime

import psutil
import pytest
from tests.doubles.nvml.driver import machine_with
from tests.ports import free_port

from chipwatch.history.job_records import append, records_of
from chipwatch.net.status_socket import NoAgent, ask

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fake driver and /proc are those of Linux")


@pytest.fixture
def machine(tmp_path):
    """Return the environment of a machine with two GPUs, one of which two child processes use."""
    driver, env = machine_with(tmp_path, 2)
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    driver.gpus[0] |= {"kernels": "1/1", "processes": ",".join(f"{child.pid}:1000000000" for child in children)}
    driver.gpus[1] |= {"kernels": "0/1", "processes": None}
    driver.write()
    yield env
    for child in children:
        child.kill()
        child.wait()


def test_a_running_agent_tells_who_holds_what(agent, machine, until, tmp_path):
    state, more = str(tmp_path / "state"), {"CHIPWATCH_PROCESSORS__JOBS__DOLLARS_PER_HOUR": "3600"}
    more["CHIPWATCH_SINKS__STDOUT__PATH"] = str(tmp_path / "points.jsonl")
    words = ("--collector", "nvidia,jobs", "--interval", "0.2", "--spool", state)

    def asked():
        try:
            told = ask(tmp_path / "state", "jobs")
        except NoAgent:
            return None
        known = any(sum(job["seconds"].values()) > 1 for job in told["jobs"]) and told["devices"][1]["state"] == "free"
        return told if known else None

    running = agent.start(*words, env=machine | more)
    told = until(asked)
    (job,) = told["jobs"]
    assert job["user"] == psutil.Process().username()
    assert job["seconds"]["busy"] == pytest.approx(sum(job["seconds"].values()), rel=0.2)
    assert job["memory_max"] == 2e9
    assert job["cost"] == pytest.approx(sum(job["seconds"].values()))
    assert [device["state"] for device in told["devices"]] == ["busy", "free"]
    assert told["charged_seconds"] == pytest.approx(told["allocated_seconds"], abs=1e-3)
    head, row, free = agent.run("jobs", "--spool", state).stdout.splitlines()
    assert head.split()[:4] == ["JOB", "USER", "GPUS", "SINCE"]
    assert row.endswith("0 busy")
    assert free.endswith("1 free")
    running.stop()


UNHELD = {
    "9/10 and no process": {"kernels": "9/10", "processes": ""},
    "a pid that is not in /proc": {"kernels": "9/10", "processes": "4194000:1000000000"},
    "list refused: no permission": {"kernels": "9/10", "processes": "!4"},
    "list refused: lost for a moment": {"kernels": "0/1", "processes": "!15"},
    "list refused: unknown error": {"kernels": "9/10", "processes": "!999"},
}
REASONS = [
    "kernels ran and the driver lists no process", "process 4194000 has no owner in /proc",
    *(f"NVML does not list its processes: {word} (NVML {code})" for word, code in
      (("Insufficient Permissions", 4), ("GPU is lost", 15), ("Unknown Error", 999))),
]  # fmt: skip


@pytest.fixture
def unheld(tmp_path):
    """Return the environment of a machine with GPUs of which nobody knows who holds them, and one that is free."""
    driver, env = machine_with(tmp_path, len(UNHELD) + 1)
    for gpu, told in zip(driver.gpus, [*UNHELD.values(), {"kernels": "0/1", "processes": ""}], strict=True):
        gpu.update(told)
    driver.write()
    return env


def test_a_gpu_that_may_be_held_is_free_on_no_screen(agent, unheld, until, tmp_path):
    state, port = str(tmp_path / "state"), free_port()
    unheld |= {"CHIPWATCH_SINKS__PROMETHEUS__LISTEN": f"127.0.0.1:{port}", "STATE_DIRECTORY": state}
    words = ("--collector", "nvidia,jobs", "--interval", "0.2", "--sink", "prometheus", "--level", "detailed")

    def asked():
        done = agent.run("jobs", "--json", env=unheld)
        told = json.loads(done.stdout) if done.returncode == 0 else {"devices": []}
        return told if [device["reason"] for device in told["devices"]] == [*REASONS, ""] else None

    running = agent.start(*words, env=unheld)
    told = until(asked)
    assert [device["state"] for device in told["devices"]] == [*["unknown"] * len(UNHELD), "free"]
    assert told["groups"] == {"held": 0, "free": 1, "lost": 0, "not known": len(UNHELD)}
    text = agent.run("jobs", env=unheld).stdout
    assert re.search(r"^- +6 +[-0-9,; a-z]*holder not known[-0-9,; a-z]*; 5 free$", text, re.MULTILINE), text
    lines = [f"holder of {n} not known: {reason}" for n, reason in enumerate(REASONS)]
    assert [line for line in text.splitlines() if line.startswith("holder of ")] == lines
    parts = {"busy": 0, "idle": {"not known": len(UNHELD), "free": 1}, "gpus": len(UNHELD) + 1}
    for where in ((), (f"127.0.0.1:{port}",)):  # a page may be of the tick before

        def node(where=where):
            return json.loads(agent.run("top", "--json", *where, env=unheld).stdout)["nodes"][0]

        until(lambda node=node: parts.items() <= node().items())
    assert "GPUs 6: busy 0, free 1, not known 5" in agent.run("top", "--once", f"127.0.0.1:{port}", env=unheld).stdout
    running.stop()


def test_while_the_scheduler_gives_a_gpu_that_nobody_knows_none_is_free(agent, machine, until, tmp_path):
    state, mapping = str(tmp_path / "state"), tmp_path / "mapping"
    mapping.mkdir()
    (mapping / "GPU-12345678-1234-1234-1234-123456789abc").write_text("41337\n")
    machine |= {"STATE_DIRECTORY": state, "CHIPWATCH_COLLECTORS__JOBS__MAPPING": str(mapping)}
    machine["CHIPWATCH_SINKS__STDOUT__PATH"] = str(tmp_path / "points.jsonl")

    def devices():
        done = agent.run("jobs", "--json", env=machine)
        told = json.loads(done.stdout)["devices"] if done.returncode == 0 else []
        return told if told and told[0]["state"] == "busy" else None

    running = agent.start("--collector", "nvidia,jobs", "--interval", "0.2", env=machine)
    device = until(lambda: (found := devices()) and found[1]["state"] != "unseen" and found[1])
    assert (device["state"], "GPU-12345678-1234-1234-1234-123456789abc" in device["reason"]) == ("unknown", True)
    (mapping / "GPU-12345678-1234-1234-1234-123456789abc").unlink()
    until(lambda: (found := devices()) and found[1]["state"] == "free")
    running.stop()


def test_the_report_of_a_gpu_without_a_listed_process_does_not_call_it_unused(agent, unheld, tmp_path):
    path = tmp_path / "run.chipwatch"
    words = ("record", path, "--collector", "nvidia,jobs", "--interval", "0.2", "--level", "detailed")
    assert agent.run(*words, "--", "sleep", "4", env=unheld).returncode == 0
    page = tmp_path / "report.html"
    assert agent.run("report", path, "-o", page).returncode == 0
    assert "<td>sleep ended with 0<" in page.read_text(), "its name and code, without its words"
    rows = re.findall(r"<tr><td>GPU (\d)<(.*?)(?=<tr>|</table>)", page.read_text(), re.DOTALL)
    assert len({number for number, _ in rows}) == len(UNHELD) + 1
    assert {number for number, row in rows if "no process" in row} == {str(len(UNHELD))}


def record(job, since, **more):
    states = {"busy": 3000.0, "stalled": 500.0, "held": 500.0, "unseen": 100.0}
    return {
        "job": job, "kind": "slurm", "user": "ada", "since": since, "until": since + 4000, "seconds": states,
        "idle": {"data": 900.0, "held": 100.0}, "memory_max": 2.0**33, "energy": 7.2e6, "cost": 2.5, "cpu": 12000.0,
        "cpus": 4.0, "host_memory_max": 2**32,
    } | more  # fmt: skip


def test_jobs_that_have_ended_are_listed_without_a_running_agent(here, tmp_path):
    now = time.time()
    append(
        records_of(tmp_path), [record("41337", now - 5000), record("1", now - 90 * 86400), record("41340", now - 4500)]
    )
    head, *rows = here("jobs", "--since", "7d", "--spool", tmp_path).stdout.splitlines()
    words = "JOB USER STARTED ELAPSED GPU TIME GPU IDLE BY GPU MEMORY CPU MEMORY ENERGY COST"
    assert head.split() == words.split()
    assert [row.split()[0] for row in rows] == ["41337", "41340"]
    cells = ["1:06:40", "1:08:20", "75 %", "data 22 %", "8.0 GiB", "75 %", "4.0 GiB", "2.00 kWh", "$2.50"]
    assert re.split(r"\s{2,}", rows[0])[3:] == cells
    assert here("jobs", "--since", "1m", "--spool", tmp_path).stdout == "no job held an accelerator in this time\n"
    for time_of_it in ([], ["--since", "7d"]):
        chosen = here("jobs", *time_of_it, "--job", "41340", "--json", "--spool", tmp_path).stdout
        assert [job["cost"] for job in json.loads(chosen)["jobs"]] == [2.5]
    assert here("jobs", "--job", "9", "--spool", tmp_path).stdout == "no job 9 held an accelerator\n"


def test_two_forms_at_once_are_wrong_usage(here, tmp_path):
    for form in ("csv", "text"):
        done = here("jobs", "--json", "--format", form, "--spool", tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"--json and --format {form} are two forms: give one of them" in done.stderr
    assert here("jobs", "--json", "--format", "json", "--spool", tmp_path).stdout == '{\n "jobs": []\n}\n'


def test_jobs_are_exported_as_csv_and_the_end_that_nobody_saw_is_marked(here, tmp_path):
    append(records_of(tmp_path), [record('a "job", of one', time.time() - 5000, end_unseen=43.2)])
    (row,) = csv.DictReader(here("jobs", "--since", "7d", "--format", "csv", "--spool", tmp_path).stdout.splitlines())
    assert row["job"] == 'a "job", of one'
    assert (row["busy"], row["idle_data"], row["throttled"], row["energy"]) == ("3000.0", "900.0", "0", "7200000.0")
    assert row["end_unseen"] == "43.2"
    *_, note = here("jobs", "--since", "7d", "--spool", tmp_path).stdout.splitlines()
    assert note == 'job a "job", of one: the agent did not run at its end; up to 0:00:43 more is unseen'


def test_no_cell_of_the_csv_is_a_formula_of_a_spreadsheet(here, tmp_path):
    names = ["=1+1", "+a", "-2.5", "-x", "@sum", "\tx", "a=b", "=2"]
    append(records_of(tmp_path), [record(name, time.time() - 5000 + n) for n, name in enumerate(names)])
    text = here("jobs", "--since", "7d", "--format", "csv", "--spool", tmp_path).stdout
    cells = [row["job"] for row in csv.DictReader(text.splitlines())]
    assert cells == ["'=1+1", "'+a", "-2.5", "'-x", "'@sum", r"'\tx", "a=b", "'=2"]


def test_what_a_job_was_charged_over_a_stop_and_a_kill_is_the_time_that_passed(agent, machine, until, tmp_path):
    words = ("--collector", "nvidia,jobs", "--interval", "0.5", "--spool", tmp_path / "state")
    file = {"CHIPWATCH_SINKS__STDOUT__PATH": str(tmp_path / "points.jsonl")}

    def told():
        try:
            return ask(tmp_path / "state", "jobs")
        except NoAgent:
            return {"jobs": []}

    def seconds():
        return {state: spent for row in told()["jobs"] for state, spent in row["seconds"].items() if spent}

    for end in (signal.SIGTERM, signal.SIGKILL):
        running = agent.start(*words, env=machine | file)
        before = until(lambda: seconds().get("busy"))
        until(lambda least=before + 1: seconds().get("busy", 0.0) > least)
        running.stop(end)
        time.sleep(0.6)  # no agent runs for 1.2 s in all
    agent.start(*words, env=machine | file)
    until(lambda least=before + 2: seconds().get("busy", 0.0) > least)
    answer = told()
    (row,) = answer["jobs"]
    lines = map(json.loads, (tmp_path / "points.jsonl").read_text().splitlines())
    points = [line for line in lines if line["name"] == "job.gpu.time"]
    first = min(datetime.fromisoformat(point["start_time"]) for point in points)
    passed = answer["at"] - first.timestamp()
    assert sum(row["seconds"].values()) == pytest.approx(passed, abs=1.0 + 0.005 * passed), "two intervals"
    assert row["seconds"]["unseen"] > 1, "the time without an agent"
    sent, times = {}, []
    for point in points:  # over all three lives, without the first tick, in which the driver begins
        if point["time"] == points[0]["time"]:
            continue
        sent.setdefault(point["dims"]["state"], []).append((point["start_time"], point["value"]))
        times.append(datetime.fromisoformat(point["time"]).timestamp())
    assert all(values == sorted(values) for values in sent.values()), "no counter falls or begins again"
    increase = sum(values[-1][1] - values[0][1] for values in sent.values())
    assert increase == pytest.approx(times[-1] - times[0], rel=0.005, abs=0.1)  # a reading is a little after its tick
    assert {state for state, spent in row["seconds"].items() if spent} <= {"busy", "unseen", "stalled"}
