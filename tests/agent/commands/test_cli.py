import inspect
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from chipwatch.base.version import build
from chipwatch.commands import cli
from chipwatch.commands.cli_options import COMMANDS, FIRST
from chipwatch.commands.command_line import flags, parse
from chipwatch.commands.parser import parser
from chipwatch.config import plugins
from chipwatch.config.convert import options_of, values_of
from chipwatch.config.load import load, plugin_config, sink_options
from chipwatch.config.naming.profiles import PROFILES
from chipwatch.config.options import CollectorOptions, Config, SinkOptions

INTERVAL = "expected a time from 0.1 to 86400 s, such as 5, 500ms or 1m"


@pytest.fixture
def _logging_as_before():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def run_main(capsys, tmp_path, _logging_as_before):
    """Run the command line in this process; return the exit code and the one line on standard error."""

    def run(*words, file: str | None = None):
        if file is not None:
            path = tmp_path / "agent.toml"
            path.write_text(file)
            words = ("--config", str(path), *words)
        if words[0].startswith("-"):
            words = ("--duration", "0", *words)  # if it should run after all
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1, printed.err
        assert printed.err.startswith("chipwatch: ")
        return caught.value.code, printed.err.removeprefix("chipwatch: ").rstrip("\n")

    return run


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--snik", "x"], "--snik: no such option; did you mean --sink?"),
        (["--xyzzy"], "--xyzzy: no such option; see chipwatch run --help"),
        (["--interval", "x"], f"--interval x: {INTERVAL}"),
        (["--duration", "-1"], "--duration -1: expected a time such as 5, 500ms, 1m or 7d; see chipwatch run --help"),
        (["--pid", "me"], "--pid me: expected a whole number of at least 1"),
        (["--interval"], "--interval: needs a value; see chipwatch run --help"),
        (["--sink", "", "--sink", " ,"], "--sink ', ,': this names nothing; name one, or leave it out"),
        (["--once=1"], "--once: takes no value; see chipwatch run --help"),
        (["lits"], "there is no command lits; did you mean list?"),
        (["record", "lst"], "record lst: did you mean record list? For a file of this name, write ./lst"),
        (["xyzzy"], f"there is no command xyzzy; choose from: {', '.join(COMMANDS)}"),
        (["fleet", "n1"], "there is no command fleet; it is `top --once HOST...`"),
        (["Health"], "there is no command Health; it is `status --health`"),
        (["export", "run.chipwatch"], "there is no command export; it is `record export FILE`"),
        (["record", "a", "b"], "record: b: a recording has one FILE; or write record list, or record export FILE"),
        (["record"], "record: FILE is missing: chipwatch record run.chipwatch, or chipwatch record --seal"),
        (["record", "export"], "record export: FILE is missing: chipwatch record export run.chipwatch --to csv"),
        (["record", "list", "x"], "record list: x: it takes no word; it lists the recordings in this folder"),
        (["record", "run.chipwatch", "--to", "csv"], "record: takes no --to"),
        (["record", "export", "run.chipwatch", "--duration", "5"], "record export: takes no --duration"),
        (["record", "--seal", "--to", "csv"], "record --seal: takes no --to"),
        (["top", "--once", "--replay", "run.chipwatch"], "top --once: takes no --replay"),
        (["top", "--user", "ada"], "top: takes no --user without HOST"),
        (["top", "run.chipwatch", "node-7", "--once"], "top --once: run.chipwatch is a recording; `chipwatch top run.chipwatch` plays it"),
        (["status", "--health", "--json"], "status --health: takes no --json"),
        (["status", "--repair", "--json"], "status: takes no --repair"),
        (["plan", "--hosts", "0"], "--hosts 0: expected a whole number from 1 to 1000000; see chipwatch plan --help"),
        (["plan", "--for", "gpus"], "--for gpus: no such collector or family; did you mean gpu?"),
        (["train.py"], "there is no command train.py; to run a program, write chipwatch -- python train.py ...; see chipwatch --help"),
        (["plan", "now"], "now: neither an option nor a value of one; see chipwatch plan --help"),
        (["--once", "--duration", "5"], "--once, --duration: give one of them"),
        (["completion", "tcsh"], "SHELL tcsh: no such choice; choose from: bash, zsh, fish"),
        (["completion"], "SHELL is missing; choose from: bash, zsh, fish"),
        (["sh", "train.sh"], "there is no command sh; to run a program, write chipwatch -- sh ...; see chipwatch --help"),
        (["--once", "--collector", "cpu,NVIDA"], "--collector NVIDA: no such collector; did you mean nvidia?"),
        (["dashboard"], "--cloud is missing; choose from: cloudwatch, cloudwatch-promql, google, grafana"),
        (["config", "neuro"], "config neuro: no such collector, processor or sink; did you mean neuron?"),
        (["list", "xyzzy"], "list xyzzy: no metric fits; `chipwatch list` prints all"),
        (["list", "--once"], "--once: no such option; it is one of run, top"),
        (["--listen", "9465"], "--listen: no such option; it is listen in [sinks.prometheus]"),
        (["--names", "dcgm,weather"], f"--names weather: no such naming profile; choose from: {', '.join(PROFILES)}"),
        (["--level", "detialed"], "--level detialed: no such choice; did you mean detailed?"),
        (["--once", "check"], "check: a command must come first: chipwatch check ...; see chipwatch run --help"),
        (["--once", "train.py"], "train.py: neither an option nor a command; to run a program, write chipwatch run ... -- train.py ...; see chipwatch run --help"),
        (["--"], "--: no command follows; write chipwatch [OPTION ...] -- COMMAND"),
        (["check", "--", "true"], "check: takes no command after --; only run and record do"),
        (["--pid", "1", "--", "true"], "--pid 1: the command after -- is watched instead; leave one of them out"),
        (["--sink", "stdot"], "--sink stdot: no such sink; did you mean stdout? (or set type in [sinks.stdot])"),
        (["--collector=--"], "--collector: -- is not a value of an option"),
        (["--common-dims", "hostnam"], "--common-dims hostnam: no such dimension; did you mean hostname?"),
        (["--dim", "x"], "--dim x: expected KEY=VALUE"),
        (["--dim", "a=b", "--dim", "a=c"], "--dim a=c: a was given before as b; give it once"),
        (["--window", "2s"], "--window: a window of 2 s is below the interval of 5 s; set window to 5 s or more, or interval to 2 s or less"),
        (["--format", "xml"], "--format xml: no such choice; choose from: auto, json, table"),
        (["--config", "/no/such.toml"], "configuration file /no/such.toml: No such file or directory"),
        (["--health", "x"], "--health x: expected [HOST:]PORT"),
        (["--no-collector", "all"], "--no-collector all: no collector is left to run; name fewer"),
        (["--sink", "cloudwatch", "--namespace", "AWS/EC2"], "--namespace: AWS/ is reserved for AWS's own namespaces, got 'AWS/EC2'"),
        (["--summary", "no/such/folder"], "--summary no/such/folder: No such file or directory; choose another file"),
        (["--parent", "1", "--", "true"], "--summary, --parent: not for a command after --, which has a summary; leave them out"),
        (["--parent", "0"], "--parent 0: expected a whole number from 1 to 2147483648; see chipwatch run --help"),
        (["check", "--bundle", "/"], "--bundle /: it exists; name a new file"),
        (["check", "--bundle", "/no/such/x"], "--bundle /no/such/x: /no/such is not a folder; name a file in one"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_and_exit_code_2(run_main, words, line):
    assert run_main(*words) == (2, line)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("interval = [1]", "interval: expected a time from 0.1 to 86400 s, such as 5, 500ms or 1m, got a list"),
        ("[collectors.xyz]", "collectors.xyz: no such collector; choose from: "),
        ('[sinks.stdout]\nformat = "xml"', "sinks.stdout.format: no such choice 'xml'; choose from: auto, json, table"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_line_with_its_name_and_exit_code_2(run_main, tmp_path, file, line):
    code, said = run_main(file=file)
    assert code == 2
    assert said.startswith(f"{tmp_path}/agent.toml: {line}")


@pytest.mark.parametrize("brief", [["--once"], ["--duration", "0"], []])
def test_a_parent_that_did_not_start_this_process_is_refused(here, brief):
    done = here("--collector", "memory", "--parent", "2147483647", *brief)
    ours = f"it has ended, or did not start this process, whose parent is {os.getppid()}"
    assert (done.returncode, done.stderr) == (2, f"chipwatch: --parent 2147483647: {ours}\n")


def test_a_word_that_nothing_here_knows_ends_with_1_and_says_what_to_do(run_main):
    code, line = run_main("--common-dims", "slurm_job", "--duration", "0")
    assert code == 1
    assert "slurm_job" in line
    assert "--dim slurm_job=VALUE" in line


def test_a_plugin_that_cannot_be_imported_ends_with_1_and_says_what_is_missing(run_main, others):
    others.add("needy", "import no_such_module\n", sinks=[("needy", "Needy")])
    code, line = run_main("--sink", "needy")
    assert code == 1
    assert line == "sink needy cannot be loaded: No module named 'no_such_module'"


# -- how arguments are read -----------------------------------------------------------------------------------------


def test_run_is_the_default_command():
    assert parse([]).command == "run"
    assert parse(["--once"]).command == "run"
    assert parse(["run", "--once"]).once
    assert parse(["check"]).command == "check"


def test_what_follows_two_dashes_is_the_command_untouched():
    given = parse(["--level", "all", "--", "train", "--", "--sink", "x"])
    assert given.level == "all"
    assert given.wrapped == ["train", "--", "--sink", "x"]


def test_flags_become_options():
    words = [
        "--sink", "a", "--sink", "b", "--collector", "c", "--no-collector", "d", "--processor", "e", "--no-processor", "f", "--interval", "1", "--window", "2",
        "--flush", "3", "--level", "all", "--common-dims", "hostname, run_id,", "--dim", "k=v", "--dim", "l=a=b",
        "-n", "N", "--high-resolution-metrics", "--pid", "7", "--format", "json", "--names", "wandb", "--spool", "/s",
        "--health", "80", "--proc", "/p", "--sys", "/y", "--root", "/r", "--log-level", "debug",
    ]  # fmt: skip
    layer = flags(parse(words))
    config = Config(**values_of(Config, layer, "", {}, strict=False))
    assert config == Config(
        sink=("a", "b"), collector=("c",), no_collector=("d",), processor=("e",), no_processor=("f",), interval=1.0, window=2.0, flush=3.0, level="all",
        common_dims=("hostname", "run_id"), dims={"k": "v", "l": "a=b"}, namespace="N", high_resolution_metrics=True,
        pid=7, format="json", names="wandb", spool=Path("/s"), health="80", proc=Path("/p"), sys=Path("/y"),
        root=Path("/r"), log_level="debug",
    )  # fmt: skip


def test_every_general_option_has_a_flag_and_every_flag_an_option():
    run = parser().commands["run"]
    own = "help", "config", "once", "duration", "record", "dim", "parent", "summary"
    flags = {action.dest for action in run._actions} - {*own}
    options = {*options_of(Config)} - {"collectors", "processors", "sinks", "dims", "spool_bytes"}
    assert flags == options


# -- the real command -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_begins_with_an_example_that_can_be_typed(here, command):
    _, example = COMMANDS[command]
    assert here(command, "--help").stdout.startswith(f"example: {example}\n")
    assert parse(shlex.split(example)[1:]).command.partition(" ")[0] == command


def test_each_command_has_its_function():
    for path in cli.FUNCTIONS.values():
        module, _, name = path.partition(".")
        function = getattr(import_module(f"chipwatch.commands.{module}"), name)
        assert [*inspect.signature(function).parameters] == ["given"]
    assert {word.partition(" ")[0] for word in cli.FUNCTIONS} == {*COMMANDS, "completion"}


def test_version_is_one_line(here):
    for word in ("--version", "-V"):
        done = here(word)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"chipwatch {build()}\n", "")


def test_help_explains_itself_and_ends_with_0(here):
    done = here("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)
    assert re.findall(r"(?m)^    (\w+) ", done.stdout)[:7] == [*[*COMMANDS][FIRST], "more"]
    assert len(re.findall("(?m)^  -", done.stdout)) == 10
    assert re.findall(r"(?m)^    (\w+) ", here("more").stdout) == [*[*COMMANDS][FIRST.stop :], "completion"]
    assert {"--common-dims", "--summary", "--parent"} <= {*here("run", "--help").stdout.split()}


@pytest.mark.parametrize(
    "words", [("--config", "{}/agent.tmol"), ("report", "{}/agent.tom"), ("top", "--once", "@{}/agnt.toml")]
)
def test_a_file_that_is_not_there_is_named_with_the_nearest_that_is(here, tmp_path, words):
    (tmp_path / "agent.toml").touch()
    done = here(*(word.format(tmp_path) for word in words))
    assert done.stderr.endswith("No such file or directory; did you mean agent.toml?\n")


def test_a_reader_who_leaves_early_ends_it_quietly(agent):
    script = f'"{agent.command[0]}" list | head -n 1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=agent.env(), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("command", ["list", "--version"])
def test_a_closed_standard_output_is_a_fault_of_a_command_that_prints(agent, command):
    script = f'exec "{agent.command[0]}" {command} >&-'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=agent.env(), check=False)
    assert (done.returncode, done.stderr) == (1, "chipwatch: standard output: it is closed\n")


def test_a_closed_standard_output_changes_no_answer_that_the_exit_code_gives(agent):
    script = f'exec "{agent.command[0]}" verdict --timeout 60 >&-'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=agent.env(), check=False)
    assert (done.returncode, done.stderr) == (agent.run("verdict", "--timeout", "60").returncode, "")


