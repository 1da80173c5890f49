"""Wrong input of people and platforms gives one line that says what is wrong, and no traceback."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

FULL = Path("/dev/full")
FEW = ("--collector", "memory")
PLUGINS = """
from optionless import *

class Raises(Optionless, Collector):
    metrics = ()

    def __init__(self, config):
        raise RuntimeError("no\\n way \\x1b[2J")

    def collect(self, at):
        return []

class Exits(Raises):
    def __init__(self, config):
        raise SystemExit(0)

class Mute(Raises):
    def __init__(self, config):
        class Fault(Exception):
            def __str__(self):
                raise ValueError
        raise Fault

class Plain(Raises):
    class Config:
        pass

class Riddle(Raises):
    @dataclass(frozen=True)
    class Config:
        x: "Nowhere" = 1

class Bare:
    pass

class Idle(Collector):
    Config = Raises.Config

thing = 5

class Odd(Raises):
    metrics = 5

    def __init__(self, config):
        pass
"""
SINKS = """
from optionless import *

class Mute(BaseException):
    def __str__(self):
        raise ValueError

class Good(Optionless, Sink):
    limits = Limits(max_points=10, window=0, flush=0)

    def write(self, batch):
        return []

class Opens(Good):
    def open(self):
        raise Mute

class Exits(Good):
    def open(self):
        raise SystemExit(0)

class Shows(Good):
    def describe(self):
        raise GeneratorExit("a\\n\x1b[2J")

class Refuses(Good):
    def refuses(self, metric, dims):
        raise Mute

class Unlimited(Good):
    limits = 5

class Pointless(Good):
    limits = Limits(max_points=0)

class Boundless(Optionless, Sink):
    write = Good.write

class Foreign:
    Config, limits = Good.Config, Good.limits

class Needy(Good):
    @dataclass(frozen=True)
    class Config:
        file: str

class Writeless(Good):
    write = None
