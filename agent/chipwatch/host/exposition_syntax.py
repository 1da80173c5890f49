"""The lines of a page of metrics: names, labels, values and comments, in text 0.0.4 or OpenMetrics 1.0."""

from __future__ import annotations

import re
from typing import Final

QUOTED: Final = r'"((?:[^"\\]|\\.)*+)"'
SERIES: Final = re.compile(r'\s*+([^\s{}"#]*+)[ \t]*+(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\})?')
"""Name and labels."""
REST: Final = re.compile(r'[ \t]*+([^\s#{}"]++)(?:[ \t]++([^\s#]++))?+[ \t\r]*+(?:#.*)?')
"""Value, time and an exemplar."""
LABEL: Final = re.compile(rf"\s*+(?:([a-zA-Z_][a-zA-Z0-9_]*+)|{QUOTED})\s*+(?:=\s*+{QUOTED})?\s*+(?:,|$)\s*+")
META: Final = re.compile(rf'#[ \t]++(HELP|TYPE|UNIT)[ \t]++(?:([^\s"]++)|{QUOTED})(?:[ \t]++(.*))?')
NAME: Final = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
ESCAPE: Final = re.compile(r'\\([\\"n])')


def labels_of(name: str, braces: str) -> tuple[str, dict[str, str]]:
    """Return the name and the labels of a series; raise ValueError."""
    labels: dict[str, str] = {}
    braces = braces.strip().removeprefix(",")
    allowed = bool(NAME.fullmatch(name))
    end = 0
    while end < len(braces):
        match = LABEL.match(braces, end)
        if not match:
            raise ValueError(braces)
        plain, quoted, value = match.groups()
        key = plain or unescaped(quoted or "")
        if value is None and quoted and not name:
            name, allowed = key, True  # a UTF-8 name stands in the braces
        elif value is None or not key or key in labels:
            raise ValueError(braces)
        else:
            labels[key] = unescaped(value)
        end = match.end()
    if not allowed:
        raise ValueError(name)
    return name, labels


def number_of(text: str) -> float:
    """Return a number; raise ValueError, also for underscores, which Python allows."""
    if "_" in text:
        raise ValueError(text)
    return float(text)


def unescaped(text: str) -> str:
    """Return a text without the escapes of its form."""
    return ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text


def sentence_of(text: str) -> str:
    """Return a HELP as a sentence."""
    text = " ".join(unescaped(text).split()).rstrip(" .")
    return f"{text[0].upper()}{text[1:]}." if text else "Scraped."
