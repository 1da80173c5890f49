"""Grafana's model, promtool and a real Prometheus take the shipped dashboards and alarms; no panel of a busy node is empty."""

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
from tests.proof.test_grafana import lost
from tools.nodes import Node, stop

pytestmark = pytest.mark.proof
ROOT = Path(__file__).parents[2]
BOARDS = ROOT / "dashboards/grafana"
NAMES = ("native", "dcgm", "dcgm4.7")
READ = Path(__file__).with_name("grafana_read.py")
VARIABLES = {"$instance": ".*", "$__rate_interval": "10s", "$__interval": "10s"}
BOTH = {"dcgm,dcgm4.7": "through-dcgm4.7"}
"""Two profiles side by side, and the folder of their files."""
ABSENT = {
    # hardware that the invented node has not, or a log that needs a right
    "CPU throttle events",
    "CPU throttled",
    "Errors by device",
    "GPU recovery action",
    "GPU temperature margin",
    "C2C throughput",
    "GPU context switch active",
    "GPU module power",
    "GPU unified memory",
    "Lustre disconnected",
    "NFS operation time",
    "NFS requests",
    "NFS throughput",
    "NFS timeouts",
    "NFS unanswered",
    "Network TCP listen drops",
    "Network allowance connections",
    "Network allowance exceeded",
    "PCIe link speed",
    "PCIe link width",
    "PCIe links degraded",
    "RDMA operations",
    "RDMA pause frames",
    "RDMA pause storms",
    "RDMA pause time",
    "RDMA priority traffic",
    "Kernel events",
    "Kernel events by kind",
    "Kernel log lost",
    # what has not happened, or takes minutes
    "Agent collector malformed",
    "Agent incidents",
    "Agent processor failed",
    "Agent processor left out",
    "GPU event",
    "GPU jobs",
    "Node failures",
    "Job GPU imbalance",
    "Points dropped by sink",
    "Points rejected by sink",
}
"""Titles of panels that may be empty."""


@pytest.mark.parametrize("names", [*NAMES, *BOTH.values()])
def test_grafanas_model_knows_every_key_of_the_shipped_dashboards(names):
    for file in sorted((BOARDS / names).glob("*.json")):
        board = file.read_text()
        done = subprocess.run(
            [parts.python("grafana"), READ], input=board, capture_output=True, text=True, timeout=LONG, check=False
        )
        assert done.returncode == 0, done.stderr
        assert [*lost(json.loads(board), json.loads(done.stdout))] == [], file


def test_a_parser_of_promql_takes_every_query_of_the_boards_for_cloudwatch():
    folder = ROOT / "dashboards/cloudwatch-promql"
    widgets = [widget for file in sorted(folder.glob("*.json")) for widget in json.loads(file.read_text())["widgets"]]
    queries = [
        query["query"] for widget in widgets for query in widget["properties"].get("data", {"queries": ()})["queries"]
    ]
    program = """
import json, sys, promql_parser
for text in json.load(sys.stdin):
    try:
        promql_parser.parse(text)
    except ValueError as problem:
        print(text, problem)
"""
    wrong = 'sum by ("job") ({"a.b"'
    done = subprocess.run(
        [parts.python("grafana"), "-c", program], input=json.dumps([*queries, wrong]), capture_output=True, text=True,
        timeout=LONG, check=False,
    )  # fmt: skip
    assert (len(queries) > 100, done.returncode, done.stderr) == (True, 0, "")
    assert [line.partition(" unexpected")[0] for line in done.stdout.splitlines()] == [wrong]


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
    """Yield board, title and expressions of each shipped panel, with Grafana's variables replaced by each of their values."""
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
def test_a_busy_node_leaves_no_panel_empty(programs, until, tmp_path, names):
    try:
        node = Node(tmp_path, 0, build(tmp_path))
    except CannotBuild as reason:
        pytest.skip(str(reason))
    listen = f"127.0.0.1:{free_port()}"
    running = node.start("--sink", "prometheus", "--interval", "1", "--names", names,
                         CHIPWATCH_SINKS__PROMETHEUS__LISTEN=listen)  # fmt: skip
    wanted = {(board, title): texts for board, title, texts in panels(names)}
    rules = [
        file for file in (ROOT / "dashboards/prometheus" / BOTH.get(names, names)).iterdir() if file.stem != "tests"
    ]
    try:
        with Prometheus(programs, tmp_path, listen, rules=rules) as server:

            def empty():
                node.load()
                for key, texts in [*wanted.items()]:
                    if any((server.ask("query", query=text) or {}).get("result") for text in texts):
                        del wanted[key]
                return not {key for key in wanted if key[1] not in ABSENT}

            try:
                until(empty, LONG)
            except AssertionError:
                pytest.fail(f"empty: {[key for key in wanted if key[1] not in ABSENT]}")
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