"""


def line_of(done, code):
    """Return the one line of standard error."""
    assert done.returncode == code, done.stderr
    assert re.fullmatch(r"chipwatch: [^\n]+\n", done.stderr), done.stderr
    return done.stderr.removeprefix("chipwatch: ").rstrip("\n")


@pytest.mark.parametrize(
    "name", ["CHIPWATCH_REGION", "CHIPWATCH_DIMS__SITE", "CHIPWATCH_CONFIG", "CHIPWATCH_SINKS__STDOUT__PATH"]
)
def test_a_variable_that_is_not_utf8_is_refused_by_name(here, name):
    done = here("--once", *FEW, env={name: os.fsdecode(b"/\xff")})
    assert line_of(done, 2) == rf"{name}: expected UTF-8, got '/\udcff'"


@pytest.mark.parametrize("name", ["CHIPWATCH_SPOOL", "CHIPWATCH_CONFIG", "CHIPWATCH_HEALTH"])
def test_the_health_command_refuses_it_as_well(here, name):
    done = here("status", "--health", env={name: os.fsdecode(b"/\xff")})
    assert line_of(done, 2) == rf"{name}: expected UTF-8, got '/\udcff'"


def test_other_variables_may_hold_any_bytes(agent):
    odd = dict.fromkeys(("PATH", "HOME", "AWS_REGION", "HOSTNAME", "POD_NAME", "TERM", "LANG"), os.fsdecode(b"/\xff"))
    done = agent.run("check", *FEW, "-d", "hostname", env=odd)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_argument_that_is_not_utf8_is_refused(agent):
    assert line_of(agent.run("check", "--region", b"\xff".decode(errors="surrogateescape")), 2).startswith(
        r"argument '\udcff': expected UTF-8"
    )


def test_an_argument_is_reported_on_one_line(agent):
    assert line_of(agent.run("--", "/no\n\x1b[2J"), 127) == r"/no\n\x1b[2J: command not found"


@pytest.mark.parametrize("command", ["status", "check"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("spool = 5", "FILE: spool: expected a path, got 5"),
        ('spool = "a\\u0000b"', r"FILE: spool: expected a path, got 'a\x00b'"),
        (f"a = {'[' * 5000}{']' * 5000}", "FILE: not a configuration: its values are nested too deep"),
        (f"a = {'{b=' * 5000}1{'}' * 5000}", "FILE: not a configuration: its values are nested too deep"),
    ],
)
def test_a_wrong_file_is_refused(here, tmp_path, command, text, line):
    file = tmp_path / "agent.toml"
    file.write_text(text)
    assert line_of(here(command, "--config", file), 2) == line.replace("FILE", str(file))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Raises", r"it cannot be built: RuntimeError: no\n way \x1b[2J"),
        ("Exits", "it cannot be built: SystemExit: 0"),
        ("Mute", "it cannot be built: Fault: its __str__ raises"),
        ("Plain", "not a plugin: <class 'theirs.Plain'> has no dataclass Config"),
        ("Riddle", "its Config cannot be read: NameError: name 'Nowhere' is not defined"),
        (
            "Bare",
            "not a plugin: <class 'theirs.Bare'> does not derive from Collector: write `from chipwatch import Collector` and `class Bare(Collector):`",
        ),
        ("Idle", "not a plugin: <class 'theirs.Idle'> has no method collect; chipwatch.Collector says what it does"),
        ("thing", "not a plugin: 5 is not a class"),
        ("Odd", "it cannot be built: TypeError: metrics: expected a tuple of Metric, got 5"),
    ],
)
def test_a_plugin_that_cannot_be_one_is_refused_by_name(here, others, name, line):
    others.add("theirs", PLUGINS, collectors=[("odd", name)])
    told = line_of(here("--once", "--collector", "odd"), 2)
    assert told == f"collectors.odd: {line}" or re.fullmatch(f"collectors.odd: {line}", told)


@pytest.mark.parametrize("command", ["check", "--once"])
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Refuses", "refuses fails: Mute: its __str__ raises"),
        ("Unlimited", "it cannot be built: TypeError: limits: expected Limits with max_points from 1, got 5"),
        ("Boundless", "it cannot be built: TypeError: limits: expected Limits with max_points from 1, got None"),
        (
            "Pointless",
            "it cannot be built: TypeError: limits: expected Limits with max_points from 1, got Limits(max_points=0, max_by",
        ),
        ("Needy", "file: it must be set: [sinks.odd] file, or CHIPWATCH_SINKS__ODD__FILE"),
        (
            "Writeless",
            "not a plugin: <class 'theirs.Writeless'> has write = None, which hides a method of Sink: give it another name",
        ),
        (
            "Foreign",
            "not a plugin: <class 'theirs.Foreign'> does not derive from Sink: write `from chipwatch import Sink` and `class Foreign(Sink):`",
        ),
    ],
)
def test_a_sink_that_is_not_as_the_contract_says_is_refused_by_name(here, others, *, name, line, command):
    others.add("theirs", SINKS, sinks=[("odd", name)])
    done = here(command, *FEW, "--sink", "odd", "--dim", "a=b")
    assert line_of(done, 2) in (f"sinks.odd: {line}", f"sinks.odd.{line}")


@pytest.mark.parametrize(
    ("name", "line"),
    [("Opens", "Mute: its __str__ raises"), ("Exits", "SystemExit: 0"), ("Shows", r"GeneratorExit: a\n\x1b[2J")],
)
def test_whatever_a_sink_raises_in_a_check_is_one_line(agent, others, name, line):
    others.add("theirs", SINKS, sinks=[("odd", name)])
    done = agent.run("check", *FEW, "--sink", "odd", env={"PYTHONPATH": others.folder})
    assert (done.returncode, done.stderr) == (1, "")
    assert [row for row in done.stdout.splitlines() if row.startswith("sink")] == [
        f"sink       odd          FAILED   sinks.odd: it fails: {line}"
    ]


def test_whatever_a_collector_raises_in_a_check_is_one_line(agent, others):
    module = (
        PLUGINS.replace('raise RuntimeError("no\\n way \\x1b[2J")', "pass")
        + "    def open(self, given):\n        1 / 0\n"
    )
    others.add("theirs", module.replace("metrics = 5", "metrics = ()"), collectors=[("odd", "Odd")])
    done = agent.run("check", "--collector", "odd", env={"PYTHONPATH": others.folder})
    assert (done.returncode, done.stderr) == (1, "")
    assert "collector  odd          FAILED   ZeroDivisionError: division by zero\n" in done.stdout


def test_a_credential_process_that_is_missing_is_one_line(agent, tmp_path):
    (tmp_path / "config").write_text("[default]\ncredential_process = /no/such/program\n")
    env = {"AWS_CONFIG_FILE": tmp_path / "config", "AWS_EC2_METADATA_DISABLED": "true"}
    done = agent.run("check", *FEW, "--sink", "cloudwatch", "--region", "eu-west-1", env=env)
    assert (done.returncode, done.stderr) == (1, "")
    line = next(row for row in done.stdout.splitlines() if row.startswith("sink"))
    assert line.endswith("FAILED   AWS credentials: /no/such/program: No such file or directory")


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit('bye')", "SystemExit: bye"),
        (
            "from chipwatch import Needs; Needs(libraries='grpc')",
            "TypeError: Needs.libraries: expected names, such as ('a',), got 'grpc'",
        ),
        ("def f(:", "SyntaxError: invalid syntax (theirs.py, line 1)"),
    ],
)
def test_a_plugin_whose_module_fails_is_refused_by_name(here, others, module, line):
    others.add("theirs", module + "\n", sinks=[("odd", "Odd")])
    done = here("check", "--sink", "odd")
    assert line_of(done, 2) == f"sinks.odd: its import fails: {line}"


LEVEL = """
from chipwatch import gauge
gauge("x.load", "1", "The load.", level="detailed")
"""
REFUSED_LEVEL = (
    "collectors.theirs: its import fails: TypeError: x.load: expected a Level, such as Level.DETAILED, got 'detailed'"
)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (PLUGINS, "collector theirs cannot be loaded: module 'theirs' has no attribute 'Nobody'"),
        ("import bad_thing\n", "collector theirs cannot be loaded: No module named 'bad_thing'"),
        (LEVEL, REFUSED_LEVEL),
    ],
)
def test_a_collector_that_nobody_named_costs_only_itself(agent, others, module, line):
    others.add("theirs", module, collectors=[("theirs", "Nobody")])
    env = {"PYTHONPATH": others.folder}
    done = agent.run("--once", "--interval", "0.1", env=env)
    assert done.returncode == 0
    assert '"name":"memory.used"' in done.stdout.replace(" ", "")
    assert re.fullmatch(rf"\S+ chipwatch: {re.escape(line)}; it is left out\n", done.stderr)
    checked = agent.run("check", env=env)
    assert (checked.returncode, checked.stderr) == (1, "")
    assert f"collector  theirs       FAILED   {line}\n" in checked.stdout
    done = agent.run("--once", "--collector", "theirs", env=env)
    assert done.returncode in (1, 2)
    assert done.stderr == f"chipwatch: {line}\n"


NAN = """
from optionless import *

