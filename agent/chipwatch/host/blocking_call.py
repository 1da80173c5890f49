"""Calls a function that may never return, with a timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BlockingCall(Generic[T]):
    """
    Runs a function on one daemon thread, started at first use, and waits for the result with a timeout.

    A call into a dead file server cannot be interrupted: while one is stuck no second one is started, and its late
    result is discarded. The thread is never joined. `ask` must not be called from two threads.
    """

    def __init__(self, call: Callable[[], T], name: str = "blocking-call") -> None:
        self._call, self._name = call, name
        self._open = self._stuck = False
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._result: tuple[Any, BaseException | None] = None, None
        self._answered = threading.Lock()  # a wait for a queue may outlast its timeout
        self._answered.acquire()

    def ask(self, timeout: float) -> T:
        """
        Call the function; return what it returns or raise what it raises.

        Raises TimeoutError after `timeout` seconds, and at once while an earlier call is stuck.
        """
        if self._stuck:
            if not self._answered.acquire(blocking=False):
                raise TimeoutError(f"{self._name}: an earlier call has not returned")
            self._stuck = False
        if not self._open:
            self._open = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._requests.put(True)
        self._stuck = not self._answered.acquire(timeout=max(0.0, timeout))
        (result, error), self._result = self._result, (None, None)
        if self._stuck:
            raise TimeoutError(f"{self._name}: no answer in {timeout} s")
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let the thread end after its call; does not wait; a later `ask` starts another."""
        if self._open:
            self._open = False
            self._requests.put(False)

    def _run(self) -> None:
        while self._requests.get():
            try:
                self._result = self._call(), None
            except BaseException as error:  # noqa: BLE001  raised again by `ask`
                self._result = None, error
            self._answered.release()
