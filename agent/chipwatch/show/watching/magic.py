"""The magics of IPython and Jupyter: `%chipwatch STATEMENT`, and `%%chipwatch OPTIONS` for a cell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Event, Thread
from typing import Any, Final

from chipwatch.show.watching.view import html
from chipwatch.show.watching.watch import Watch, watch

RUN: Final = "chipwatch_run"
"""Name of the notebook's variable with the last watch."""
PAUSE: Final = 2.0
"""Seconds between two updates of the live view."""


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