def test_the_list_comes_in_three_forms(here):
    rows = json.loads(here("list", "--format", "json").stdout)
    text = here("list").stdout
    markdown = here("list", "--format", "markdown").stdout
    assert {"name", "kind", "unit", "level", "dimensions", "collector", "help"} == set(rows[0])
    for row in rows:
        assert re.search(rf"^{re.escape(row['name'])} +{row['kind']} ", text, re.MULTILINE)
        assert f"| {row['name']} | {row['kind']} | {row['unit']} |" in markdown


def test_check_ends_with_1_where_something_is_not_fit(here):
    done = here("check", "--collector", "memory", "--common-dims", "slurm_job")
    assert done.returncode == 1
    assert re.search(r"^identity +FAILED .*slurm_job", done.stdout, re.MULTILINE)
    assert re.search(r"^collector +memory +ok ", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("\nnot fine: 1 fault, in the line above\n")


# -- the sample configuration ---------------------------------------------------------------------------------------


def loadable(group: str) -> dict:
    """Return the classes of the plugins whose libraries are installed."""
    found = {}
    for name, point in plugins.installed(group).items():
        with suppress(ImportError):
            found[name] = point.load()
    return found


def uncommented(text: str) -> str:
    """Return a sample with every option and every table switched on."""
    return re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def sample():
    from chipwatch.commands.sample import sample_config

    return sample_config()


def test_the_sample_as_printed_sets_nothing(sample, here):
    assert tomllib.loads(sample) == {}
    assert here("config").stdout == sample + "\n"


def test_the_sample_has_every_option(sample):
    tables = tomllib.loads(uncommented(sample))
    assert set(tables) == {*options_of(Config)}
    groups = {"collectors": options_of(CollectorOptions), "processors": (), "sinks": options_of(SinkOptions)}
    for group, shared in groups.items():
        assert {name: set(table) for name, table in tables[group].items()} == {
            name: {*cls.Config.__dataclass_fields__, *shared} for name, cls in loadable(f"chipwatch.{group}").items()
        }


def test_the_sample_with_every_option_switched_on_is_what_holds_by_default(sample, tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text(uncommented(sample))
    config, default = load(path, {}, {}), load(None, {}, {})
    for option in {*options_of(Config)} - {"collectors", "processors", "sinks", "sink"}:
        assert getattr(config, option) == getattr(default, option), option
    assert config.sink == tuple(loadable(plugins.SINKS))
    for group in ("collectors", "sinks"):
        for name, cls in loadable(f"chipwatch.{group}").items():
            assert plugin_config(cls, group, name, config, {}) == cls.Config(), name
    for name in config.sink:
        assert sink_options(name, config, {}) == sink_options(name, default, {})


def test_the_command_line_alone_loads_nothing_heavy():
    program = "import sys, chipwatch.commands.cli; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"boto3", "botocore", "google", "rich", "psutil", "pynvml", "http", "asyncio"} & set(done.stdout.split())


@pytest.mark.parametrize(
    "words",
    [
        "List GPU --level ALL --format Json", "config CPU", "Completion Fish", "Check --help",
        "plan --for Host --format JSON",
        "dashboard --cloud CloudWatch --region us-east-1 --for HOST",
    ],
)  # fmt: skip
def test_case_does_not_count_in_commands_names_and_choices(here, words):
    done = here(*words.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout
