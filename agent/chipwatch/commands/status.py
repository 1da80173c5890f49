"""`agent status`: the state of the running agent as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from chipwatch.logs.text import count, duration
from chipwatch.report.table import TableColumn, table


def as_text(answer: Mapping[str, Any]) -> str:
    """Return the answer as text."""
    return "\n".join(_lines(answer))


def as_json(answer: Mapping[str, Any]) -> str:
    """Return the answer as JSON."""
    return json.dumps(answer, indent=1)


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    share = 100 * answer["cpu_seconds"] / max(1e-3, answer["uptime_seconds"])
    yield (
        f"chipwatch {answer['version']}, process {answer['pid']}, running for {duration(answer['uptime_seconds'], 2)},"
        f" {share:.1f} % of a core"
    )
    if answer["not_ready"]:
        yield f"not ready: {answer['not_ready']}"
    rows = [row for name, sink in answer["sinks"].items() for row in _sink(name, sink)]
    for name, source in (*answer["collectors"].items(), *answer["processors"].items()):
        took = f", {1000 * source['seconds']:.1f} ms" if source["state"] == "ok" else ""
        error = f": {source['error']}" if source["error"] else ""
        rows.append((name, f"{source['state']}, {count(source['points'])}{took}{error}"))
    yield from table([TableColumn(cells) for cells in zip(*rows, strict=True)], gap="   ")


def _sink(name: str, sink: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a sink: its counts, the reasons of lost points, and the last error."""
    counts = {"sent": sink["sent"], "rejected": sum(sink["rejected"].values())}
    counts |= {"dropped": sum(sink["dropped"].values()), "kept": sink["kept"]}
    last = sink["seconds_since_delivery"]
    delivery = "nothing delivered yet" if last is None else f"last delivery {duration(last, 2)} ago"
    words = sink.get("status") or "   ".join((*(f"{word} {n:,}" for word, n in counts.items()), delivery))
    yield name, words
    for reason, n in {**sink["rejected"], **sink["dropped"]}.items():
        yield "", f"{n:,}: {reason}"
    if sink["last_error"] and sink["kept"]:
        yield "", f"last error: {sink['last_error']}"
