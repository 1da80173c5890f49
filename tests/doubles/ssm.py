"""
State Manager of Systems Manager in memory: runs the step of a document on nodes, as an association says.

Limits: https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_CreateAssociation.html. After more failures
than max_errors no further node begins, and nodes that are under way finish. A percentage is rounded down, and
max_concurrency is at least 1.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

Run = Callable[[str, str], tuple[int, str]]
"""Runs a command on a node, by its id: exit code and output."""


def begin(
    content: str, association: Mapping[str, Any], nodes: Mapping[str, Mapping[str, str]], run: Run
) -> dict[str, tuple[str, str]]:
    """Return status and output by node; a node that was not touched is Terminated."""
    chosen = [node for node, tags in nodes.items() if _fits(association["targets"], tags)]
    command = command_of(json.loads(content), association["parameters"])
    at_once = max(1, _limit(association["max_concurrency"], len(chosen)))
    errors, most = 0, _limit(association["max_errors"], len(chosen))
    waiting, under_way = deque(chosen), deque[str]()
    found = dict.fromkeys(chosen, ("Terminated", ""))
    while under_way or (waiting and errors <= most):
        while waiting and errors <= most and len(under_way) < at_once:
            under_way.append(waiting.popleft())
        node = under_way.popleft()
        code, output = run(node, command)
        found[node] = ("Failed" if code else "Success", output)
        errors += code != 0
    return found


def command_of(document: Mapping[str, Any], parameters: Mapping[str, str]) -> str:
    """Return the shell script of a document's only step, with its parameters."""
    (step,) = document["mainSteps"]
    assert (document["schemaVersion"], step["action"]) == ("2.2", "aws:runShellScript")
    assert parameters.keys() <= document["parameters"].keys()
    text = "\n".join(step["inputs"]["runCommand"])
    for name, known in document["parameters"].items():
        value = parameters.get(name, known["default"])
        assert value in known["allowedValues"]
        text = text.replace(f"{{{{ {name} }}}}", value)
    assert not re.search(r"\{\{.*?\}\}", text), "a parameter that the document does not have"
    return text


def _fits(targets: list[dict[str, Any]], tags: Mapping[str, str]) -> bool:
    return all(tags.get(one["key"].removeprefix("tag:")) in one["values"] for one in targets)


def _limit(words: str, targets: int) -> int:
    return targets * int(words[:-1]) // 100 if words.endswith("%") else int(words)
