"""What is configured of one endpoint, and which of its series are wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

Filters = tuple[str, ...] | Mapping[str, Mapping[str, str]]
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header: RFC 9110, section 5.6.2."""
OURS: Final = frozenset({"host", "accept", "accept-encoding", "connection", "content-length", "transfer-encoding"})
"""Headers that the scrape itself decides."""
PLACES: Final = ("env", "file")
"""Where the value of a header may come from, if not from the table itself."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that answers with a page of metrics."""

    url: str = ""
    """Where the page is: http://HOST:PORT/metrics, or https."""
    filters: Filters = ()
    """Regexes searched in ENDPOINT.METRIC; or a table of such regexes to tables of label = "regex". All unless set."""
    interval: float | None = None
    """Seconds between two scrapes; every tick unless set."""
    timeout: float = 5.0
    """Seconds that a scrape may take, from the name's lookup to the last byte."""
    headers: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Headers to send: a text, {env = "VARIABLE"} or {file = "/path"}, read anew at each scrape."""
    bearer_token_file: Path | None = None
    """File whose content is sent as the bearer token; read anew at each scrape."""
    ca_file: Path | None = None
    """Certificates to trust, in PEM; the system's unless set."""
    cert_file: Path | None = None
    """Certificate to show, in PEM."""
    key_file: Path | None = None
    """Key of cert_file, unless that holds it, too."""
    insecure: bool = False
    """Take any certificate: whoever is in between then reads the headers."""
    max_bytes: int = 16_000_000
    """Bytes that a page may have, unpacked."""
    max_series: int = 5000
    """Series that are taken of a page; those after them are left out."""

    def check(self) -> None:
        """Raise ValueError with a sentence where something cannot be."""
        _check_url(self.url)
        Filter(self.filters)
        if (self.interval is not None and not 0 < self.interval <= 86400) or not 0 < self.timeout <= 86400:
            raise ValueError("interval and timeout are seconds above 0, at most 86400")
        if self.max_bytes < 1 or self.max_series < 1:
            raise ValueError("max_bytes and max_series are at least 1")
        if self.key_file and not self.cert_file:
            raise ValueError("key_file is the key of cert_file, which is not set")
        for name, value in self.headers.items():
            _check_header(name, value)
        if self.bearer_token_file and "authorization" in map(str.lower, self.headers):
            raise ValueError("bearer_token_file is itself the header Authorization")

    @property
    def shown(self) -> str:
        """The address as it is told to people: without the query, which may hold a secret."""
        return self.url.partition("?")[0].partition("#")[0]


def _check_url(url: str) -> None:
    """Raise ValueError that tells nothing of the address, for it may hold a secret."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("url cannot be read") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("url is to be http://HOST:PORT/PATH, or https")
    if parts.username is not None or parts.password is not None:
        raise ValueError("url holds a user's name; use the header Authorization, from the environment or a file")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("url holds what must be percent-encoded")


def _check_header(name: str, value: str | Mapping[str, str]) -> None:
    if not TOKEN.fullmatch(name):
        raise ValueError(f"headers: {name!r} is no name of a header")
    if name.lower() in OURS:
        raise ValueError(f"headers: {name} is not for the configuration to say")
    if not isinstance(value, str) and (len(value) != 1 or next(iter(value)) not in PLACES):
        raise ValueError(f'headers: {name} is to be a text, {{env = "VARIABLE"}} or {{file = "/path"}}')
    if isinstance(value, str) and not allowed(value):
        raise ValueError(f"headers: {name} holds what HTTP does not allow")


def allowed(value: str) -> bool:
    """Tell whether HTTP allows this value of a header."""
    return value.isascii() and value.isprintable()


class Answer(NamedTuple):
    """A page as it came."""

    body: bytes
    openmetrics: bool
    """It said that it is OpenMetrics: times are seconds and it ends with # EOF. Else text 0.0.4: milliseconds."""
    whole: bool
    """The transport told where it ends: so its last line is whole even without a line's end."""


class Filter:
    """
    Which series are wanted: W&B's two forms, a list of regexes, or a table of regexes to regexes of labels.

    https://docs.wandb.ai/ref/python/sdk/classes/settings/ (x_stats_open_metrics_filters). All of them search, which is
    what W&B's core does; its older clients matched from the beginning, and their filters (`.*name`) work here as well.
    """

    def __init__(self, filters: Filters) -> None:
        """Compile `filters`; raise ValueError with a sentence."""
        table = filters if isinstance(filters, Mapping) else {text: {} for text in filters}
        self._rules = [
            (_regex(metric), {label: _regex(text) for label, text in labels.items()})
            for metric, labels in table.items()
        ]

    def takes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a series is wanted; `name` is ENDPOINT.METRIC."""
        return not self._rules or any(
            metric.search(name) and all(label in labels and text.search(labels[label]) for label, text in rule.items())
            for metric, rule in self._rules
        )


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as problem:
        raise ValueError(f"filters: {text!r} is no regular expression: {problem}") from None
