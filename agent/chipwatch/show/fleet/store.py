"""Reads the fleet from a store with Prometheus' API, by PromQL."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import cache
from math import inf, isfinite
from typing import Final, Literal
from urllib.parse import urlencode, urlsplit

import msgspec

from chipwatch.base.redaction import one_line
from chipwatch.contract.errors import CommandError, ConfigError, Refused, Retryable
from chipwatch.jobs.verdict.rules import RULES, Seen
from chipwatch.net.aws_signer import Login, Signer
from chipwatch.net.faults import url_fault
from chipwatch.net.http_client import ClientTls, HttpClient
from chipwatch.show.fleet.node import CPU, GPUS, KINDS, LIMITS, MACHINE, MOST_PERCENT, FleetNode, short, summarise
from chipwatch.show.fleet.page import BASE_UNITS, OF_ONE, RATIO, names, series_of
from chipwatch.show.fleet.poll import LOOK, Access
from chipwatch.show.report.devices import FAMILIES

TIMEOUT: Final = 20.0
MAX_BYTES: Final = 64 << 20
"""Most bytes of an answer: 10,000 nodes have 80,000 series of one figure, with 500 bytes each."""
MAX_ROWS: Final = 400_000
"""Most series in the answers of one round of queries; each takes 0.7 kB of memory."""
MAX_LABELS: Final = 12
"""Most labels of a series, on average."""
NODE_LABELS: Final = ("Hostname", "hostname", "host_name", "k8s_node", "node", "instance")
"""Labels that may hold the name of a node, the best one first."""
BY: Final = ", ".join(NODE_LABELS)
MAX_NAME: Final = 253
"""Most characters of a DNS name (RFC 1035)."""
RULE: Final = "chipwatch_rule"
"""Label that our queries add: the metric's name, which functions of PromQL drop; or OF_ONE for a RATIO up to 1."""
FORGOTTEN: Final = "1h"
"""Time for which a node that stopped sending is shown as silent."""
STEP, VALUES = 150, 24
"""Seconds of one value in a graph of the last hour, and the number of its values."""
AMAZON: Final = re.compile(r"aps-workspaces(?:-fips)?\.([a-z0-9-]+)\.(?:api\.aws|amazonaws\.com(?:\.cn)?)")
"""https://docs.aws.amazon.com/prometheus/latest/userguide/AMP-APIReference.html"""
Sample = tuple[Mapping[str, str], float, float]
"""The labels of one series, a value of it, and its time (s since the epoch)."""


class StoreRow(msgspec.Struct):
    """One series in the JSON of an answer; its value is a time and a text, and a range has several."""

    metric: dict[str, str]
    value: tuple[float, str] = (0.0, "NaN")
    values: list[tuple[float, str]] = []


class StoreVector(msgspec.Struct):
    """The list of series in the JSON of an answer."""

    result: list[StoreRow]


class StoreAnswer(msgspec.Struct):
    """The JSON of a successful query."""

    status: Literal["success"]
    data: StoreVector
    warnings: list[str] = []


class StoreFault(CommandError):
    """The store did not answer, or refused the query."""


class PromClient:
    """Sends PromQL queries to a store; used by one thread."""

    def __init__(self, url: str, access: Access) -> None:
        """`url`: the store's address up to /api/v1. Raise ConfigError if it or a secret is invalid."""
        if fault := url_fault(url):
            raise ConfigError(f"--prometheus: {fault}")
        self._url, self._access, parts = url.rstrip("/"), access, urlsplit(url)
        self._host, self._secure = parts.hostname or "", parts.scheme == "https"
        amazon = AMAZON.fullmatch(self._host)
        self._signer = Signer(Login(amazon[1], self._url), "aps") if amazon else None
        access.headers(self._host, secure=self._secure)
        tls = ClientTls(ca_file=access.ca_file, ca_option="--ca-file")
        self.warning = ""
        """The store's last warning about an answer, for example that a part is missing; "" without one."""
        self._client = HttpClient(self._url, timeout=TIMEOUT, max_bytes=MAX_BYTES, tls=tls)

    def ask(self, query: str, most: int = MAX_ROWS, **span: float) -> list[Sample]:
        """
        Return the finite samples of a query; raise StoreFault, also if there are more than `most`.

        `span`: the `start`, the `end` and the `step` (s) of a range; without it, the query is about now.
        """
        body, path = urlencode({"query": query, **span}).encode(), f"/api/v1/query{'_range' * bool(span)}"
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        headers |= self._access.headers(self._host, secure=self._secure)
        try:
            if self._signer and "Authorization" not in headers:
                headers = self._signer.sign(f"{self._url}{path}", body, headers)
            answer = self._client.request("POST", path, body, headers)
        except ImportError as problem:
            raise StoreFault("Amazon's store needs botocore: install chipwatch[cloudwatch]") from problem
        except (Refused, Retryable) as problem:
            raise StoreFault(f"{self._host}: {problem}") from problem
        if answer.status != 200:
            words = answer.says(answer.body.decode(errors="replace"))
            if self._signer and answer.status == 403:
                self._signer.expired(words)  # the next query finds the credentials again
            raise StoreFault(f"{self._host}: status {answer.status}: {words or 'no word why'}")
        if answer.body.count(b"{") > 2 * most + 9 or answer.body.count(b",") > MAX_LABELS * most + 9:
            raise StoreFault(f"{self._host}: its answers have more than {MAX_ROWS:,} series, too many labels or values")
        try:
            reply = msgspec.json.decode(answer.body, type=StoreAnswer)
            rows = [(row.metric, float(text), at) for row in reply.data.result for at, text in (row.value, *row.values)]
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise StoreFault(f"{self._host}: the answer is not one of Prometheus' API; is the URL right?") from problem
        if texts := [text for text in reply.warnings if not text.startswith("PromQL info")]:
            self.warning = f"{self._host} warns: {one_line(texts[0], 200)}"
        return [sample for sample in rows if isfinite(sample[1])]

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@cache
def own_names() -> dict[str, tuple[str, float]]:
    """Return, for each metric, its name in a store and the factor from there to our unit."""
    return {entry.metric.name: (name, entry.factor) for name, entry in reversed(names().items())}


