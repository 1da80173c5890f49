"""Every command line of README and docs runs, or says which test runs its like, or why none does."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.conftest import no_nvidia
from tests.docs.test_links import PAGES
from tests.doubles.cloudwatch import CloudwatchDouble, environment
from tests.doubles.mlflow import MlflowDouble
from tests.doubles.monitoring import MonitoringDouble
from tests.doubles.otlp import OtlpDouble
from tests.doubles.promql import PromqlDouble
from tests.terminal import on_a_terminal

from chipwatch.commands.cli_options import COMMANDS

ROOT = Path(__file__).parents[2]
CONSOLE = re.compile(r"^( *)```console\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"console", "hcl", "ini", "json", "python", "sh", "text", "toml", "yaml"}
ASSIGNED = re.compile(r"\w+=.*")
ELSEWHERE = {
    r"pip install \S+chipwatch-\S+\.whl": "tests/deploy/test_packaging.py::test_the_wheel_works_where_there_is_no_source",
    r"pip install chipwatch\[\w+\] @ git": "tests/deploy/test_packaging.py::test_git_gives_the_same_program",
    r"pip install moto\[server\]": "requirements/constraints-dev.txt has moto",
    r"python3 -m venv|source tutorial/|curl|grep|kill": "tests/docs/test_tutorial.py::test_the_tutorial_runs_as_it_stands",
    r"pip install -e (\.|~/my-plugin)$": "tests/docs/test_writing_plugins.py::test_the_collector_is_listed_and_read",
    r"sudo sh install\.sh": "tests/deploy/test_installer.py::test_an_update_keeps_one_previous_release_and_rollback_brings_it_back_with_its_configuration",
    r"pip install --no-index": "tests/deploy/test_boot.py::test_user_data_installs_offline_sends_within_a_minute_survives_a_second_run_and_is_gone_afterwards",
    r"pip install --(require-hashes|no-deps)": "`make run` installs in this way",
    r"(pipx|uv tool) install|uvx ": "neither is a dependency for development",
    r"moto_server": "tests/e2e/test_moto.py::test_this_machines_metrics_appear",
    r"docker run": "tests/deploy/test_container.py::test_it_reads_the_host_with_nothing_but_read_only_mounts",
    r"docker push": "needs a registry",
    r"sudo (apt install|editor|systemctl enable)": "tests/deploy/test_packages.py::test_a_deb_is_installed_updated_taken_back_and_leaves_nothing",
    r"sudo (dnf install)": "needs a system with rpm; tests/deploy/test_packages.py reads the package",
    r"chmod \+x|chipwatch-\S+-linux-x86_64": "tests/deploy/test_packages.py::test_the_one_file_reads_this_machine_and_runs_a_command_as_it_is",
    r"git (tag|push)": "makes a release",
    r"gh attestation|cosign verify": "needs a release",
    r"promtool check": "tests/proof/test_grafana.py::test_promtool_takes_the_rules_and_each_query_of_the_dashboard",
    r"helm (install|test)": "tests/deploy/test_helm.py::test_helm_3_installs_upgrades_tests_and_removes_it",
    r"aws (iam|logs|ssm|s3) ": "needs an account",
    r"aws ecs register": "tests/deploy/test_ecs.py::test_ecs_takes_every_task_definition",
    r"aws ecs create-service": "tests/deploy/test_ecs.py::test_the_daemon_becomes_a_daemon_service",
    r"do aws cloudwatch|aws cloudwatch put-dashboard": "needs an account",
    r"(do )?gcloud monitoring ": "needs an account",
    r"(jq|cp|sed|tail|sha256sum|cd|export|head|while|done)\b": "a program of the system",
    r"neuron-monitor(-cloudwatch\.py)?\b": "a program of AWS; the agent gets a record of neuron-monitor here",
}
"""Commands that do not run here: the test that runs the like, or the reason why none does."""


def lines(text: str) -> list[str]:
    """Return the command lines of a page, in blocks of a console and in tables."""
    tables = "\n".join(re.findall(r"(?m)^\|.*", text)).replace(r"\|", "|")
    tables = tables.replace("`chipwatch report`", "")  # it needs a file, which its sentence does not name
    found = re.findall(r"`((?:[A-Z_]+=\S+ )?(?:[\w-]+ \| )?(?:\.venv/bin/)?(?:agent|chipwatch) [^`]+)`", tables)
    for _, block in CONSOLE.findall(text):
        whole = ""
        for line in map(str.strip, block.splitlines()):
            if whole or line.startswith("$ "):
                whole += (line if whole else line[2:]).removesuffix("\\")
                if not line.endswith("\\") and whole.count("'") % 2 == 0:
                    found.append(whole)
                    whole = ""
        assert not whole, f"a command line without an end: {whole}"
    return found


def commands(line: str) -> list[tuple[str, ...]]:
    """Return the words of each command of a line, without variables before it and the files that it writes to."""
    parts: list[list[str]] = [[]]
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    for word in words:
        if word.strip("();&|") == "":
            parts.append([])
        else:
            parts[-1].append(word)
    for part in parts:
        del part[next((n for n, word in enumerate(part) if word.startswith(">")), len(part)) :]
        while part and ASSIGNED.fullmatch(part[0]):
            del part[0]
    names = ((Path(part[0]).name, *part[1:]) for part in parts if part)
    return [("agent", *words[1:]) if words[0] == "chipwatch" else words for words in names]


ALL = {words for page in PAGES for line in lines(page.read_text()) for words in commands(line)}
OURS = sorted(words for words in ALL if words[0] == "agent")
OTHERS = sorted(" ".join(words) for words in ALL if words[0] not in ("agent", "make", "python"))


def test_each_page_names_the_command_chipwatch_and_one_of_its_thirteen_words():
    old, unknown = [], []
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            if "decisions" not in page.parts:
                old += re.findall(r"(?m)(?:^|[`$|] ?)agent (?:-|[a-z][\w-]*).*", page.read_text())
            unknown += {*re.findall(r"`chipwatch ([a-z][\w-]*)", page.read_text())} - {
                *COMMANDS,
                "completion",
                "help",
                "more",
            }
    assert (old, unknown) == ([], [])


def test_units_charts_modules_and_scripts_type_commands_that_are_there():
    folders = ("deploy", "ecs-sidecar", "helm", "slurm", "terraform", "tools")
    files = [
        ROOT / "install.sh",
        *(path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()),
    ]
    typed = re.compile(r"""(?:bin/(?:agent|chipwatch)"?,? |\$agent" |\[agent, )"?(--?[a-z][\w-]*|[a-z][\w-]*)""")
    found = {path: {*typed.findall(path.read_text(errors="replace"))} for path in files}
    wrong = {path: words for path, typed in found.items() if (words := typed - {*COMMANDS, "--version", "--once"})}
    assert wrong == {}
    assert sum(map(len, found.values())) > 10


