"""Calls a function that may never return, with a timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
PROMPT: Final = 0.2
"""Seconds for a file that the kernel answers from its memory; the table of mounts may wait for a mount that hangs."""


class BlockingCall(Generic[T]):
    """
    Runs a function on one daemon thread, started at first use, and waits for the result with a timeout.

    A call into a dead file server cannot be interrupted: while one is stuck no second one is started. The thread is
    a daemon. Its methods must not be called from two threads at once.
    """

    def __init__(self, call: Callable[..., T], name: str = "blocking-call") -> None:
        self._call, self._name = call, name
        self._open = False
        self._thread = threading.Thread()
        self.is_pending = False
        """True from the request of a call until its result was seen by `wait`."""
        self.is_ending = False
        """True from `close` with a last call until that has returned."""
        self._requests: SimpleQueue[tuple[Any, ...] | Callable[[], object] | None] = SimpleQueue()
        self._result: tuple[Any, BaseException | None] = None, None
        self._answered = threading.Lock()  # a wait for a queue may outlast its timeout
        self._answered.acquire()

    def ask(self, timeout: float, *args: Any) -> T:
        """
        Call the function with `args`; return what it returns or raise what it raises.

        Raises TimeoutError after `timeout` seconds, and at once while an earlier call is stuck, whose late result is
        discarded.
        """
        if self.is_pending and not self.wait(0.0):
            raise TimeoutError(f"{self._name}: an earlier call has not returned")
        self.begin(*args)
        if not self.wait(timeout):
            raise TimeoutError(f"{self._name}: no answer in {timeout} s")
        return self.take()

    def begin(self, *args: Any) -> None:
        """Request a call while none is pending; raise RuntimeError if no thread can be started."""
        self.start()
        self.is_pending = True
        self._requests.put(args)

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the result of the call that is pending; return whether it is there."""
        if self._answered.acquire(timeout=max(0.0, timeout)):
            self.is_pending = False
        return not self.is_pending

    def take(self) -> T:
        """Return what the last call returned, or raise what it raised."""
        (result, error), self._result = self._result, (None, None)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def close(self, last: Callable[[], object] | None = None) -> None:
        """Let the thread end after its call, and after `last`; does not wait; a later request starts another."""
        if last:
            self.start()
        if self._open:
            self._open, self.is_ending = False, last is not None
            self._requests.put(last)

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the end of the thread; return whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def start(self) -> None:
        """Start the thread before the first request; raise RuntimeError if that is not possible."""
        if not self._open:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
            self._open = True

    def _run(self) -> None:
        while isinstance(args := self._requests.get(), tuple):
            try:
                self._result = self._call(*args), None
            except BaseException as error:  # noqa: BLE001  raised again by `take`
                self._result = None, error
            self._answered.release()
        if args:
            try:
                args()
            finally:
                self.is_ending = False


def at_once(call: Callable[[], bool], name: str) -> bool:
    """Return what a call returns, False if it takes longer than PROMPT or no thread can be started for it."""
    asked = BlockingCall(call, name)
    try:
        return asked.ask(PROMPT)
    except (TimeoutError, RuntimeError):
        return False
    finally:
        asked.close()
