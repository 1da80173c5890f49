"""`chipwatch top --once`, and the screen of `chipwatch top HOST`."""

import csv
import io
import json
import os
import re
import socket
import subprocess
import sys

import pytest
from tests.agent.show.top.conftest import sit  # noqa: F401  # a fixture
from tests.doubles.fleet import FINE, PAGE, FleetDouble, answer
from tests.doubles.promql import PromqlDouble

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="every address of 127.0.0.0/8 is this machine's on Linux"
)


def bad_second(address):
    if address.endswith(".4"):
        return answer(b"<html>log in</html>")
    return answer(PAGE.replace(b'"41337"', b'"=1+2"') if address.endswith(".2") else FINE)


def test_nodes_are_printed_as_table_json_and_csv(here):
    with FleetDouble(bad_second) as double:
        words = ("top", "--once", f"127.0.0.[1-2]:{double.port}", "127.0.0.3:1")
        done = here(*words)
        assert (done.returncode, done.stderr) == (1, "chipwatch: 1 of 3 nodes is silent\n")
        assert "nothing listens there (Connection refused)" in done.stdout
        text = done.stdout.splitlines()
        assert text[:2] == ["3 nodes: 1 silent, 1 not fit, 1 answer", "GPUs 16: busy 13, lost 1, free 2"]
        names = ["127.0.0.3:1", *(f"127.0.0.{n}:{double.port}" for n in (2, 1))]
        assert [line.split()[0] for line in text[3:]] == names
        nodes = json.loads(here(*words, "--json").stdout)["nodes"]
        assert nodes[1]["lost"] == 1
        assert "verdict" not in nodes[2]
        rows = [*csv.DictReader(io.StringIO(here(*words, "--csv").stdout))]
        assert (rows[1]["jobs"], rows[2]["jobs"], rows[2]["busy"]) == ("'=1+2", "41337", "7")
        done = here("top", "--json", "--verdict", "Not-Fit", words[2])
        assert (done.returncode, done.stderr) == (3, "chipwatch: 1 of 1 nodes is not fit\n")
        assert [node["lost"] for node in json.loads(done.stdout)["nodes"]] == [1]
        groups = json.loads(here(*words, "--json", "--by", "job").stdout)["groups"]
        assert [(group["group"], len(group["nodes"])) for group in groups] == [("-", 1), ("=1+2", 1), ("41337", 1)]
        rows = here(*words, "--by", "verdict").stdout.splitlines()[2:]
        assert [row.split()[0] for row in rows[:3]] == ["verdict", "silent:", "127.0.0.3:1"]
        only = json.loads(here(*words, "--json", "--job", "41337").stdout)["nodes"]
        assert [node["node"] for node in only] == [nodes[2]["node"]]
        answering = f"127.0.0.1:{double.port}"
        assert here("top", "--once", answering).returncode == 0
        done = here("top", "--once", answering, "--verdict", "not-fit")
        assert (done.returncode, done.stderr) == (1, "chipwatch: no node has what was asked for\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [(["top", "--once", "-oProxyCommand=x"], "-oProxyCommand: no such option"),
     (["top", "--once", "n1", "--prometheus", "http://x"], "HOST, --prometheus: give one of them"),
     (["top", "--once", "n1", "--token-file", "a", "--password-file", "b"], "give one of them"),
     (["top", "--once", "n1", "--verdict", "well"], "--verdict well: no such choice"),
     (["top", "--once", "n1", "--by", "a b"], "--by a b: expected job, user, verdict, or the name of a label"),
     (["top", "n1"], "`chipwatch top --once` prints the nodes once")],
)  # fmt: skip
def test_wrong_words_are_named(here, words, error):
    done = here(*words)
    assert done.returncode == 2
    assert error in done.stderr


def test_this_machine_is_a_line_by_its_agent_and_a_line_every_while(agent, until):
    env = {"STATE_DIRECTORY": agent.folder / "state"}
    assert json.loads(agent.run("top", "--json", env=env).stdout)["nodes"][0]["error"].startswith("no agent answers")
    running = agent.start("--sink", "prometheus", "--collector", "cpu,memory", "--interval", "0.2",
                          env=env | {"CHIPWATCH_SINKS__PROMETHEUS__LISTEN": "127.0.0.1:0"})  # fmt: skip
    until(lambda: "cpu" in json.loads(agent.run("top", "--json", env=env).stdout)["nodes"][0], 60)
    node = json.loads(agent.run("top", "--json", env=env).stdout)["nodes"][0]
    assert (node["delivery"], "gpus" in node) == ("ok", False)
    assert running.stop()[0] == 0


