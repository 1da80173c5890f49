"""The four calls of MLflow's REST API that the sink needs, and the classification of its answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from chipwatch.base.version import USER_AGENT
from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.net.http_client import HttpAnswer, HttpClient, retry_after
from chipwatch_sinks.mlflow.settings import RUN, URI, Server

API: Final = "/api/2.0/mlflow"
SOURCE: Final = "mlflow.source.name"
MAX_RUNS: Final = 50
ENDED: Final = frozenset({"FINISHED", "FAILED", "KILLED"})
MAX_SHOWN: Final = 300
"""Most characters of the server's message that ours repeats."""
MAX_CODE: Final = 60
MAX_ANSWER: Final = 1 << 23
"""Most bytes of an answer; a run with tens of thousands of metrics needs less."""
MAX_EXPERIMENTS: Final = 1000
RETRIED: Final = frozenset({408, 409, 425, 429, 499})
"""Statuses below 500 after which a later request may succeed."""
_REDIRECTS: Final = f"redirects, perhaps to a login page or to https; check {URI}"
ADVICE: Final[Mapping[int | str, str]] = {
    **dict.fromkeys((301, 302, 303, 307, 308), _REDIRECTS),
    401: "does not accept the credentials, which are missing, wrong or expired; set MLFLOW_TRACKING_USERNAME and"
    " _PASSWORD, or a new MLFLOW_TRACKING_TOKEN",
    403: "does not permit it; ask for the permission to edit the run's experiment",
    404: f"has no MLflow API at {API}; check {URI}",
    "run": f"has no such run; set {RUN} or sinks.mlflow.run to a run that it has",
}
"""Status or error code -> what is wrong and what to do."""


class LoggedMetric(msgspec.Struct, gc=False):
    """One value to log under a key."""

    key: str
    value: float
    timestamp: int
    """Milliseconds since the epoch."""
    step: int


class Latest(msgspec.Struct):
    """A key's newest step; its value is left out, as it may be a text such as NaN."""

    key: str
    step: int = 0


class Info(msgspec.Struct):
    """The server's record of a run, without what was logged to it."""

    run_id: str
    experiment_id: str = ""
    status: str = "RUNNING"
    lifecycle_stage: str = "active"
    end_time: int | None = None
    """Milliseconds since the epoch; None while it runs."""

    @property
    def ended(self) -> str | None:
        """Return how the run ended, or None while it takes metrics."""
        return "deleted" if self.lifecycle_stage == "deleted" else self.status if self.status in ENDED else None


class Tag(msgspec.Struct):
    """A tag of a run."""

    key: str
    value: str = ""


class Data(msgspec.Struct):
    """The metrics and tags that were logged to a run."""

    metrics: list[Latest] = []
    tags: list[Tag] = []

    @property
    def program(self) -> str:
        """Return the file name of the program that began the run, as MLflow's clients record it, or ""."""
        return next((Path(tag.value).name for tag in self.tags if tag.key == SOURCE), "")


class Run(msgspec.Struct):
    """A run, and what was logged to it."""

    info: Info
    data: Data = msgspec.field(default_factory=Data)


class _Experiment(msgspec.Struct):
    experiment_id: str


class _Answer(msgspec.Struct):
    """The fields of all answers together, errors included."""

    run: Run | None = None
    runs: list[Run] = []
    experiments: list[_Experiment] = []
    error_code: str | None = None
    message: str = ""


class Api:
    """Calls the tracking server; each method raises Retryable, Refused or BadBatch."""

    def __init__(self, server: Server, timeout: float) -> None:
        self._url = server.url
        self._headers = {"User-Agent": USER_AGENT, **server.headers}
        self._http = HttpClient(server.url, timeout=timeout, max_bytes=MAX_ANSWER, tls=server.tls)

    def get_run(self, run: str) -> Run:
        """Return a run with the newest step of each of its metrics."""
        if (found := self._ask("GET", f"/runs/get?{urlencode({'run_id': run})}").run) is None:
            raise self._no_server()
        return found

    def log_batch(self, run: str, metrics: list[LoggedMetric]) -> None:
        """Store metrics in a run."""
        self._ask("POST", "/runs/log-batch", msgspec.json.encode({"run_id": run, "metrics": metrics}), is_batch=True)

    def begun(self, user: str, since: int) -> Sequence[Run]:
        """Return the newest runs of a user that began after `since` (ms since the epoch)."""
        listing = self._ask("POST", "/experiments/search", json.dumps({"max_results": MAX_EXPERIMENTS}).encode())
        name = user.replace("'", "")
        query = {
            "experiment_ids": [each.experiment_id for each in listing.experiments],
            "filter": f"attributes.start_time >= {since} and tags.`mlflow.user` = '{name}'",
            "order_by": ["attributes.start_time DESC"],
            "max_results": MAX_RUNS,
        }
        return self._ask("POST", "/runs/search", json.dumps(query).encode()).runs

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _ask(self, method: str, path: str, body: bytes | None = None, *, is_batch: bool = False) -> _Answer:
        try:
            answer = self._http.request(method, API + path, body, self._headers)
        except Retryable as problem:
            text = str(problem).removeprefix(f"{urlsplit(self._url).netloc}: ")
            raise Retryable(f"{self._url}: {text}", after=problem.after) from None
        content = None
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            content = msgspec.json.decode(answer.body, type=_Answer, strict=False)
        if answer.status != 200 or (content and content.error_code):
            raise self._blame(answer, content or _Answer(), is_batch=is_batch)
        if content is None:
            raise self._no_server()
        return content

    def _no_server(self) -> Refused:
        return Refused(f"{self._url} does not answer as an MLflow server; check {URI}")

    def _blame(self, answer: HttpAnswer, fault: _Answer, *, is_batch: bool) -> Exception:
        """Return the exception for an error; BadBatch, which blames the points, only for a request that stores them."""
        status, url = answer.status, self._url
        code = " ".join(filter(None, (str(status), answer.says(fault.error_code or "", MAX_CODE))))
        says = f"{answer.says(fault.message, MAX_SHOWN) or 'no message'} ({code})"
        if status in RETRIED or status >= 500:
            return Retryable(f"{url}: {says}", after=retry_after(answer.headers))
        if is_batch and status in (400, 413, 422):
            return BadBatch(f"{url}: {says}")
        is_run = status == 404 and fault.error_code == "RESOURCE_DOES_NOT_EXIST"
        advice = ADVICE["run"] if is_run else ADVICE.get(status, "refuses the request")
        return Refused(f"{url} {advice}: {says}")
