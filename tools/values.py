"""The table of values in the chart's README, from values.yaml and its comments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[1] / "helm/chipwatch"
PAGE = CHART / "README.md"
LONG = 100
"""Characters of a default above which the page names the file."""
WHOLE = {
    "resources",
    "affinity",
    "podSecurityContext",
    "securityContext",
    "nodeSelector",
    "startup",
    "liveness",
    "readiness",
}
"""Maps that are Kubernetes' own: one row each."""
KEY = re.compile(r"^( *)(# )?([A-Za-z]+):(?: |$)")


def page() -> str:
    """Return the chart's README with its table renewed."""
    text = PAGE.read_text(encoding="utf-8")
    head = text[: text.index("## Values\n")]
    return (
        f"{head}## Values\n\nMade from values.yaml by `make golden`.\n\n| value | default | |\n|---|---|---|\n"
        + "".join(_rows())
    )


def _rows() -> list[str]:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    values = yaml.safe_load("\n".join(lines))
    rows, path, said, whole = [], [], "", 99
    for line in lines:
        if comment := re.match(r"^ *# -- (.*)", line):
            said = comment[1]
        elif (key := KEY.match(line)) and (not key[2] or said) and len(key[1]) // 2 <= whole:
            depth, whole = len(key[1]) // 2, 99
            path = [*path[:depth], key[3]]
            default = _value(values, path)
            if key[2]:
                rows.append(f"| `{'.'.join(path)}` | | {said} |\n")
            elif not isinstance(default, dict) or not default or key[3] in WHOLE:
                rows.append(f"| `{'.'.join(path)}` | {_default(default)} | {said} |\n".replace("|  |", "| |"))
                whole = depth
            said = ""
        elif said and (more := re.match(r"^ *# (.*)", line)):
            said += f" {more[1]}"
        elif not line.strip():
            said = ""
    return rows


def _value(values: Any, path: list[str]) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _default(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if len(text) <= LONG else "see values.yaml"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