def test_the_screen_shows_nodes_opens_one_and_filters(sit):  # noqa: F811
    with FleetDouble(bad_second) as double:
        seat = sit(f"127.0.0.[1-4]:{double.port}", "--interval", "0.5", size=(80, 24))
        seat.shows("4 nodes: 1 silent, 1 not fit, 2 answer", "127.0.0.2", "7/8")
        seat.press("\r")  # chooses the first node
        seat.shows("Enter opens the chosen node")
        seat.press("\r")
        seat.shows("q: back to the fleet", "! its page has no metrics that are known here", f"127.0.0.4:{double.port}")
        seat.press("q")
        seat.shows("4 nodes", "enter open")
        seat.press("\x1b[B\r")
        seat.shows("q: back to the fleet", "lost", "90", f"127.0.0.2:{double.port}")
        seat.press("q")
        seat.shows("4 nodes", "enter open")
        seat.press("/0.0.3\r")
        seat.until(lambda text: "127.0.0.3" in text and "127.0.0.1:" not in text)
        seat.press("\x1b?")
        seat.shows("A dash is a figure that is not known")
        seat.press("?q")
        assert seat.end() == 0


def test_the_screen_of_a_store_says_what_is_wrong_with_it(sit):  # noqa: F811
    with PromqlDouble(status=503, body=b"starting") as double:
        seat = sit("--prometheus", double.url, "--interval", "0.5")
        seat.shows("! 127.0.0.1: status 503: starting")
        sample = ({"__name__": "gpu_utilization_ratio", "gpu": "0", "instance": "n1:9465"}, 0.5)
        double.answers = {key: [sample] for key in ("gpu_utilization_ratio", "instance=~")}
        double.status, double.body = 200, None
        seat.shows("n1", "1/1")
        seat.press("\x1b[B\r")
        seat.until(lambda text: "q: back to the fleet" in text and re.search(r"^ *0 .*\b50\b", text, re.MULTILINE))
        assert any('instance=~"n1(:[0-9]+)?"' in query for query in double.queries)
        seat.kill()
        assert seat.end() == 128 + 15


