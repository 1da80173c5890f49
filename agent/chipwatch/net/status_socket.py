"""The status socket: a Unix socket in the state folder, where a running agent answers commands such as `status`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from chipwatch.base.redaction import redacted
from chipwatch.base.side_thread import SIDE
from chipwatch.contract.errors import CommandError, os_text

log = logging.getLogger(__name__)

NAME: Final = "status.sock"
"""Name of the socket in the state folder."""
MAX_QUESTION: Final = 64
"""Most bytes of a question: words and a line feed."""
MAX_ANSWER: Final = 8 << 20
"""Most bytes of an answer that a client reads."""
TIMEOUT: Final = 2.0
"""Seconds for which client and server wait for each other."""

Answers = Mapping[str, Callable[..., Mapping[str, Any]]]
"""Functions that answer each question, called on the side thread."""
WITH_WORDS: Final = "seal"
"""The question whose function takes the words after it."""


class NoAgent(CommandError):
    """No running agent has answered; the message says why."""


class StatusServer:
    """
    Answers questions on the status socket. A client sends a word, and the server answers with one JSON object.

    The side thread serves one connection at a time, with a timeout.
    """

    def __init__(self, path: Path, answers: Answers) -> None:
        """Make the socket at `path` with mode 0600; raise OSError. The caller must hold the lock of the folder."""
        self._path, self._answers = path, answers
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # an agent that was killed has left it
        self._socket = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            self._socket.bind(str(path))
            self._socket.listen(8)
        except OSError:
            self._socket.close()
            raise
        finally:
            os.umask(before)
        self._socket.setblocking(False)
        SIDE.add(self.turn, self._socket.fileno())

    def turn(self) -> None:
        """Answer one client."""
        with contextlib.suppress(OSError):  # no client, or one that has gone
            connection, _ = self._socket.accept()
            with connection:
                self._answer(connection)
                connection.shutdown(socket.SHUT_WR)

    def _answer(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + TIMEOUT
        question = b""
        while not question.endswith(b"\n") and len(question) < MAX_QUESTION:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            if not (part := connection.recv(MAX_QUESTION)):
                break
            question += part
        word, *words = question.decode("ascii", "replace").split() or [""]
        answer = self._answers.get(word) if not words or word == WITH_WORDS else None
        wrong = {"error": f"no such question; choose from: {', '.join(self._answers)}"}
        body = wrong if answer is None else answer(*words[:2])
        connection.settimeout(TIMEOUT)
        connection.sendall(json.dumps(redacted(body)).encode() + b"\n")

    def close(self) -> None:
        """Stop, and remove the socket; safe to call twice."""
        SIDE.remove(self.turn)
        self._socket.close()
        self._path.unlink(missing_ok=True)


def serve(folder: Path, answers: Answers, level: int = logging.INFO) -> StatusServer | None:
    """Return a server in `folder`; None if the socket cannot be made, which is logged at `level`."""
    try:
        return StatusServer(folder / NAME, answers)
    except OSError as problem:  # e.g. a path of over 100 bytes
        log.log(level, "no status socket: %s: %s", folder / NAME, problem)
        return None


def ask(folder: Path, question: str, timeout: float = TIMEOUT) -> dict[str, Any]:
    """Ask the agent whose state folder is `folder`; return its answer, or raise NoAgent."""
    path = folder / NAME
    deadline = time.monotonic() + timeout
    body = b""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(question.encode() + b"\n")
            while part := connection.recv(1 << 16):
                body += part
                if len(body) > MAX_ANSWER or time.monotonic() > deadline:
                    raise NoAgent(f"the agent at {path} does not finish its answer")
        answer = json.loads(body)
    except OSError as problem:
        words = {ConnectionRefusedError: "the agent that made it has ended", FileNotFoundError: "no agent has made it"}
        why = words.get(type(problem)) or os_text(problem)
        raise NoAgent(
            f"no agent answers at {path}: {why}; start `chipwatch`, ask as its user, or give its --spool;"
            " a run with --once or --duration, or whose output is piped, does not answer"
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise NoAgent(f"the answer of the agent at {path} is not JSON") from problem
    if not isinstance(answer, dict) or "error" in answer:
        raise NoAgent(f"the agent at {path} does not answer {question!r}: it has another version")
    return answer
