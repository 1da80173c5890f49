"""A Unix socket in the state folder: a running agent tells its own user about itself, and nobody else."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

NAME: Final = "status.sock"
"""Of the socket, in the folder of the spools."""
LONGEST_QUESTION: Final = 64
"""Bytes that a question may have: a word and a line feed."""
LONGEST_ANSWER: Final = 8 << 20
"""Bytes of an answer that a client reads."""
TIMEOUT: Final = 2.0
"""Seconds that either side waits for the other."""

Answers = Mapping[str, Callable[[], Mapping[str, Any]]]
"""Question -> what to call for its answer, on the server's own thread."""


class NoAnswer(Exception):
    """No running agent answers at that address; the message says why."""


class StatusServer:
    """
    Answers one question for each connection: a word in, one JSON object out.

    One connection at a time, each with a time limit, on one daemon thread: a slow or silent client delays other
    clients and nothing else.
    """

    def __init__(self, path: Path, answers: Answers) -> None:
        """Listen at `path`, which only its owner may open; raise OSError. The caller holds the folder's lock."""
        self._path, self._answers = path, answers
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # left by an agent that was killed
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
        threading.Thread(target=self._run, name="status", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            with connection, contextlib.suppress(OSError):
                self._answer(connection)
                connection.shutdown(socket.SHUT_WR)

    def _answer(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + TIMEOUT
        question = b""
        while not question.endswith(b"\n") and len(question) < LONGEST_QUESTION:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            if not (part := connection.recv(LONGEST_QUESTION)):
                break
            question += part
        answer = self._answers.get(question.decode("ascii", "replace").strip())
        body = {"error": f"no such question; choose from: {', '.join(self._answers)}"} if answer is None else answer()
        connection.settimeout(TIMEOUT)
        connection.sendall(json.dumps(body).encode() + b"\n")

    def close(self) -> None:
        """Stop answering and remove the socket; safe to call twice."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()
        self._path.unlink(missing_ok=True)


def serve(folder: Path, answers: Answers) -> StatusServer | None:
    """Return a server in `folder`, or None where there can be none: its absence is no reason to end a program."""
    try:
        return StatusServer(folder / NAME, answers)
    except (OSError, AttributeError) as problem:  # a path of over 100 bytes; Windows
        log.info("no status socket: %s: %s", folder / NAME, problem)
        return None


def ask(folder: Path, question: str) -> dict[str, Any]:
    """Return what the agent whose state is in `folder` answers; raise NoAnswer."""
    path = folder / NAME
    deadline = time.monotonic() + TIMEOUT
    body = b""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(str(path))
            connection.sendall(question.encode() + b"\n")
            while part := connection.recv(1 << 16):
                body += part
                if len(body) > LONGEST_ANSWER or time.monotonic() > deadline:
                    raise NoAnswer(f"the agent at {path} does not finish its answer")
        answer = json.loads(body)
    except (OSError, AttributeError) as problem:
        raise NoAnswer(f"no agent answers at {path}: {getattr(problem, 'strerror', None) or problem}") from problem
    except ValueError as problem:
        raise NoAnswer(f"the agent at {path} answers with something else than JSON") from problem
    if not isinstance(answer, dict) or "error" in answer:
        raise NoAnswer(f"the agent at {path} does not answer {question!r}: it is of another version")
    return answer