def seat_of_ssh(sit, folder, opened):  # noqa: F811
    """Return the screen of a node that is asked by ssh, and whose terminal is the shell's commands `opened`."""
    line = json.dumps({"nodes": [{"node": "x", "seen": 5.0, "verdict": "fit", "gpus": 8, "busy": 3}]})
    program = f"case \"$*\" in *' top') {opened};; *) while echo '{line}'; do sleep 0.2; done;; esac"
    (folder / "ssh").write_text(f"#!/bin/sh\n{program}\n")
    (folder / "ssh").chmod(0o755)
    seat = sit("ssh://n1", "--interval", "0.5", env={"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})
    seat.shows("3/8", "fit")
    return seat


def test_a_terminal_of_ssh_shows_a_node_that_is_asked_by_ssh(sit, tmp_path):  # noqa: F811
    seat = seat_of_ssh(sit, tmp_path, 'echo opened "$@"; sleep 1')
    seat.press("\x1b[B\r")
    seat.until(lambda _: b"opened -T" in seat.sent and b"-t -- n1 chipwatch top" in seat.sent)
    seat.shows("3/8")
    seat.press("q")
    assert seat.end() == 0


def test_what_ssh_says_is_shown_until_a_key_where_a_node_cannot_be_opened(sit, tmp_path):  # noqa: F811
    seat = seat_of_ssh(sit, tmp_path, "echo 'n1: Connection refused' >&2; exit 255")
    seat.press("\x1b[B\r")
    seat.until(lambda _: b"ssh ended with 255; press Enter to go back to the fleet" in seat.sent)
    assert b"n1: Connection refused" in seat.sent
    seat.press("\r")
    seat.until(lambda _: seat.sent.count(b"\x1b[?1049h") == 2)
    seat.shows("3/8")
    seat.press("q")
    assert seat.end() == 0


def test_a_store_that_does_not_answer_is_an_error(here):
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = here("top", "--once", "--timeout", "0.2", "--prometheus", f"http://127.0.0.1:{server.getsockname()[1]}")
    assert (done.returncode, done.stderr) == (1, "chipwatch: 127.0.0.1: no answer yet\n")


def test_a_store_cannot_draw_on_the_terminal_nor_end_a_command_by_a_bug(here):
    labels = {"__name__": "gpu_utilization_ratio", "gpu": "0", "instance": "n1\x1b[31m\n:9465"}
    with PromqlDouble({"gpu_utilization_ratio": [(labels, 0.5)]}) as double:
        assert here("top", "--once", "--prometheus", double.url).stdout.splitlines()[-1].split()[0] == "n1\\x1b[31m"
    job = {"exported_job": "7\x1b[2J", "user": "a\x1b[2J", "state": "b\x1b[2J", "cause": "c\x1b[2J"}
    with PromqlDouble({"job_": [(job, 1000.0)]}) as double:
        assert "\x1b" not in here("jobs", "--prometheus", double.url).stdout
        double.answers = {"job_": [(job, 1e300)]}
        done = here("jobs", "--prometheus", double.url)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    for labels in (b"[]", b'{"instance":5}'):
        body = b'{"status":"success","data":{"result":[{"metric":%s,"value":[1,"1"]}]}}' % labels
        with PromqlDouble(status=200, body=body) as double:
            for command in (("top", "--once"), ("jobs",)):
                done = here(*command, "--prometheus", double.url)
                assert (done.returncode, done.stderr.count("\n")) == (1, 1)
                assert "is the URL right?" in done.stderr


def test_jobs_of_a_store_are_printed(here):
    job = {"exported_job": "41337", "job": "chipwatch", "user": "ada"}
    answers = {"min_over_time(timestamp": [(job, 1000.0)], "max_over_time(timestamp": [(job, 4600.0)],
               "increase(job_gpu_time": [({**job, "state": "busy"}, 7200.0)]}  # fmt: skip
    with PromqlDouble(answers) as double:
        done = here("jobs", "--prometheus", double.url, "--format", "csv")
        assert done.stdout.splitlines()[1].startswith("41337,")
        assert not any("[7200s]" in query for query in double.queries)
        assert "2:00:00" in here("jobs", "--prometheus", double.url, "--since", "2h").stdout
        assert any("[7200s]" in query for query in double.queries)


def test_a_job_is_one_line_over_its_nodes_and_a_silent_node_is_named(here):
    with FleetDouble(bad_second) as double:
        words = ("jobs", f"127.0.0.[1,3-5]:{double.port}", "--job", "41337")
        done = here(*words)
        assert (done.returncode, "the parts of 1 node are unknown: 127.0.0.4:" in done.stderr) == (1, True)
        head, row, note = done.stdout.splitlines()
        cells = dict(zip(re.split(r"\s{2,}", head), re.split(r"\s{2,}", row), strict=True))
        assert (cells["NODES"], cells["GPU TIME"], cells["STARTED"]) == ("3", "0:01:47", "-")
        assert re.fullmatch(r"127\.0\.0\.[135]:\d+ throttled 9 %", cells["WORST"])
        (job,) = csv.DictReader(io.StringIO(here(*words, "--format", "csv").stdout))
        assert float(job["busy"]) == pytest.approx(3 * 32.372126813)
        assert (len(json.loads(job["nodes"])), [*json.loads(job["missing"])]) == (3, [f"127.0.0.4:{double.port}"])
        assert note.startswith(f"job 41337: incomplete: 127.0.0.4:{double.port} (its page has no metrics")
        assert here(*words[:2], "--user", "bob").stdout == "no job held an accelerator on the nodes that answered\n"
        assert "a page has only jobs" in here(*words, "--since", "7d").stderr


def test_the_records_of_nodes_by_ssh_make_one_record(here, tmp_path):
    record = '{"job": "7", "kind": "slurm", "since": 1000, "until": 5000, "seconds": {"busy": 4000.0}, "more": 1}'
    (tmp_path / "ssh").write_text(
        "#!/bin/sh\ncase \"$*\" in *n3*) echo 'n3: Connection refused' >&2; exit 255;; *n4*) echo '{}';; "
        f"*' jobs --json --since 7200') echo Welcome; echo '{{\"jobs\": [{record}]}}';; esac\n"
    )
    (tmp_path / "ssh").chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = here("jobs", "--ssh", "n[1-4]", "--since", "2h", "--json", env=env)
    (job,) = json.loads(done.stdout)["jobs"]
    assert (done.returncode, job["nodes"], job["seconds"]) == (1, ["n1", "n2"], {"busy": 8000.0})
    assert job["missing"].pop("n3").startswith("ssh gave no whole list (")
    assert job["missing"] == {"n4": "its chipwatch has another version"}


def test_a_screen_of_one_machine_and_a_run_load_nothing_of_a_fleet():
    script = (
        "import sys; from chipwatch.commands.command_line import parse; given = parse(['top']);"
        "from chipwatch.commands import run, screen;"
        "print([name for name in sys.modules if 'fleet' in name or name == 'asyncio'], given.hosts)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"
