"""Builds the page: text and tables as plain HTML, charts as data for its script."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Final

from chipwatch.base.redaction import one_line
from chipwatch.base.version import __version__
from chipwatch.contract.errors import CommandError, ConfigError, os_text
from chipwatch.history.columns import Recorded, load, runs_of
from chipwatch.show.report.amounts import utc
from chipwatch.show.report.page.charts import axis, charts
from chipwatch.show.report.page.marks import marks
from chipwatch.show.report.page.tables import MEANINGS, losses, tables, tiles, words
from chipwatch.show.report.page.usage import CHOICES, LONGEST, ReportedRun, ReportedUsage, ReportTerms, terms_of

HERE: Final = Path(__file__).parent
STYLES: Final = ("uplot/uPlot.min.css", "page.css")
SCRIPTS: Final = ("uplot/uPlot.iife.min.js", "page.js")
MOST_FILES: Final = 64


def write(files: Sequence[Path], output: Path, price: float | None, grid: str | None) -> str:
    """Write the page about recordings to a file; return a line about it. Raise CommandError."""
    terms, runs = terms_of(price, grid), runs_of(files)
    if (many := sum(map(len, runs))) > MOST_FILES:
        raise ConfigError(f"report: {many} recordings; a page shows at most {MOST_FILES}")
    if output.exists() and any(output.samefile(path) for run in runs for path in run):
        raise ConfigError(f"--output {output}: this is a recording; name another file")
    text = page([load(*run) for run in runs], terms).encode()
    try:
        output.write_bytes(text)
    except OSError as problem:
        raise CommandError(f"--output {output}: {os_text(problem)}") from problem
    return f"{one_line(str(output))}: {len(text) / 1e6:.1f} MB; open it in a browser"


def page(recordings: Sequence[Recorded], terms: ReportTerms, live: int | None = None) -> str:
    """Return the HTML of the page about recordings; `live`: the number of the first line that its script asks for."""
    runs = [ReportedRun(recorded, name) for recorded, name in zip(recordings, _names(recordings), strict=True)]
    buckets, is_clock = axis(runs)
    starts, ends = zip(*((run.recorded.started, run.recorded.ended) for run in runs), strict=True)
    usage = ReportedUsage(runs, terms)
    events = [marks(run) for run in runs]
    data = {
        "step": buckets[0].step / 1e9,
        "count": buckets[0].count,
        "start": buckets[0].start / 1e9 if is_clock else None,
        "runs": [run.name for run in runs],
        "charts": [*charts(runs, buckets)],
        "lengths": [run.seconds for run in runs],
        **{name: CHOICES[name] for name in ("members", "titles", "judged")},
        "live": None if live is None else {"next": live, "seconds": max(1.0, recordings[0].interval or 1.0)},
        "meanings": MEANINGS,
        "events": [
            {"run": n, "from": (mark.at - buckets[n].start) / 1e9, "to": (mark.until - buckets[n].start) / 1e9,
             "kind": mark.kind, "text": mark.text}
            for n, listed in enumerate(events) for mark in listed
        ],
    }  # fmt: skip
    # Level 6 takes three times as long for 3 %.
    packed = zlib.compress(json.dumps(data, separators=(",", ":"), allow_nan=False).encode(), 5)
    style, script = ("\n".join((HERE / name).read_text("utf-8") for name in names) for names in (STYLES, SCRIPTS))
    parts = {
        "title": escape(runs[0].name if len(runs) == 1 else f"{len(runs)} recordings"),
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:;"
        " base-uri 'none'; form-action 'none'" + "; connect-src 'self'" * (live is not None),
        "style": style,
        "script": script,
        "when": f"{utc(min(starts))} to {utc(max(ends))} UTC",
        "words": words(usage),
        "tiles": "".join(tiles(usage)),
        "losses": "".join(losses(usage)),
        "tables": "".join(tables(usage, events)),
        "data": b64encode(packed).decode(),
        "version": escape(__version__),
        "asks": f"This {'file asks the network for nothing' if live is None else 'page asks only its own server'}.",
    }
    template = (HERE / "page.html").read_text("utf-8")
    return re.sub(r"@@(\w+)@@", lambda match: parts[match[1]], template)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _names(recordings: Sequence[Recorded]) -> list[str]:
    """Return a unique name for each recording: its machine, otherwise its file, otherwise its number and file."""
    files = [recorded.path.name for recorded in recordings]
    dims = [dict(recorded.columns[0].dims) | recorded.host for recorded in recordings]
    hosts = [
        next((each[name] for name in CHOICES["machine"] if each.get(name)), file)
        for each, file in zip(dims, files, strict=True)
    ]
    numbered = [f"{n}: {file}" for n, file in enumerate(files, 1)]
    unique = next(names for names in (hosts, files, numbered) if len({*names}) == len(names))
    return [one_line(name, LONGEST) for name in unique]