@pytest.fixture(scope="module")
def clouds(folder):
    """The environment of an agent in `folder` for which the clouds and a collector are on loopback."""
    doubles = CloudwatchDouble(), MonitoringDouble(), OtlpDouble(), MlflowDouble(), PromqlDouble()
    with ExitStack() as stack:
        cloudwatch, google, otlp, mlflow, store = map(stack.enter_context, doubles)
        yield environment(
            AWS_REGION="us-east-1",
            CHIPWATCH_SINKS__CLOUDWATCH__ENDPOINT_URL=cloudwatch.url,
            CHIPWATCH_SINKS__OTLP__ENDPOINT_URL=otlp.url,
            CHIPWATCH_SINKS__CLOUDWATCH_OTLP__ENDPOINT_URL=otlp.url,
            MLFLOW_TRACKING_URI=mlflow.url,
            CHIPWATCH_SINKS__GOOGLE__ENDPOINT=google.target,
            CHIPWATCH_SINKS__GOOGLE__INSECURE="true",
            CHIPWATCH_SINKS__PROMETHEUS__LISTEN="127.0.0.1:0",
            CHIPWATCH_DIMS__INSTANCE_TYPE="p5.48xlarge",
            STORE=store.url,
            PWD=str(folder),
        )


@pytest.fixture(scope="module")
def folder(agent_command, tmp_path_factory):
    """Where a user would be, with the files that the command lines name."""
    folder = tmp_path_factory.mktemp("home")
    for script in ("train.py", "finetune.py", "work.py"):
        (folder / script).write_text("print('loss 0.31')\n")
    with (folder / "chipwatch.toml").open("w") as file:
        subprocess.run([*agent_command, "config"], stdout=file, check=True, timeout=60)
    with (folder / "run.jsonl").open("w") as file:
        words = ("--duration", "2", "--interval", "1", "--collector", "memory")
        subprocess.run([*agent_command, *words], stdout=file, check=True, timeout=60)
    for name in ("node-7", "node-8"):  # a recording may be a file of lines, too
        shutil.copy(folder / "run.jsonl", folder / f"{name}.chipwatch")
    subprocess.run([*agent_command, "record", "run.chipwatch", *words], cwd=folder, check=True, timeout=60)
    shutil.copy(folder / "run.chipwatch", folder / "again.chipwatch")
    return folder


