"""Cost of writing into a run of MLflow, beside MLflow's and W&B's own monitors at the same interval."""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.bench.child import ROOT, receiving
from tests.bench.command import WARM_UP, agent_command
from tests.bench.figure import MB, MEMORY, CannotMeasure, Effort, Figure, cpu_seconds, rss
from tests.certificates import Authority
from tests.peers.measure import tree

from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch_sinks.mlflow import MlflowSink

METRICS, STEPS = 100, 10
DEADLINE = 60.0
REQUEST = 3.0
OWN = """
import mlflow, time
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
mlflow.set_system_metrics_sampling_interval(1)
mlflow.set_system_metrics_samples_before_logging(1)
SystemMetricsMonitor("r1").start()
print("watched", flush=True)
time.sleep(600)
"""
WANDB = """
import sys, time, wandb
settings = wandb.Settings(mode="offline", x_stats_sampling_interval=1.0, console="off", silent=True, root_dir=sys.argv[1])
wandb.init(settings=settings)
print("watched", flush=True)
time.sleep(600)
"""


def request(effort: Effort) -> list[Figure]:
    """Send 10 steps of 100 metrics in a request, all of other values."""
    metrics = [gauge(f"bench.metric{n}", "%", "A metric.", dims=("gpu",)) for n in range(METRICS)]
    dims, turns, spent = Dimensions(gpu="3", hostname="n-1"), count(time.time_ns(), 10**9), []
    with receiving("mlflow") as url:
        sink = MlflowSink(MlflowSink.Config(tracking_uri=url, run="r1"), {})
        sink.open()
        for _ in range(10 * effort.rounds):
            times = [next(turns) for _ in range(STEPS)]
            batch = [metric.point(at, at % 10**7 / 3e4 + n, dims) for at in times for n, metric in enumerate(metrics)]
            before = time.process_time_ns()
            if sink.prepare(batch):
                sink.saved()
            sink.write(batch)
            spent.append((time.process_time_ns() - before) / 1e6)
        sink.close()
    how = f"CPU of `prepare`, `state` and `write`, {METRICS * STEPS} points with new values; HTTP on loopback to another process"
    return [Figure("MLflow, a request of 100 metrics x 10 steps", "ms", REQUEST, spent[1:], how)]


def watched(words: Sequence[str | Path], seconds: float, sign: str, **env: str) -> tuple[float, float]:
    """Run a command; return its CPU time (ms a second) and resident memory (MB) once it has logged `sign` and is steady."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        env = {**os.environ, "HOME": folder, **env}
        run = subprocess.Popen([*words, folder], stdout=log, stderr=log, env=env, cwd=folder)
        try:
            deadline = time.monotonic() + DEADLINE
            while sign not in Path(log.name).read_text():
                if run.poll() is not None or time.monotonic() > deadline:
                    raise CannotMeasure(f"{Path(words[0]).name} does not log {sign!r}")
                time.sleep(0.1)
            time.sleep(WARM_UP)
            pids = tree(run.pid)
            begun, before = time.monotonic(), sum(map(cpu_seconds, pids))
            time.sleep(seconds)
            spent = 1000 * (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - begun)
            return spent, sum(map(rss, pids)) / MB
        finally:
            for pid in tree(run.pid)[::-1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            run.wait()


def beside(effort: Effort) -> list[Figure]:
    """Compare the agent with the monitors of MLflow and W&B, each at a point a second."""
    programs: dict[str, Sequence[str | Path]] = {
        "the agent writing to MLflow over TLS": [agent_command(), "--sink", "mlflow", "--interval", "1", "--window", "1", "--flush", "1", "-v", "--spool"]
    }  # fmt: skip
    for name, program in (("mlflow", OWN), ("wandb", WANDB)):
        if (python := ROOT / f".proof/{name}/bin/python").exists():
            programs[f"{name}'s own monitor"] = [python, "-c", program]
    cpu: dict[str, list[float]] = {name: [] for name in programs}
    memory: dict[str, list[float]] = {name: [] for name in programs}
    ours = next(iter(programs))
    with tempfile.TemporaryDirectory() as folder, receiving("mlflow", *Authority(Path(folder)).sign("server")) as url:
        env = {"MLFLOW_TRACKING_URI": url, "MLFLOW_RUN_ID": "r1", "MLFLOW_TRACKING_INSECURE_TLS": "true"}
        for _ in range(max(1, effort.rounds // 3)):
            for name, words in programs.items():
                sign = "accepted" if name == ours else "watched"
                ran = watched(words, effort.steady_seconds / 3, sign, **env)
                cpu[name].append(ran[0])
                memory[name].append(ran[1])
    how = "a point a second; with all of its processes, the interpreter too"
    figures = []
    for name in programs:
        asked = MEMORY["mlflow"] if name == ours else None
        figures.append(Figure(f"{name}, memory", "MB", asked, memory[name], f"resident; {how}"))
        figures.append(Figure(f"{name}, CPU", "ms/s", None, cpu[name], how))
    return figures


def mlflow(effort: Effort) -> list[Figure]:
    """Measure all of it."""
    return [*request(effort), *beside(effort)]
