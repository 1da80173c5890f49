"""Agents write into a run of MLflow's own tracking server, are killed in mid-request, and the run's page shows it all."""

import datetime as dt
import http.client
import json
import os
import signal
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
from tests.conftest import Agent
from tests.doubles.web import WebDouble, give
from tests.ports import free_port
from tests.proof import parts
from tests.proof.chromium import Page

from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch_sinks.mlflow.keys import key_of

pytestmark = [pytest.mark.proof, pytest.mark.xdist_group("mlflow")]
LONG = 120.0
FROM_THE_AGENTS_START = ("network_received", "network_sent", "network_transmit_megabytes", "network_receive_megabytes")
"""Counters that begin at 0 with each agent under MLflow's names, so that what a killed one printed last may differ."""
API = "/api/2.0/mlflow"


def wait(condition, seconds=LONG):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "what the test waits for does not come"
        time.sleep(0.02)
    return result


class Server:
    """MLflow's tracking server with a store in SQLite."""

    def __init__(self, folder):
        self.port = free_port()
        self.uri, self.python = f"http://127.0.0.1:{self.port}", parts.python("mlflow")
        self._log = (folder / "server.log").open("wb")
        self.process = subprocess.Popen(
            [self.python.with_name("mlflow"), "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
             "--artifacts-destination", folder / "artifacts", "--port", str(self.port), "--workers", "1"],
            stdout=self._log, stderr=self._log, cwd=folder, start_new_session=True,
        )  # fmt: skip
        wait(self._answers)

    def _answers(self):
        assert self.process.poll() is None, "the server has ended"
        try:
            return self.ask("GET", "/health", path="")[0] == 200
        except OSError:
            return False

    def ask(self, method, call, content=None, path=API):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            body = None if content is None else json.dumps(content)
            connection.request(method, path + call, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def start_run(self):
        status, body = self.ask("POST", "/runs/create", {"experiment_id": "0", "start_time": time.time_ns() // 10**6})
        assert status == 200, body
        return json.loads(body)["run"]["info"]["run_id"]

    def end_run(self, run):
        end = {"run_id": run, "status": "FINISHED", "end_time": time.time_ns() // 10**6}
        assert self.ask("POST", "/runs/update", end)[0] == 200

    def history(self, run):
        """Return what MLflow's own client knows of a run."""
        program = parts.ROOT / "tests/proof/mlflow_history.py"
        done = subprocess.run(
            [self.python, program, self.uri, run], capture_output=True, text=True, timeout=LONG, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # it waits long for connections that are kept
        self.process.wait(LONG)
        self._log.close()


class Cutter(WebDouble):
    """A proxy before the server that holds a batch back before the server gets it, or its answer afterwards."""

    def __init__(self, server):
        self.server, self.cut = server, ""
        """`before` or `after`: the next batch is held there."""
        self.held, self.go = threading.Event(), threading.Event()
        super().__init__(version="1.1")

    def handle(self, http):
        body = http.rfile.read(int(http.headers.get("Content-Length") or 0))
        cut = self.cut if http.path.endswith("/log-batch") else ""
        if cut != "before":
            answer = self.server.ask(http.command, http.path, json.loads(body) if body else None, path="")
        if cut:
            self.hold()
            http.close_connection = True
        else:
            give(http, *answer)

    def hold(self):
        self.held.set()
        self.go.wait(LONG)

    def kill(self, running, where):
        """Kill an agent with SIGKILL while its request is held."""
        self.held.clear()
        self.go.clear()
        self.cut = where
        assert self.held.wait(LONG)
        running.process.kill()
        running.process.wait(LONG)
        self.cut = ""
        self.go.set()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("server"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def story(server, agent_command, tmp_path_factory):
    """Two agents in one run; the first is killed twice in mid-request and started again; both are stopped."""
    cutter, run = Cutter(server), server.start_run()
    agents = {node: Agent(agent_command, tmp_path_factory.mktemp(node)) for node in ("node-a", "node-b")}

    def start(node):
        made = agents[node]
        return made.start(
            "--sink", "mlflow", "--sink", "stdout", "--format", "json", "--names", "mlflow", "--collector", "cpu,memory,network",
            "--interval", "0.5", "--window", "1", "--flush", "1", "--spool", made.folder / "spool",
            env={"MLFLOW_TRACKING_URI": cutter.url, "MLFLOW_RUN_ID": run, "MLFLOW_SYSTEM_METRICS_NODE_ID": node},
        )  # fmt: skip

    try:
        start("node-b")
        for where in ("after", "before"):
            first = start("node-a")
            wait(lambda first=first: len({point["time"] for point in first.points()}) >= 3)
            cutter.kill(first, where)
        last = start("node-a")
        wait(lambda: len({point["time"] for point in last.points()}) >= 3)
        for running in (last, agents["node-b"].started[0]):
            assert running.stop()[0] == 0, running.errors()
    finally:
        for made in agents.values():
            for running in made.started:
                running.process.kill()
                running.process.wait(LONG)
        cutter.close()
    printed = {}
    for node, made in agents.items():
        lines = [line for running in made.started for line in running.out.read_text().splitlines(keepends=True)]
        printed[node] = [json.loads(line) for line in lines if line.endswith("\n")]
    history = server.history(run)
    server.end_run(run)
    return SimpleNamespace(run=run, printed=printed, history=history)


def expected(node, points):
    """Return (key, time in ms) -> value of what an agent printed."""
    found = {}
    for point in points:
        metric = gauge(point["name"], "1", "A metric.", dims=tuple(point["dims"]))
        at = dt.datetime.fromisoformat(point["time"])
        key = key_of(f"system/{node}/", metric, Dimensions(point["dims"]))
        found[key, round(at.timestamp() * 1000)] = point["value"]
    return found


@pytest.mark.parametrize("node", ["node-a", "node-b"])
def test_the_history_has_each_key_step_and_time_once_and_as_standard_output_printed_it(story, node):
    of_node = {key: rows for key, rows in story.history.items() if key.startswith(f"system/{node}/")}
    stored = {(key, at): value for key, rows in of_node.items() for _, at, value in rows}
    assert len(stored) == sum(map(len, of_node.values())), "a key has a time twice"
    steps, times = {}, {}
    for rows in of_node.values():
        assert len({step for step, _, _ in rows}) == len(rows), "a key has a step twice"
        for step, at, _ in rows:
            steps.setdefault(step, set()).add(at)
            times.setdefault(at, set()).add(step)
    assert {len(of) for of in (*steps.values(), *times.values())} == {1}
    assert sorted(steps) == [*range(min(steps), min(steps) + len(steps))]
    printed = expected(node, story.printed[node])
    assert len(times) >= 6
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= {
        key.replace(f"{node}/", "") for key in of_node
    }
    late = {
        place
        for place, value in printed.items()
        if place[0].endswith(FROM_THE_AGENTS_START) and (node == "node-a" or not value)
    }  # a counter that has not moved yet is not sent
    printed = {place: value for place, value in printed.items() if place not in late}
    assert {place: stored.get(place) for place in printed} == printed
    unprinted = times.keys() - {at for _, at in printed}
    assert len(unprinted) <= (2 if node == "node-a" else 0), "more than what a kill left unprinted"


def test_the_runs_page_shows_a_chart_of_each_node(story, server, tmp_path):
    page = Page(f"{server.uri}/#/experiments/0/runs/{story.run}/system-metrics", tmp_path)
    keys = [f"system/{node}/cpu_utilization_percentage" for node in ("node-a", "node-b")]
    charts = "[...document.querySelectorAll('.js-plotly-plot')].map(({data}) => [data?.[0]?.metricKey, data?.[0]?.y])"
    with page:
        page.until(f"{keys}.every(key => {charts}.some(chart => chart[0] == key))")
        assert page.evaluate("document.querySelector('[aria-selected=true]').innerText") == "System metrics"
        drawn = dict(page.evaluate(charts))
    for key in keys:
        assert [value for _, _, value in sorted(story.history[key])] == pytest.approx(drawn[key])


def test_steps_go_on_where_mlflows_own_monitor_ended(server, agent):
    run = server.start_run()
    own = [
        {"key": f"system/{key}", "value": 1.0, "timestamp": 5, "step": 8} for key in ("cpu_utilization_percentage", "x")
    ]
    assert server.ask("POST", "/runs/log-batch", {"run_id": run, "metrics": own})[0] == 200
    env = {"MLFLOW_TRACKING_URI": server.uri, "MLFLOW_RUN_ID": run}
    done = agent.run("--sink", "mlflow", "--once", "--interval", "0.5", "--spool", agent.folder / "spool", env=env)
    assert done.returncode == 0, done.stderr
    history = server.history(run)
    assert [step for step, _, _ in history["system/cpu_utilization_percentage"]] == [8, 9]


def test_a_command_whose_run_is_not_named_is_found_by_its_user_and_ends_with_it(server, agent):
    env = {"MLFLOW_TRACKING_URI": server.uri, "CHIPWATCH_SINKS__MLFLOW__NODE": "trainer"}
    done = agent.run(
        "--sink", "mlflow", "--interval", "0.5", "--window", "1", "--flush", "1", "--spool", agent.folder / "spool", "--",
        server.python, parts.ROOT / "tests/proof/mlflow_train.py", "6", env=env, timeout=LONG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = done.stdout.splitlines()[0]
    history = server.history(run)
    assert len(history["system/trainer/process_cpu_utilization"]) >= 3
    assert "loss" in history
