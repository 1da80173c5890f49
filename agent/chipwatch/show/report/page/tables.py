"""The headline and the tables of the page, as plain HTML."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

from chipwatch.base.redaction import one_line
from chipwatch.base.text import duration
from chipwatch.show.report import amounts
from chipwatch.show.report.accelerators import ADVICE, COLUMNS
from chipwatch.show.report.page import usage as sums
from chipwatch.show.report.page.marks import Mark
from chipwatch.show.report.page.usage import CHOICES, LONGEST, Curve, RecordedDevice, ReportedRun, ReportedUsage

ROWS: Final = 500
"""Most rows of a table."""
LOSSES: Final = 3
"""Most losses below the headline."""
JOB: Final = ("job", "namespace", "user")
"""Dimensions that identify a job."""
DOLLARS: Final = "${:,.2f}".format
FORMS: Final[Mapping[str, Callable[[float], str]]] = {
    "%": "{:.0f} %".format, "W": "{:.0f} W".format, "Cel": "{:.0f} °C".format, "1": "{:g}".format,
    "By": amounts.binary, "J": amounts.energy, "USD": DOLLARS,
}  # fmt: skip
MEANINGS: Final[Mapping[str, str]] = {**ADVICE, **CHOICES["meanings"]}
"""State or cause of time -> what it means, and what to do."""
Cell = str | None


def words(usage: ReportedUsage) -> str:
    """Return the headline: the machines, the busy share of their accelerators' time, and the cost."""
    names, lengths = [run.name for run in usage.runs], sorted(run.seconds for run in usage.runs)
    where = " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} others"
    same = lengths[-1] - lengths[0] < 0.01 * lengths[-1]
    long = f"{'' if same else f'{duration(lengths[0], 2)} to '}{duration(lengths[-1], 2)}"
    if not usage.devices:
        no_cost = ", so --price gives no cost" * (usage.terms.dollars_per_hour is not None)
        return escape(f"{where} for {long}; no accelerator was recorded{no_cost}.")
    models = {device.model for _, device in usage.devices if device.model}
    number = f"{len(usage.devices)} {usage.noun}{'s' * (len(usage.devices) > 1)}"
    model = f" ({models.pop()})" if len(models) == 1 else ""
    cost = "" if usage.dollars is None else f", for {DOLLARS(usage.dollars)}"
    busy, spent = _percent(usage.busy / usage.seconds), amounts.spent(usage.seconds, usage.noun)
    return escape(f"{number}{model} on {where} for {long}: {busy} of {spent} busy{cost}.")


def tiles(usage: ReportedUsage) -> Iterator[str]:
    """Yield the figures below the headline: idle time, cost, energy, CO2."""
    terms, price = usage.terms, usage.terms.dollars_per_hour
    idle = usage.seconds - usage.busy
    shown: list[tuple[str, Cell, str]] = []
    if usage.devices:
        shown.append(("idle", _percent(idle / usage.seconds), amounts.spent(idle, usage.noun)))
    if usage.dollars is not None:
        note = "as charged to jobs"
        if price is not None and usage.seconds:
            note = f"{DOLLARS(usage.dollars * idle / usage.whole)} idle, at {DOLLARS(price)} an hour"
        shown.append(("cost", DOLLARS(usage.dollars), note))
    if usage.joules is not None:
        shown.append(("energy", amounts.energy(usage.joules), f"of the {usage.noun}s"))
    if usage.grams is not None:
        shown.append(("CO2", f"{usage.grams / 1000:,.3g} kg", f"{terms.grams_per_kwh:g} g/kWh ({terms.grid})"))
    elif terms.grams_per_kwh is not None:
        shown.append(("CO2", "-", "not counted: no energy of an accelerator was recorded"))
    for run in usage.runs[:1] if not usage.devices else ():
        shown += ((name, value, "on average") for name, value in _cells(run.metrics, "host").items() if value)
    for name, value, note in shown:
        yield f"<div class=tile><dt>{name}</dt><dd>{escape(value or '')}</dd><small>{escape(note)}</small></div>"


def losses(usage: ReportedUsage) -> Iterator[str]:
    """Yield the largest losses of time, each with its cause, cost and meaning."""
    has_price = usage.dollars is not None and usage.terms.dollars_per_hour is not None
    for seconds, cause, worst in usage.losses()[:LOSSES]:
        if (share := seconds / usage.seconds) >= 0.001:
            cost = f", {DOLLARS((usage.dollars or 0) * seconds / usage.whole)}" if has_price else ""
            where = f"most on {worst}" if worst else "on all alike"
            amount = f"{100 * share:.1f} %: {amounts.spent(seconds, usage.noun)}{cost}, {where}"
            meaning = escape(MEANINGS.get(cause, ""))
            yield (
                f"<li><b>{escape(amounts.plain(cause))}</b> <span>{escape(amount)}</span><svg viewBox='0 0 100 1' "
                f"preserveAspectRatio=none><rect width={100 * share:.1f} height=1 /></svg><p>{meaning}</p></li>"
            )