LOAD = gauge("x.load", "1", "The load.")

class Nan(Optionless, Collector):
    metrics = (LOAD,)

    def collect(self, at):
        yield LOAD.point(at, float("nan"))
"""


def test_a_run_without_a_finite_value_names_the_one_that_is_not(agent, others):
    others.add("theirs", NAN, collectors=[("theirs", "Nan")])
    words = ("--collector", "theirs")
    done = agent.run("--once", "--interval", "0.1", *words, env={"PYTHONPATH": others.folder})
    assert done.returncode == 1
    line = "x.load is nan: what is not finite is left out"
    assert f"stdout: nothing was delivered: theirs: {line}\n" in done.stderr
    checked = agent.run("check", *words, env={"PYTHONPATH": others.folder})
    assert f"collector  theirs       IN PART  0 series; in part: {line}\n" in checked.stdout


def test_a_metric_that_is_not_declared_is_a_fault_of_the_check(agent, others):
    undeclared = NAN.replace("metrics = (LOAD,)", "metrics = ()").replace('float("nan")', "1.0")
    others.add("theirs", undeclared, collectors=[("theirs", "Nan")])
    checked = agent.run("check", "--collector", "theirs", env={"PYTHONPATH": others.folder})
    line = "`metrics` does not declare x.load so: `list` and `plan` do not know it"
    assert f"collector  theirs       IN PART  1 series; in part: {line}\n" in checked.stdout


@pytest.mark.parametrize(("command", "name"), [("list", "Riddle"), ("config", "missing")])
def test_what_is_printed_of_all_plugins_leaves_such_a_one_out(agent, others, command, name):
    others.add("theirs", PLUGINS, collectors=[("odd", name)])
    done = agent.run(command, env={"PYTHONPATH": others.folder})
    assert done.returncode == 0
    assert len(re.findall("collectors.odd is left out: ", done.stdout + done.stderr)) == 1


# -- standard streams -----------------------------------------------------------------------------------------------

PRINTING = ("list", "check --collector memory", "plan --collector memory", "--help")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", PRINTING)
def test_a_standard_output_that_takes_nothing_is_reported_in_one_line(agent, words):
    with FULL.open("w") as full:
        done = agent.run(*words.split(), stdout=full, stderr=-1, capture_output=False)
    assert line_of(done, 1) == "standard output: the disk is full (No space left on device)"


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_points_that_standard_output_does_not_take_are_reported_without_a_traceback(agent):
    with FULL.open("w") as full:
        done = agent.run("--once", *FEW, stdout=full, stderr=-1, capture_output=False)
    assert done.returncode == 1
    (cannot,) = done.stderr.splitlines()
    assert re.search(
        r"stdout: cannot send \d+ points?: standard output: the disk is full \(No space left on dev", cannot
    )
    with FULL.open("w") as full:
        assert agent.run("--bogus", stdout=full, stderr=full, capture_output=False).returncode == 2


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        ("--help", ">&-"),
        ("--bogus", "2>&-"),
        ("--bogus", "<&- >&- 2>&-"),
        ("status --health --spool /nowhere", "2>&-"),
        ("check --collector memory", ">&-"),
        ("check --collector memory", "<&- >&- 2>&-"),
    ],
)
def test_a_closed_standard_stream_gives_no_traceback_and_no_other_file_its_output(agent, closed, words):
    command = f"{shlex.join(agent.command)} {words}"
    done = subprocess.run(["sh", "-c", f"{command} {closed}"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (2 if words == "--bogus" else 1)
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or ">&-" not in closed.split()
    assert done.stderr == "" or "2>&-" not in closed.split()


def test_a_file_of_the_agent_never_takes_the_number_of_a_closed_standard_stream(agent, tmp_path):
    command = f"{shlex.join(agent.command)} --sink cloudwatch --region us-east-1 --collector memory --spool {tmp_path} --duration 3"
    program = f"{command} <&- >&- 2>&- & sleep 2; ls -l /proc/$!/fd; wait"
    done = subprocess.run(
        ["sh", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=agent.env(AWS_EC2_METADATA_DISABLED="true"),
    )
    first = dict(re.findall(r" ([012]) -> (\S+)", done.stdout))
    assert first == dict.fromkeys("012", "/dev/null"), done.stdout


# -- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (300_000, "--once"),
        (300_000, "check"),
        (300_000, "--once --sink cloudwatch --region us-east-1 --dim rack=7"),
        (60_000, "--once --collector memory"),
        (50_000, "check"),
    ],
)
def test_with_little_memory_it_works_or_says_so_in_one_line(agent, limit, words, tmp_path):
    command = f"ulimit -v {limit}; exec {shlex.join(agent.command)} {words}"
    env = agent.env(CHIPWATCH_SPOOL=tmp_path, AWS_EC2_METADATA_DISABLED="true")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1


# -- secrets ----------------------------------------------------------------------------------------------------------

CLOUD = ("--sink", "cloudwatch", *FEW, "--region", "us-east-1")
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def told(agent, tmp_path):
    """Run a command; return all that it told."""

    def run(*words, **env):
        done = agent.run(*words, "--spool", tmp_path / "spool", env={"HOME": tmp_path, **env})
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize("command", ["check", "run --once", "plan"])
def test_the_password_of_an_endpoint_is_not_told(told, command):
    text = told(*command.split(), *CLOUD, "--endpoint-url", "http://user:S3CRET@127.0.0.1:1", **KEYS)
    assert "S3CRET" not in text
    assert "127.0.0.1:1" in text or command == "plan"


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://user:S3CRET/x@127.0.0.1:1", "not a valid URL"), ("http://u:S3CRET@h:99999", "not a valid URL"),
        ("http://a..b/S3CRET", "expected http://HOST:PORT, or https"), ("user:S3CRET@127.0.0.1:1", "expected http://HOST:PORT, or https"),
        ("http://u:S3 CRET@h", "it has characters that must be percent-encoded"),
    ],
)  # fmt: skip
def test_an_endpoint_that_is_not_an_address_is_refused_and_not_printed(here, url, fault):
    done = here("check", *CLOUD, "--endpoint-url", url, env=KEYS)
    assert line_of(done, 2) == f"--endpoint-url: {fault}"


@pytest.mark.parametrize("proxy", ["user:S3CRET@127.0.0.1:1", "http://user:S3@CRET@127.0.0.1:1"])
def test_the_password_of_a_proxy_is_not_told(told, proxy):
    text = told("run", "--once", *CLOUD, **KEYS, HTTPS_PROXY=proxy)
    assert "the proxy 127.0.0.1:1: nothing listens there (Connection refused)" in text
    assert "S3" not in text
    assert "CRET" not in text


@pytest.mark.parametrize(
    ("command", "end"), [("check", "exit 1"), ("run --once", "exit 0"), ("run --once --log-level debug", "exit 1")]
)
def test_what_a_credential_process_prints_is_not_told(told, tmp_path, command, end):
    program = tmp_path / "credentials"
    program.write_text(f"#!/bin/sh\necho S3CRET\necho S3CRET >&2\necho S3CRET >&2\n{end}\n")
    program.chmod(0o700)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    text = told(*command.split(), *CLOUD, AWS_CONFIG_FILE=tmp_path / "config", AWS_EC2_METADATA_DISABLED="true")
    assert "cloudwatch" in text
    assert "S3CRET" not in text