def name_of(metric: str) -> str:
    """Return the name of one of our metrics in a store."""
    return own_names()[metric][0]


def _either(*kinds: str) -> str:
    """Return a query for the metrics of KINDS with these kinds."""
    wanted = {metric for metric, kind in KINDS.items() if kind in kinds}
    return " or ".join(name for name, entry in names().items() if entry.metric.name in wanted and name != OF_ONE)


def _of_one(series: str = RATIO) -> str:
    """Return a query for RATIO on the nodes with DCGM 4.7, where it is 0 to 1; it adds the label RULE."""
    new = " or ".join(f"count by ({BY}) ({name})" for name in BASE_UNITS)
    return f'label_replace({series} and on ({BY}) ({new}), "{RULE}", "{OF_ONE}", "", "")'


def _wrong() -> str:
    """Return a query for the series that a rule of the verdict may fault: gauges now, increases in the last hour."""
    terms, units = [], own_names()
    for metric in dict.fromkeys(rule.metric for rule in RULES if rule.metric in units):
        name, factor = units[metric]
        low, high = LIMITS.get(metric, (-inf, 0.0))
        series = name if metric in LIMITS else f"increase({name}[1h])"
        bounds = [f"{series} < {low / factor:g}"] * (low > -inf) + [f"{series} > {high / factor:g}"] * (high < inf)
        terms += [f'label_replace({bound}, "{RULE}", "{metric}", "", "")' for bound in bounds]
    return " or ".join(terms)


def _lately() -> str:
    """Return a query for the mean utilization (%) of each target's accelerators in the last STEP seconds."""
    series = {name: f"avg_over_time({name}[{STEP}s])" for name in _either("used").split(" or ")}
    series[OF_ONE] = _of_one(series[RATIO])
    used = " or ".join(f"{names()[name].factor:g} * {mean}" for name, mean in series.items())
    return f"avg by ({BY}) (max by ({BY}, {', '.join(FAMILIES)}) (({used}) >= 0 <= {MOST_PERCENT:g}))"