def tables(usage: ReportedUsage, marks: Sequence[Sequence[Mark]]) -> Iterator[str]:
    """Yield the tables; `marks`: the events of each recording."""
    runs = usage.runs
    told = [run for run in runs if runs[1:] or run.recorded.broken]
    for title, rows in (
        ("Recordings", [(run, _of_run(ReportedUsage([run], usage.terms))) for run in told]),
        ("Devices", [(run, _of_device(device)) for run, device in usage.devices]),
        ("Jobs", [(run, row) for run in runs for row in _of_jobs(run)]),
        ("Processes", [(run, _cells(run.metrics, "process")) for run in runs]),
        ("Events", [(run, _of_mark(mark)) for run, listed in zip(runs, marks, strict=True) for mark in listed]),
    ):
        some = ((run, row) for run, row in rows if any(row.values()))
        yield _table(title, [({"recording": run.name} if runs[1:] else {}) | row for run, row in some])


def _of_run(usage: ReportedUsage) -> dict[str, Cell]:
    run, top = usage.runs[0], usage.losses()[:1]
    return {
        "file": one_line(run.recorded.path.name, LONGEST),
        "began, UTC": amounts.utc(run.recorded.started),
        "length": duration(run.seconds, 2),
        "devices": str(len(run.devices)) if run.devices else None,
        "busy": _percent(usage.busy / usage.seconds) if usage.seconds else None,
        "largest loss": f"{amounts.plain(top[0].cause)} {_percent(top[0].seconds / usage.seconds)}" if top else None,
        "energy": None if usage.joules is None else amounts.energy(usage.joules),
        "cost": None if usage.dollars is None else DOLLARS(usage.dollars),
        "lines not read": str(run.recorded.broken or ""),
    }


def _of_device(device: RecordedDevice) -> dict[str, Cell]:
    figures = {title: cell(device.usage) for title, cell in COLUMNS.items()}
    return {"device": device.usage.name, "model": device.model, **figures, **_cells(device.curves, "device")}


def _of_jobs(run: ReportedRun) -> Iterator[dict[str, Cell]]:
    """Yield a row for each job; a state has its share of the job's accelerator time in the recording."""
    jobs: dict[tuple[str, ...], defaultdict[str, list[Curve]]] = {}
    for name in [name for name in run.metrics if name.startswith("job.")]:
        for curve in run.metrics[name]:
            key = tuple(one_line(curve.dims.get(each, ""), LONGEST) for each in JOB)
            jobs.setdefault(key, defaultdict(list))[name].append(curve)
    for key, curves in sorted(jobs.items()):
        states, idle = sums.totals(curves["job.gpu.time"], "state"), sums.totals(curves["job.gpu.idle.time"], "cause")
        total, (most, cause) = sum(states.values()), max((item[::-1] for item in idle.items()), default=(0.0, ""))
        yield {
            **dict(zip(JOB, key, strict=True)),
            "GPU time": duration(total, 2) if total else None,
            **{state: _percent(states[state] / total) if states[state] else None for state in CHOICES["states"]},
            "idle most by": f"{amounts.plain(cause)} {duration(most, 2)}" if most >= 1 else None,
            **_cells(curves, "job"),
        }


def _cells(curves: Mapping[str, Sequence[Curve]], kind: str) -> dict[str, Cell]:
    """Return title -> cell for the columns that page.toml has for this kind of row; None if it was not recorded."""
    columns = CHOICES["columns"][kind].items()
    values = {title: (sums.figure(curves, name, statistic), form) for title, (name, statistic, form) in columns}
    return {title: None if value is None else FORMS[form](value) for title, (value, form) in values.items()}


def _of_mark(mark: Mark) -> dict[str, Cell]:
    lasted = duration((mark.until - mark.at) / 1e9, 2) if mark.until > mark.at else None
    return {"time, UTC": amounts.utc(mark.at), "event": mark.text, "lasted": lasted}


def _table(title: str, rows: Sequence[Mapping[str, Cell]]) -> str:
    """Return a table without its empty columns; "" without rows."""
    titles = dict.fromkeys(name for row in rows for name in row)
    columns = [name for name in titles if any(row.get(name) for row in rows)]
    head = "".join(f"<th>{escape(name)}" for name in columns)
    cells = ("".join(f"<td>{escape(row.get(name) or '')}" for name in columns) for row in rows[:ROWS])
    body = "".join(f"<tr>{line}" for line in cells)
    rest = f"<p>{len(rows) - ROWS} more rows are left out.</p>" if len(rows) > ROWS else ""
    table = f"<table><thead><tr>{head}<tbody>{body}</table>"
    return f"<section class=table><h2>{title}</h2><div>{table}</div>{rest}</section>" if columns else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
