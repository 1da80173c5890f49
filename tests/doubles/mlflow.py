"""A tracking server on loopback that keeps runs in memory as MLflow's store in SQL does, and misbehaves on demand."""

import json
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.doubles.web import WebDouble, give

LATEST = ("step", "timestamp", "value")


class Run:
    """A run: its status, and each row of its metrics once."""

    def __init__(self, **info: Any) -> None:
        self.info = {"status": "RUNNING", "lifecycle_stage": "active", "experiment_id": "7", "start_time": 0} | info
        self.rows: dict[tuple[str, int, int, float], None] = {}
        self.tags: dict[str, str] = {}

    def data(self) -> dict[str, Any]:
        newest: dict[str, dict[str, Any]] = {}
        for key, timestamp, step, value in self.rows:
            row = {"key": key, "timestamp": timestamp, "step": step, "value": value}
            if key not in newest or [row[of] for of in LATEST] > [newest[key][of] for of in LATEST]:
                newest[key] = row
        return {"metrics": [*newest.values()]}


class MlflowDouble(WebDouble):
    """The server; `answer` may be set to what it does with a request, or None for MLflow's own answer."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, keeps: bool = True) -> None:
        """Keep what is sent, unless a measurement only wants an answer."""
        self.runs: dict[str, Run] = {}
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        """Path, headers in lower case, and body."""
        self.answer: Callable[[BaseHTTPRequestHandler, str], bool] | None = None
        """Called with a request and its path; whether it has answered."""
        self._keeps = keeps
        super().__init__(tls=tls, version="1.1")

    def add(self, run: str = "r1", **info: Any) -> Run:
        self.runs[run] = Run(run_id=run, **info)
        return self.runs[run]

    def batches(self) -> list[dict[str, Any]]:
        return [body for path, _, body in self.requests if path.endswith("/log-batch")]

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        body = http.rfile.read(int(http.headers.get("Content-Length") or 0))
        url = urlsplit(http.path)
        if not self._keeps and url.path.endswith("/log-batch"):
            say(http, 200, {})
            return
        sent = json.loads(body) if body else parse_qs(url.query)
        self.requests.append((url.path, {key.lower(): value for key, value in http.headers.items()}, sent))
        path = url.path.removeprefix("/api/2.0/mlflow")
        if self.answer is None or not self.answer(http, path):
            status, found = self._own(path, sent)
            say(http, status, found)

    def _own(self, path: str, sent: Any) -> tuple[int, dict[str, Any]]:
        if path == "/experiments/search":
            return 200, {"experiments": [{"experiment_id": "7"}]}
        if path == "/runs/search":
            newest = sorted(self.runs.values(), key=lambda run: -run.info["start_time"])[: sent["max_results"]]
            tags = [[{"key": key, "value": value} for key, value in run.tags.items()] for run in newest]
            return 200, {
                "runs": [{"info": run.info, "data": {"tags": of}} for run, of in zip(newest, tags, strict=True)]
            }
        name = sent["run_id"][0] if isinstance(sent["run_id"], list) else sent["run_id"]
        if name not in self.runs:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"Run with id={name} not found"}
        run = self.runs[name]
        if path == "/runs/get":
            return 200, {"run": {"info": run.info, "data": run.data()}}
        if run.info["lifecycle_stage"] == "deleted":
            text = f"The run {name} must be in the 'active' state. Current state is deleted."
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": text}
        assert path == "/runs/log-batch"
        assert len(sent["metrics"]) <= 1000
        for of in sent["metrics"]:
            run.rows[of["key"], of["timestamp"], of["step"], of["value"]] = None
        return 200, {}


def say(http: BaseHTTPRequestHandler, status: int, content: Any, **headers: str) -> bool:
    """Answer with `content`, in JSON unless it is bytes."""
    give(http, status, content if isinstance(content, bytes) else json.dumps(content).encode(), **headers)
    return True
