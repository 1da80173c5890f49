"""The configuration of one endpoint, the filter of its series, and the reader of its pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chipwatch.contract.collector import MOST_POINTS
from chipwatch.host import exposition
from chipwatch.net.faults import header_fault, url_fault

Filters = tuple[str, ...] | Mapping[str, Mapping[str, str]]
RESERVED: Final = frozenset({"host", "accept", "accept-encoding", "connection", "content-length", "transfer-encoding"})
"""Headers that a user may not set, because the collector sets them."""


class ScrapeFailed(Exception):
    """The scrape failed; the message says why, without secrets."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a page of metrics, and how to scrape it."""

    url: str = ""
    """Address of the page: http://HOST:PORT/metrics, or https."""
    filters: Filters = ()
    """Regexes searched in ENDPOINT.METRIC; or a table of such regexes to tables of label = "regex". All unless set."""
    interval: float | None = None
    """Seconds between two scrapes; every tick unless set."""
    timeout: float = 5.0
    """Seconds that a scrape may take, including the DNS lookup."""
    headers: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Headers to send: a text, {env = "VARIABLE"} or {file = "/path"}, read at each scrape."""
    bearer_token_file: Path | None = None
    """File with the bearer token, read at each scrape."""
    ca_file: Path | None = None
    """CA certificates to trust, in PEM; the system's unless set."""
    cert_file: Path | None = None
    """Client certificate, in PEM."""
    key_file: Path | None = None
    """Key of cert_file, unless that contains it."""
    insecure: bool = False
    """Accept any certificate; a man in the middle can then read the headers."""
    max_bytes: int = 16_000_000
    """Size limit of a page in bytes, uncompressed."""
    max_series: int = 5000
    """Limit of series in a page, at most 20,000; the rest is left out, with a warning."""

    def check(self) -> None:
        """Raise ValueError for an invalid value."""
        if fault := url_fault(self.url):
            raise ValueError(f"url: {fault}")
        ScrapeFilter(self.filters)
        for key, seconds in (("interval", self.interval), ("timeout", self.timeout)):
            if seconds is not None and not 0 < seconds <= 86400:
                raise ValueError(f"{key}: expected seconds above 0, at most 86400, got {seconds:g}")
        if self.max_bytes < 1:
            raise ValueError(f"max_bytes: expected at least 1, got {self.max_bytes}")
        if not 1 <= self.max_series <= MOST_POINTS:
            raise ValueError(
                f"max_series: expected 1 to {MOST_POINTS:,}, all that a reading takes, got {self.max_series:,}"
            )
        if self.key_file and not self.cert_file:
            raise ValueError("key_file: cert_file is not set; set it too")
        for name, value in self.headers.items():
            if fault := _fault_of(name, value):
                raise ValueError(f"headers: {fault}")
        if self.bearer_token_file and "authorization" in map(str.lower, self.headers):
            raise ValueError("bearer_token_file: the header Authorization is set too; remove one of them")

    @property
    def shown(self) -> str:
        """The address for messages, without its query, which may have a secret."""
        return self.url.partition("?")[0].partition("#")[0]


def _fault_of(name: str, value: str | Mapping[str, str]) -> str | None:
    if not isinstance(value, str) and [*value] not in (["env"], ["file"]):
        return f'{name}: expected a text, {{env = "VARIABLE"}} or {{file = "/path"}}'
    return header_fault(name, value if isinstance(value, str) else "", RESERVED)


class ScrapeFilter:
    """
    Selects series by filters in the two forms of W&B: a list of regexes, or a table of regexes to regexes of labels.

    https://docs.wandb.ai/ref/python/sdk/classes/settings/ (x_stats_open_metrics_filters). A regex may match anywhere,
    as in W&B's core. Older clients matched from the start; their filters (`.*name`) also work here.
    """

    def __init__(self, filters: Filters) -> None:
        """Compile `filters`; raise ValueError."""
        table = filters if isinstance(filters, Mapping) else {text: {} for text in filters}
        self._rules = [
            (_regex(metric), {label: _regex(text) for label, text in labels.items()})
            for metric, labels in table.items()
        ]

    def takes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return True if a series is selected; `name`: ENDPOINT.METRIC."""
        return not self._rules or any(
            metric.search(name) and all(label in labels and text.search(labels[label]) for label, text in rule.items())
            for metric, rule in self._rules
        )


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as problem:
        raise ValueError(f"filters: {text!r} is not a regular expression: {problem}") from None


class PageReader(exposition.ExpositionReader):
    """Reads the pages of an endpoint: adds the dimension `endpoint`, and selects series by the filters."""

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        chosen = ScrapeFilter(endpoint.filters)

        def takes(metric: str, labels: Mapping[str, str]) -> bool:
            return chosen.takes(f"{name}.{metric}", labels)

        def dims(labels: dict[str, str]) -> Mapping[str, str]:
            if "endpoint" in labels:
                theirs = "exported_endpoint"
                while theirs in labels:
                    theirs = f"exported_{theirs}"
                labels[theirs] = labels.pop("endpoint")
            return {**labels, "endpoint": name}

        super().__init__(endpoint.max_series, dims, takes)