class PromStore:
    """Asks a store every `interval` seconds on a daemon thread; calls `wake` after each answer."""

    def __init__(self, url: str, access: Access, interval: float, wake: Callable[[], None], by: str = "") -> None:
        """
        Take the store's address up to /api/v1, and the label by which nodes are grouped, or "".

        Raise ConfigError if the address or a secret is invalid.
        """
        self._client, self.interval, self._wake, self._by = PromClient(url, access), interval, wake, by
        self.labels: dict[str, list[str]] = {}
        """Node -> the values of the label."""
        self.hour: Iterator[tuple[float, str, float]] = iter(())
        """Times (s since the epoch) in the last hour, each with a node and its utilization (%) then."""
        self.url, self.access = url, access
        self._lines, self._aliases = dict[str, FleetNode](), dict[str, str]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self.trouble = f"{urlsplit(url).hostname}: no answer yet"
        self.is_complete = False
        used, keys = _either("used", "cpu"), ", ".join(filter(None, (BY, by)))
        self._queries = {
            "": f"{_of_one()} or {_either('used')}", "power": _either("power"),
            "state": _either("state", "last xid"), "gpus": _either("job"), "count": _either("count"),
            "delivery": _either("oldest", "gone"), "wrong": _wrong(),
            CPU: f'{name_of(CPU)} or 1 - avg by ({BY}) (irate(node_cpu_seconds_total{{mode="idle"}}[5m]))',
            "nodes": " or ".join(f"count by ({keys}) (last_over_time({name}[{FORGOTTEN}]))"
                                 for name in [*used.split(" or "), "node_load1"]),
            MACHINE: f'count by ({keys}) (last_over_time({MACHINE}{{{by}!=""}}[{FORGOTTEN}]))' if by else "",
        }  # fmt: skip

    def start(self) -> None:
        """Start asking."""
        self._thread.start()

    def close(self) -> None:
        """Stop asking; do not wait for an answer that is late."""
        self._stop.set()
        self._thread.join(0.5)

    def lines(self) -> list[FleetNode]:
        """Return the last line of each node."""
        return [*self._lines.values()]

    def _run(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                self._client.warning = ""
                self._lines = {node.node: node for node in self._nodes(time.time_ns() / 1e9)}
                self.trouble = self._client.warning
            except (StoreFault, ConfigError) as problem:
                self.trouble = str(problem)
            self.is_complete = True
            self._wake()
            self._stop.wait(max(0.5, self.interval - (time.monotonic() - started)))
        self._client.close()

    def recall(self) -> None:
        """Ask for the last hour once there are nodes; if that fails, say so until the next answer."""
        while not self._lines:
            time.sleep(LOOK)
        end = time.time_ns() // 10**9 // STEP * STEP
        span = range(end - (VALUES - 2) * STEP, end + 1, STEP)
        try:
            with closing(PromClient(self.url, self.access)) as client:
                told = client.ask(_lately(), VALUES * len(self._lines), start=span[0], end=end, step=STEP)
            self.hour = ((at - STEP / 2, _name(labels, self._aliases), load) for labels, load, at in told if at in span)
        except (StoreFault, ConfigError) as problem:
            self.trouble = f"graphs begin now: {problem}"
        self._wake()

    def _nodes(self, at: float) -> Iterator[FleetNode]:
        answers, left = dict[str, list[Sample]](), MAX_ROWS
        for key, query in self._queries.items():
            answers[key] = self._client.ask(query, left) if query else []
            left -= len(answers[key])
        every = [labels for samples in answers.values() for labels, *_ in samples]
        aliases = self._aliases = _aliases(every)
        self.labels = _values(self._by, every, aliases)
        answers.pop(MACHINE)
        seen: dict[str, list[Seen]] = defaultdict(list)
        agents: dict[str, set[str]] = defaultdict(set)
        for key, samples in answers.items():
            for labels, value, _ in samples:
                node = _name(labels, aliases)
                if key == "delivery":  # only agents send these
                    agents[node].add(labels.get("instance", ""))
                if key == "nodes":
                    seen.setdefault(node, [])
                else:
                    seen[node] += _readings(key, labels, value)
        for node, readings in seen.items():
            line = summarise(node, readings, at)
            if not readings:
                last = self._lines.get(node)
                line = FleetNode(node, "no samples any more", last.seen if last else 0.0)
            if len(senders := sorted(agents[node])) > 1:
                text = f"figures of {len(senders)} agents: {short(', '.join(senders))}"
                line.reason = f"{line.reason}; {text}" if line.reason else text
            yield line


def _aliases(series: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return host of an instance -> best name of its node. Gateways, from which several nodes send, are left out."""
    words: dict[str, dict[str, str]] = defaultdict(dict)
    gateways = set()
    for labels in series:
        host = host_of(labels)
        for key in NODE_LABELS[:-1]:
            if host and labels.get(key) and words[host].setdefault(key, labels[key]) != labels[key]:
                gateways.add(host)
    return {host: node_of(by_label) for host, by_label in words.items() if host not in gateways}


def _name(labels: Mapping[str, str], aliases: Mapping[str, str]) -> str:
    return aliases.get(host_of(labels), "") or node_of(labels)


def _values(by: str, series: Iterable[Mapping[str, str]], aliases: Mapping[str, str]) -> dict[str, list[str]]:
    """Return node -> the values of the label `by` on its series."""
    values: dict[str, dict[str, int]] = defaultdict(dict)
    for labels in series:
        if word := own_label(labels, by):
            values[_name(labels, aliases)][short(word)] = 1
    return {node: [*words] for node, words in values.items()}


def _readings(key: str, labels: Mapping[str, str], value: float) -> Iterator[Seen]:
    """Convert a sample of the query `key` to readings."""
    if key == CPU:
        yield Seen(CPU, {}, 100 * value)
    elif key == "wrong":
        metric = labels.get(RULE, "")
        if entry := own_names().get(metric):
            yield Seen(metric, labels, value * entry[1], None if metric in LIMITS else value * entry[1])
    elif key == "gpus":
        yield Seen(GPUS, {**labels, "job": own_label(labels, "job")}, value)
    elif series := series_of(labels.get(RULE) or labels.get("__name__", ""), labels):
        yield Seen(series.metric, series.dims, value * series.factor)
        yield from (Seen(GPUS, job, 1.0) for job in series.jobs)


def host_of(labels: Mapping[str, str]) -> str:
    """Return the label `instance` without its port."""
    host, _, port = labels.get("instance", "").rpartition(":")
    return host if host and port.isdecimal() else labels.get("instance", "")


def node_of(labels: Mapping[str, str]) -> str:
    """Return the name of the node that sent a series, on one line and cut to MAX_NAME."""
    name = next((labels[key] for key in NODE_LABELS[:-1] if labels.get(key)), "") or host_of(labels)
    return short(name, MAX_NAME) or "-"


def own_label(labels: Mapping[str, str], key: str) -> str:
    """Return a label of ours, which Prometheus renames if the target has it, too."""
    return labels.get(f"exported_{key}") or labels.get(key, "")
