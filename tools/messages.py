"""Every message that a user can meet, from the sources: texts of errors, of log records and of faults."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/golden/messages.txt"
ROOMS = ("agent", "sinks")
MAKERS = {"refusal", "_wrong", "_report", "Fault", "Notice", "error"}
"""Functions and classes, besides exceptions, that make or print a message."""
_parsed = functools.cache(ast.parse)
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log", "resolved", "tell"}
LOGGERS = {"log", "logger", "_log", "_logger", "_notices"}


def messages() -> str:
    """Return a line for each message: the module, and the text with its expressions in braces."""
    lines = []
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT)
        lines += [f"{name}: {text}\n" for text in of_source(path.read_text(encoding="utf-8"))]
    return "".join(lines)


def of_source(source: str) -> Iterator[str]:
    """Yield the messages of a module, each once, in their order."""
    tree = _parsed(source)
    nodes = [*ast.walk(tree)]
    constants = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
    }
    raised = {id(node.exc) for node in nodes if isinstance(node, ast.Raise)}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    messages_of: dict[str, None] = {}
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        args = call.args
        match call.func:
            case ast.Attribute(attr=word, value=ast.Name(id=owner) | ast.Attribute(attr=owner)) if word in LEVELS:
                args = (
                    args[{"log": 2, "resolved": 1, "tell": 1}.get(word, 0) :]
                    if owner.endswith(("logger", "notices"))
                    else args
                )
                is_message = owner in LOGGERS
            case ast.Name(id=word) | ast.Attribute(attr=word):
                is_message = word in MAKERS or word in _exceptions()
            case _:
                is_message = False
        if is_message or id(call) in raised:
            values = [part for arg in args for part in (arg.elts if isinstance(arg, ast.List) else [arg])]
            texts = [
                _text(constants.get(value.id, value) if isinstance(value, ast.Name) else value) for value in values
            ]
            messages_of |= dict.fromkeys(text for text in texts if " " in text.strip())
    yield from messages_of


def _text(node: ast.expr) -> str:
    """Return a string expression as text, expressions in it in braces; nothing for any other."""
    match node:
        case ast.Constant(value=str(text)):
            return text.replace("\n", "\\n")
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.IfExp(body=body, orelse=other):
            return " | ".join(filter(None, (_text(body), _text(other))))
    return ""


@functools.cache
def _exceptions() -> set[str]:
    """Return the names of the exceptions that the sources define, and of Python's that reach users."""
    names = {"Exception", "ValueError", "TypeError", "OSError", "LookupError", "ImportError", "RuntimeError"}
    classes = [
        (node.name, {ast.unparse(base) for base in node.bases})
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(_parsed(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    while more := {name for name, bases in classes if bases & names} - names:
        names |= more
    return names
