"""The messages of a run on standard error, by the real command and a CloudWatch on loopback."""

import os
import pty
import re
import signal
import subprocess
import time

import pytest
from tests.doubles.cloudwatch import CloudwatchDouble, environment
from tests.load import seconds_since

LONG = 60.0
FEW = ("--collector", "cpu", "--collector", "memory")
QUICK = (*FEW, "--interval", "0.2", "--window", "0.4", "--flush", "0.2")
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z chipwatch: ")


@pytest.fixture
def cloud():
    """A CloudWatch that refuses connections until it listens."""
    with CloudwatchDouble(listen=False) as double:
        yield double


@pytest.fixture
def start(agent, cloud, tmp_path):
    """Start an agent that sends to `cloud`."""

    def start(*words, env=None, **options):
        sink = ("--sink", "cloudwatch", "--region", "us-east-1", "--endpoint-url", cloud.url, "--dim", "rack=7")
        given = environment() | (env or {})
        return agent.start(*sink, "--spool", tmp_path / "spool", *words, env=given, **options)

    return start


def logged(running):
    """Return the lines so far, without their time, which each has."""
    lines = running.errors().splitlines()
    assert all(STAMP.match(line) for line in lines), lines
    return [STAMP.sub("", line) for line in lines]


def wait_for(until, running, text):
    return until(lambda: next((line for line in logged(running) if text in line), None), LONG)


def test_a_run_whose_state_folder_cannot_be_used_says_where_its_points_are(start, cloud, until, tmp_path):
    (tmp_path / "spool").write_text("a file")
    cloud.listen()
    running = start(*QUICK)
    assert "unsent points are kept in memory only" in wait_for(until, running, "unsent points")
    assert running.stop()[0] == 0


def test_a_run_says_what_it_collects_where_it_sends_how_to_look_and_how_it_ended(start, cloud, until, tmp_path):
    cloud.listen()
    running = start(*QUICK)
    first = wait_for(until, running, "accepted")
    time.sleep(1.0)
    collects, sends, *rest = logged(running)
    assert re.fullmatch(r"[\d.]+ collects cpu \(\d+ CPUs?\), memory \([\d.]+ GiB\) every 0.2 s", collects)
    assert sends == (
        f"cloudwatch: namespace Chipwatch, endpoint {cloud.url}, region us-east-1, a point every 0.4 s for each series;"
        f" first points in about 0.6 s; unsent points are kept in {tmp_path / 'spool'} (now 0)"
    )
    assert re.fullmatch(
        r"cloudwatch: first \d+ points? accepted; see CloudWatch > All metrics > Chipwatch > rack", first
    )
    assert rest == [first], "steady health is silent"
    assert running.stop()[0] == 0
    ledger = logged(running)[-1]
    found = re.fullmatch(r"stopping: collected ([\d,]+), sent ([\d,]+), rejected 0, kept 0", ledger)
    assert found, ledger
    assert found[1] == found[2] == f"{len(cloud.datums):,}"


def test_an_outage_is_reported_at_its_beginning_and_at_its_end(start, cloud, until):
    running = start(*QUICK)
    trouble = wait_for(until, running, "cannot send")
    assert re.fullmatch(
        r"cloudwatch: cannot send, \d+ points? kept, next try within 60 s: .*: nothing listens there .Connection refused.",
        trouble,
    )
    cloud.listen()
    wait_for(until, running, "caught up")
    _, _, again, first, caught_up = [line for line in logged(running) if line != trouble]
    assert re.fullmatch(r"cloudwatch: sending again after [\d.]+ s; \d+ points kept, 0 lost", again)
    assert first.startswith("cloudwatch: first ")
    assert re.fullmatch(r"cloudwatch: caught up: \d+ points in [\d.]+ s", caught_up)


def test_unsent_points_are_reported_at_the_end_and_at_the_next_start(start, cloud, until):
    running = start(*QUICK)
    wait_for(until, running, "cannot send")
    assert running.stop()[0] == 0
    kept = re.search(r"stopping: collected (\d+), sent 0, rejected 0, kept \1$", logged(running)[-1])
    assert kept, logged(running)
    cloud.listen()
    running = start(*QUICK)
    wait_for(until, running, "caught up")
    assert logged(running)[1].endswith(f"(now {kept[1]})")


def test_first_points_are_there_20_seconds_after_the_start_with_all_defaults(start, cloud, until):
    """With the defaults only the announcement is tested; with shorter times, that it is kept."""
    cloud.listen()
    said = re.search(r"first points in about ([\d.]+) s", wait_for(until, start(*FEW), "first points in about"))
    assert float(said[1]) < 20.0
    begun = time.monotonic()
    running = start(*FEW, "--interval", "0.5", "--window", "1", "--flush", "0.5")
    said = re.search(r"first points in about ([\d.]+) s", wait_for(until, running, "first points in about"))
    wait_for(until, running, "accepted")
    assert seconds_since(begun) < float(said[1]) + 3.0


# -- scripts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("--once",), ("--duration", "1")])
def test_a_script_hears_nothing_when_all_went_well_and_all_of_it_on_request(agent, words):
    quiet = agent.run(*words, *FEW, "--interval", "0.2")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    reported = agent.run(*words, "-v", *FEW, "--interval", "0.2")
    first, *_, last = reported.stderr.splitlines()
    assert re.search(r"Z chipwatch: [\d.]+ collects cpu ", first)
    assert "chipwatch: stopping: collected" in last


