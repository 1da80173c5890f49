"""A call that may never return, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class BlockingCall(Generic[T]):
    """
    Runs one blocking call on one daemon thread, made at first use, and waits for the answer only so long.

    A call into a dead file server cannot be interrupted, only left alone: while one is stuck no second one is
    started, and the late answer is thrown away. The thread is never joined, so it keeps nobody from ending.
    For one asker: `ask` is not to be called from two threads.
    """

    def __init__(self, call: Callable[[], T], name: str = "lane") -> None:
        """Take the call and the name of its thread."""
        self._call = call
        self._name = name
        self._open = False
        self._stuck = False
        self._questions: SimpleQueue[bool] = SimpleQueue()
        self._answers: SimpleQueue[Callable[[], T]] = SimpleQueue()

    def ask(self, timeout: float) -> T:
        """
        Make the call; return what it returns or raise what it raises.

        Raises TimeoutError after `timeout` seconds, and at once as long as an earlier call is stuck.
        """
        if self._stuck:
            self._throw_late_answer_away()
        if not self._open:
            self._open = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._questions.put(True)
        try:
            answer = self._answers.get(timeout=timeout)
        except Empty:
            self._stuck = True
            raise TimeoutError(f"{self._name}: no answer in {timeout} s") from None
        return answer()

    def close(self) -> None:
        """Let the thread end when its call has returned, without waiting; a later `ask` starts another."""
        if self._open:
            self._open = False
            self._questions.put(False)

    def _throw_late_answer_away(self) -> None:
        try:
            self._answers.get_nowait()
        except Empty:
            raise TimeoutError(f"{self._name}: an earlier call is stuck") from None
        self._stuck = False

    def _run(self) -> None:
        while self._questions.get():
            self._answers.put(self._answer())

    def _answer(self) -> Callable[[], T]:
        try:
            result = self._call()
        except BaseException as raised:  # noqa: BLE001  it is the asker's, whatever it is
            error = raised

            def fail() -> T:
                raise error

            return fail
        return lambda: result
