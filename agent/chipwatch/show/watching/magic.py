"""The magics of IPython and Jupyter: `%chipwatch STATEMENT`, `%%chipwatch OPTIONS` for a cell, and what they draw."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from importlib import import_module
from statistics import fmean
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from chipwatch.jobs.device_key import device_label, device_of
from chipwatch.show.report.devices import FIGURES
from chipwatch.show.watching.watch import Watch, watch

if TYPE_CHECKING:
    from chipwatch.history.columns import RecordedSeries

RUN: Final = "chipwatch_run"
"""Name of the notebook's variable with the last watch."""
PAUSE: Final = 2.0
"""Seconds between two updates of the live view."""
SHOWN: Final = (
    *FIGURES["utilization"], *FIGURES["memory"], "process.cpu.utilization", "process.memory.utilization",
    "cpu.utilization", "memory.utilization",
)  # fmt: skip
"""Metrics with a graph, all in percent."""
MOST: Final = 32
"""Most graphs of a view."""
DOTS: Final = 120
"""Most dots of a graph; each is a mean of several readings."""
WIDTH, HEIGHT = 240, 24


def register(shell: Any) -> None:
    """Add the magics to a shell of IPython."""

    def chipwatch(line: str, cell: str | None = None) -> Any:
        """
        Watch a statement, `%chipwatch train()`, or a cell, `%%chipwatch interval=0.5, sinks="mlflow"`.

        Options are arguments of chipwatch.watch; `live=False` shows the summary at the end only. The variable
        chipwatch_run has the watch: chipwatch_run.frame(), chipwatch_run.report("report.html").
        """
        __tracebackhide__ = True
        options = "" if cell is None else line
        given = {"live": True} | eval(f"dict({options})", shell.user_ns)  # noqa: S307  # the user's own line
        live = given.pop("live")
        run = shell.user_ns[RUN] = watch(**given).start()
        with _shown(run, is_notebook=hasattr(shell, "kernel"), live=live):
            return _value(shell, line if cell is None else cell)

    import_module("IPython.core.magic").no_var_expand(chipwatch)
    shell.register_magic_function(chipwatch, "line_cell")


def _value(shell: Any, code: str) -> Any:
    """Run code in the user's namespace; return the value of its last expression, which the shell prints."""
    __tracebackhide__ = True
    name, last = shell.compile.cache(code), None
    tree = shell.transform_ast(shell.compile.ast_parse(shell.transform_cell(code), name))
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    exec(shell.compile(tree, name, "exec"), shell.user_ns)  # noqa: S102  # the user's own code
    return None if last is None else eval(shell.compile(last, name, "eval"), shell.user_ns)  # noqa: S307


@contextmanager
def _shown(run: Watch, *, is_notebook: bool, live: bool) -> Iterator[None]:
    """Show a started watch and end it after the block; in a notebook, a daemon thread updates the view."""
    tools, ended = import_module("IPython.display"), Event()
    handle: Any = tools.display(run, display_id=True) if is_notebook else None

    def renew() -> None:
        while not ended.wait(PAUSE):
            handle.update(tools.HTML(html(run.summary(), [])))  # 1 kB to read; graphs would need all readings

    thread = Thread(target=renew, name="chipwatch", daemon=True)
    if is_notebook and live:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        run.stop()
        if thread.ident:
            thread.join()
        if handle:
            handle.update(run)
        else:
            tools.display(run)


def html(summary: str, columns: Sequence[RecordedSeries]) -> str:
    """Return a small graph of each metric in SHOWN, and the summary."""
    shown = [column for name in SHOWN for column in columns if column.metric.name == name and column.values]
    rows = "".join(map(_row, shown[:MOST]))
    return f'<table class="chipwatch">{rows}</table><pre>{escape(summary)}</pre>'


def _row(column: RecordedSeries) -> str:
    many = -(-len(column.values) // DOTS)
    parts = (column.values[start : start + many] for start in range(0, len(column.values), many))
    means = [min(100.0, max(0.0, fmean(part))) for part in parts]
    step = WIDTH / max(1, len(means) - 1)
    dots = " ".join(f"{x * step:.0f},{HEIGHT - 1 - y * (HEIGHT - 2) / 100:.1f}" for x, y in enumerate(means))
    name = escape(f"{column.metric.name} {device_label(device_of(column.dims))}".rstrip())
    return (
        f'<tr><td style="text-align:left">{name}</td><td><svg width="{WIDTH}" height="{HEIGHT}" role="img">'
        f'<polyline points="{dots}" fill="none" stroke="currentColor"/></svg></td>'
        f"<td>{column.values[-1]:.0f} % now</td><td>mean {fmean(column.values):.0f} %</td>"
        f"<td>peak {max(column.values):.0f} %</td></tr>"
    )
