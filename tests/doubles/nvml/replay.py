"""Plays a file of `chipwatch check --capture`: its calls of NVML as a library, its files as folders."""

import ctypes
import json
from pathlib import Path
from typing import Any

from chipwatch.commands.capture import TEXTS, plain

UNSUPPORTED = 3


class Replay:
    """Answers as the captured library did: the answers of the same call one after the other, the last one again."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._handles: dict[int | None, int] = {}
        self._answers: dict[str, list[tuple[int, list[Any]]]] = {}
        for row in rows:
            key = json.dumps([row["call"], row["asked"]])
            self._answers.setdefault(key, []).append((row["code"], row.get("answer", row["asked"])))
        self._names = {row["call"] for row in rows}
        self.unknown: list[str] = []
        """Calls that the capture lacks."""

    def __getattr__(self, name: str):
        if name == "nvmlErrorString":
            return lambda code: b"Error %d" % code
        if name not in self._names:
            raise AttributeError(name)

        def call(*args: Any) -> int:
            asked = [as_captured(name, arg, self._handles) for arg in args]
            key = json.dumps([name, asked])
            if not (answers := self._answers.get(key) or self._with_other_results(name, args, asked)):
                self.unknown.append(key)
                return UNSUPPORTED
            code, answer = answers.pop(0) if len(answers) > 1 else answers[0]
            for arg, value in zip(args, answer, strict=True):
                fill(getattr(arg, "_obj", arg), value, self._handles)
            return code

        return call

    def _with_other_results(self, name: str, args: tuple[Any, ...], asked: list[Any]) -> list[tuple[int, list[Any]]]:
        """Return the answers of a call whose numbers for results held something else, as after another order of calls."""
        are_results = [isinstance(getattr(arg, "_obj", None), ctypes._SimpleCData) for arg in args]
        for key, answers in self._answers.items():
            call, values = json.loads(key)
            if call == name and all(
                is_result or mine == kept for is_result, mine, kept in zip(are_results, asked, values, strict=True)
            ):
                return answers
        return []


def as_captured(name: str, argument: Any, handles: dict[int | None, int]) -> Any:
    """Return an argument as the capture has it."""
    value = plain(name, argument, handles)
    return "" if name in TEXTS and isinstance(value, str) else value


def fill(argument: Any, value: Any, handles: dict[int | None, int]) -> None:
    """Write an answer into an argument."""
    if isinstance(argument, ctypes.c_void_p):
        if value and not argument.value:
            argument.value = 0x1000 + value["handle"]
            handles[argument.value] = value["handle"]
    elif isinstance(argument, ctypes.Array):
        try:
            data = bytes.fromhex(value)
        except ValueError:
            data = value.encode()
        ctypes.memmove(argument, data, min(len(data), len(argument)))
    elif hasattr(argument, "value"):
        argument.value = value


def load(file: Path, folder: Path) -> Replay:
    """Write the files of a capture into `folder`/sys and `folder`/proc; return its calls."""
    captured = json.loads(file.read_text())
    for name, content in captured["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict) and "link" in content:
            path.symlink_to(content["link"])
        elif content is not None:
            path.write_bytes(bytes.fromhex(content["hex"]) if isinstance(content, dict) else content.encode())
    for name, content in captured["files"].items():
        if content is None and not (folder / name).exists():
            (folder / name).touch()
    return Replay(captured["nvml"])