def test_points_without_the_name_of_their_machine_give_a_warning_at_the_start(agent, cloud):
    cloud.listen()
    words = ("--once", *FEW, "--sink", "cloudwatch", "--region", "us-east-1", "--endpoint-url", cloud.url)
    warning = "cloudwatch: points do not say which machine they are of; add --common-dims instance_id"
    assert warning in agent.run(*words, env=environment()).stderr
    assert agent.run(*words, "--dim", "rack=7", env=environment()).stderr == ""


def test_a_scraped_sink_says_where_it_serves_and_how_much(agent, until):
    env = {"CHIPWATCH_SINKS__PROMETHEUS__LISTEN": "127.0.0.1:0"}
    running = agent.start("--sink", "prometheus", *FEW, "--interval", "0.1", env=env)
    until(lambda: "serves" in running.errors())
    time.sleep(1.0)
    assert re.search(
        r"prometheus: serves http://127.0.0.1:\d+/metrics; \d+ series, not scraped yet\n", running.errors()
    )
    assert "accepted" not in running.errors()


# -- forms ----------------------------------------------------------------------------------------------------------


def test_under_journald_each_line_has_its_priority_and_no_time(agent, tmp_path):
    with (tmp_path / "journal").open("w+") as journal:
        status = os.fstat(journal.fileno())
        env = agent.env(JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}")
        words = [*agent.command, "--once", "-v", "--collector", "cpu", "--collector", "ipu"]
        subprocess.run(words, env=env, stdout=subprocess.DEVNULL, stderr=journal, timeout=LONG, check=False)
        lines = (tmp_path / "journal").read_text().splitlines()
    assert len([line for line in lines if line.startswith("<3>chipwatch: ipu: no IPU")]) == 1
    assert len([line for line in lines if line.startswith("<6>chipwatch: ")]) == len(lines) - 1 == 2


# -- SIGHUP ---------------------------------------------------------------------------------------------------------


def test_a_new_configuration_takes_the_place_of_the_old_one_and_a_bad_one_is_refused(start, cloud, until, tmp_path):
    cloud.listen()
    file = tmp_path / "chipwatch.toml"
    file.write_text('collector = ["cpu"]\n')
    running = start("--config", file, *QUICK[4:])
    wait_for(until, running, "accepted")
    running.process.send_signal(signal.SIGHUP)
    wait_for(until, running, "the configuration has not changed")
    file.write_text('collector = ["cqu"]\n')
    running.process.send_signal(signal.SIGHUP)
    refused = wait_for(until, running, "the old one goes on")
    assert "cqu" in refused
    sent = len(cloud.datums)
    until(lambda: len(cloud.datums) > sent)
    file.write_text('collector = ["memory"]\nlevel = "detailed"\n')
    running.process.send_signal(signal.SIGHUP)
    wait_for(until, running, "collects memory ")
    until(lambda: any(datum.name.startswith("memory.") for datum in cloud.datums))
    assert not any("Traceback" in line for line in logged(running))
    assert running.stop()[0] == 0
    assert [line for line in logged(running) if line.startswith("stopping")][-1].endswith("kept 0")


def test_a_run_that_prints_says_neither_where_it_prints_nor_how_often_it_reads_nothing(agent, until):
    running = agent.start("-v", *FEW, "--interval", "0.2")
    wait_for(until, running, "collects ")
    assert running.stop()[0] == 0
    collects, stopping = logged(running)
    assert stopping.startswith("stopping: ")
    running = agent.start("-v", "--collector", "nvidia", "--interval", "0.2", env={"LD_LIBRARY_PATH": ""})
    wait_for(until, running, "collects ")
    assert running.stop()[0] == 0
    assert [line for line in logged(running) if "collects" in line] == [
        collects.split()[0] + " collects nothing so far"
    ]


def test_many_changes_at_once_end_in_a_run_of_the_last_one(start, cloud, until, tmp_path):
    cloud.listen()
    file, other = tmp_path / "chipwatch.toml", tmp_path / "other.toml"
    file.write_text('collector = ["cpu"]\n')
    running = start("--config", file, *QUICK[4:])
    wait_for(until, running, "accepted")
    for level in ("detailed", "basic") * 20:
        other.write_text(f'collector = ["cpu"]\nlevel = "{level}"\n')
        other.replace(file)
        running.process.send_signal(signal.SIGHUP)
        time.sleep(0.02)
    other.write_text('collector = ["memory"]\n')
    other.replace(file)
    running.process.send_signal(signal.SIGHUP)
    wait_for(until, running, "collects memory ")
    assert running.process.poll() is None
    assert running.stop()[0] == 0


def test_a_pipe_in_the_place_of_the_configuration_is_refused_and_the_run_can_be_stopped(start, cloud, until, tmp_path):
    cloud.listen()
    file = tmp_path / "chipwatch.toml"
    file.write_text('collector = ["cpu"]\n')
    running = start("--config", file, *QUICK[4:])
    wait_for(until, running, "accepted")
    file.unlink()
    os.mkfifo(file)
    running.process.send_signal(signal.SIGHUP)
    assert "cannot be read again" in wait_for(until, running, "the old one goes on")
    assert running.stop()[0] == 0


def test_a_terminal_that_is_closed_ends_the_run(agent):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*agent.command, "-v", *FEW, "--interval", "0.2"],
        env=agent.env(), stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # noqa: PLW1509
    )  # fmt: skip
    os.close(theirs)
    try:
        logged = b""
        while b"collects" not in logged:
            logged += os.read(ours, 1 << 16)
        os.close(ours)  # the kernel sends SIGHUP to whose terminal it was
        assert process.wait(LONG) == 0
    finally:
        process.kill()
        process.wait()