def harmless(words: tuple[str, ...]) -> list[str]:
    """Return the options and command of a command line, changed so that it ends soon and finds what it names."""
    ours = [word for word in words[1:] if word != "--live"]  # it would go on
    for option, value in {"--pid": str(os.getpid()), "--endpoint-url": None, "--duration": None}.items():
        if option in ours:
            at = ours.index(option)
            ours[at : at + 2] = [option, value] if value else []
    runs = not ours or ours[0].startswith("-") or ours[0] == "run"
    brief = ("--duration", "1") if "prometheus" in ours else ("--once",)
    return [*ours, *brief] if runs and not {"--", "--once"} & set(ours) else ours


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_a_command_line_of_ours_runs(agent, loaded, clouds, until, words):
    record = (ROOT / "tests/fixtures/neuron/inf1_2022_article.json").read_text()
    env = clouds | {
        **no_nvidia(agent.folder),
        "CHIPWATCH_DIMS__INSTANCE_ID": f"i-{OURS.index(words):08}",  # Google takes a series from one agent only
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "STATE_DIRECTORY": agent.folder / "state",
    }
    words = tuple(clouds["STORE"] if word == "http://127.0.0.1:9090" else word for word in words)
    command = words[1] if len(words) > 1 else "run"
    if (command in ("jobs", "status", "why") and "--prometheus" not in words) or "--seal" in words:
        running = agent.start("--sink", "cloudwatch", "--collector", "memory", "--interval", "0.1", env=env)
        ready = ["status", "--health", "--ready"]
        until(lambda: loaded().run(ready, agent.env(**env)).returncode == 0 or running.errors())
    prints_nodes = command == "top" and bool({"--once", "--json", "--csv"} & {*words})
    if command == "top" and not prints_nodes:
        seen = on_a_terminal(
            [*agent.command, *words[1:]], keys=b"q", env=agent.env(**(env | {"TERM": "xterm"})), cwd=env["PWD"]
        )
        assert "chipwatch" in seen
        return
    text = " ".join(record.split()) + "\n" if "--stdin" in words else ""
    done = loaded().run(harmless(words), agent.env(**env), text, env["PWD"])
    absent = "--collector" in words and re.search(r"MISSING|no (NVIDIA|Apple)", done.stdout + done.stderr)
    no_such_node = command == "verdict" and done.stdout.startswith(("NOT FIT", "UNKNOWN"))
    no_such_node |= command == "jobs" and done.stderr.startswith(("chipwatch: HOST:", "chipwatch: the parts of"))
    expected = (1, 2) if no_such_node else (bool(absent or prints_nodes),)  # no node answers here
    assert done.returncode in expected, done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_a_block_has_a_language_and_a_block_of_a_console_begins_with_a_command():
    for page in PAGES:
        text = page.read_text()
        opened = re.findall(r"(?m)^ *```(\w*)$", text)
        assert {*opened[::2]} <= LANGUAGES, page
        assert {*opened[1::2]} <= {""}, page
        assert [block for _, block in CONSOLE.findall(text) if not block.lstrip().startswith("$ ")] == [], page
        bare = re.sub(r"(?ms)^ *```\w+\n.*?^ *```$", "", text)
        assert re.findall(r"(?m)(?<=\n\n) {4,}\S.*$", bare) == [], f"{page}: write it between ```console and ```"


def test_a_target_of_make_and_a_module_is_there():
    makefile = (ROOT / "Makefile").read_text()
    targets = {words[1] for words in ALL if words[0] == "make"}
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
    modules = {words[2] for words in ALL if words[:2] == ("python", "-m")}
    assert [module for module in modules if not find_spec(f"{module}.__main__")] == []


def test_a_command_of_others_has_a_test_or_a_reason_and_no_reason_is_left_over():
    for command in OTHERS:
        found = [what for pattern, what in ELSEWHERE.items() if re.match(pattern, command)]
        assert len(found) == 1, f"{command}: add to ELSEWHERE the test that runs the like, or the reason why none does"
        if "::" in found[0]:
            file, name = found[0].split("::")
            assert f"def {name}(" in (ROOT / file).read_text()
    assert [pattern for pattern in ELSEWHERE if not any(re.match(pattern, command) for command in OTHERS)] == []
