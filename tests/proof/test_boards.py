"""Other programs' models and a real Prometheus take the shipped boards and alarms; no panel is empty without a reason."""

import json
import re
import subprocess
from itertools import product
from pathlib import Path

import pytest
from tests.doubles.nvml.driver import CannotBuild, build
from tests.ports import free_port
from tests.proof import parts
from tests.proof.scraping import LONG, Prometheus
from tests.proof.test_grafana import unknown
from tools.nodes import Node, stop

pytestmark = pytest.mark.proof
ROOT = Path(__file__).parents[2]
BOARDS = ROOT / "dashboards/grafana"
NAMES = ("native", "dcgm", "dcgm4.7")
VARIABLES = {"$instance": ".*", "$__rate_interval": "10s", "$__interval": "10s"}
BOTH = {"dcgm,dcgm4.7": "through-dcgm4.7"}
"""Two profiles side by side, and the folder of their files."""


@pytest.mark.parametrize("names", [*NAMES, *BOTH.values()])
def test_grafanas_model_knows_every_key_of_the_shipped_dashboards(names):
    for file in sorted((BOARDS / names).glob("*.json")):
        assert unknown(file.read_text()) == [], file


def refused(module, reader, texts):
    """Return which of these texts a reader of the part `grafana` refuses, each with why."""
    program = """
import importlib, json, operator, sys
read, found = operator.attrgetter(sys.argv[2])(importlib.import_module(sys.argv[1])), []
for text in json.load(sys.stdin):
    try:
        read(text)
    except Exception as problem:
        found.append((text, str(problem)))
print(json.dumps(found))
"""
    done = subprocess.run(
        [parts.python("grafana"), "-c", program, module, reader], input=json.dumps(texts), capture_output=True,
        text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_googles_model_knows_every_key_of_the_shipped_dashboards():
    texts = [file.read_text() for file in (ROOT / "dashboards/google").glob("*.json")]
    wrong = texts[0].replace('"xyChart"', '"zChart"')
    assert [*refused("google.cloud.monitoring_dashboard_v1", "Dashboard.from_json", [*texts, wrong])] == [wrong]


def test_a_parser_of_promql_takes_every_query_of_the_boards_for_cloudwatch():
    folder = ROOT / "dashboards/cloudwatch-promql"
    widgets = [widget for file in sorted(folder.glob("*.json")) for widget in json.loads(file.read_text())["widgets"]]
    data = [widget["properties"].get("data", {"queries": ()}) for widget in widgets]
    queries = [query["query"] for one in data for query in one["queries"]]
    wrong = 'sum by ("job") ({"a.b"'
    assert len(queries) > 100
    assert [*refused("promql_parser", "parse", [*queries, wrong])] == [wrong]


@pytest.mark.parametrize("names", NAMES)
def test_each_shipped_alarm_fires_at_a_fault_and_is_over_after_it(programs, names):
    folder = ROOT / "dashboards/prometheus" / names
    alerts = {rule["alert"] for rule in json.loads((folder / "alerts.json").read_text())["groups"][0]["rules"]}
    assert {test["name"] for test in json.loads((folder / "tests.json").read_text())["tests"]} == alerts
    tested = names != "dcgm"  # dcgm4.7 has the same conditions under other names
    for words in (
        ("check", "rules", *sorted({path.name for path in folder.iterdir()} - {"tests.json"})),
        *((("test", "rules", "tests.json"),) * tested),
    ):
        done = subprocess.run([programs / "promtool", *words], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_query_for_free_gpus_counts_them_by_model_and_partition(programs, tmp_path):
    query = re.search(r"```text\n(count by \(model.*?)```", (ROOT / "docs/job-records.md").read_text(), re.DOTALL)[1]
    told = (ROOT / "tests/fixtures/fleet/free_gpus.json").read_text().replace('"QUERY"', json.dumps(query))
    (tmp_path / "test.json").write_text(told)
    command = [programs / "promtool", "test", "rules", tmp_path / "test.json"]
    assert subprocess.run(command, check=False).returncode == 0


def panels(names):
    """Yield board, title and expressions of each panel outside collapsed rows, for each value of Grafana's variables."""
    for file in sorted((BOARDS / BOTH.get(names, names)).glob("*.json")):
        board = json.loads(file.read_text())
        chosen = [one["query"].split(",") for one in board["templating"]["list"] if one["name"] == "names"] or [[" : "]]
        for panel, (choice, _, value) in product(board["panels"], (each.partition(" : ") for each in chosen[0])):
            texts = [target["expr"].replace("${names}", value) for target in panel.get("targets", ())]
            for variable, replacement in VARIABLES.items():
                texts = [text.replace(variable, replacement) for text in texts]
            if texts:
                yield f"{file.stem} {choice}", panel["title"], texts


@pytest.mark.parametrize("names", ["native", "dcgm4.7", *BOTH])
def test_each_panel_has_data_of_a_busy_node_or_its_row_says_why_not(programs, until, tmp_path, names):
    try:
        node = Node(tmp_path, 0, build(tmp_path))
    except CannotBuild as reason:
        pytest.skip(str(reason))
    listen = f"127.0.0.1:{free_port()}"
    running = node.start("--sink", "prometheus", "--interval", "1", "--names", names,
                         CHIPWATCH_SINKS__PROMETHEUS__LISTEN=listen)  # fmt: skip
    wanted = {(board, title): texts for board, title, texts in panels(names)}
    folder = ROOT / "dashboards/prometheus" / BOTH.get(names, names)
    rules = [file for file in folder.iterdir() if file.stem != "tests"]
    try:
        with Prometheus(programs, tmp_path, listen, rules=rules) as server:

            def full():
                node.load()
                for key, texts in [*wanted.items()]:
                    if any((server.ask("query", query=text) or {}).get("result") for text in texts):
                        del wanted[key]
                return not wanted

            try:
                until(full, LONG)
            except AssertionError:
                pytest.fail(f"empty: {[*wanted]}")
            health = lambda: {rule["health"] for group in server.ask("rules")["groups"] for rule in group["rules"]}  # noqa: E731
            until(lambda: health() == {"ok"}, LONG)
            users = server.ask("query", query="count by (exported_job, user) (job_cost_total)")["result"]
            assert {(one["metric"]["exported_job"], one["metric"]["user"]) for one in users} == {
                ("41337", "ada"), ("41352", "eve"), ("41340", "bob"),
            }  # fmt: skip
    finally:
        stop([running])
    log = (tmp_path / "agent.log").read_text()
    assert not re.search(r"Traceback|\bERROR\b", log), log
