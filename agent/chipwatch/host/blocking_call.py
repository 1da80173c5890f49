"""Calls a function that may never return, and waits only for a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
PROMPT: Final = 0.2
"""Seconds to wait for a file that is usually read at once, such as the table of mounts."""


class BlockingCall(Generic[T]):
    """
    Runs a function on a daemon thread, and waits for the result with a timeout.

    A call into a dead file server cannot be interrupted, so while a call is stuck no second one is started. The thread
    starts at the first use. Only one thread at a time may call these methods.
    """

    def __init__(self, call: Callable[..., T], name: str = "blocking-call") -> None:
        self._call, self._name = call, name
        self._open = False
        self._thread = threading.Thread()
        self.is_pending = False
        """True from the request of a call until `wait` has seen its result."""
        self.is_ending = False
        """True from `close` with a last call until that call has returned."""
        self._requests: SimpleQueue[tuple[Any, ...] | Callable[[], object] | None] = SimpleQueue()
        self._result: tuple[Any, BaseException | None] = None, None
        self._answered = threading.Lock()  # not a queue, whose wait may outlast its timeout
        self._answered.acquire()

    def ask(self, timeout: float, *args: Any) -> T:
        """
        Call the function with `args`; return its result, or raise its exception.

        Raise TimeoutError after `timeout` seconds, and at once while an earlier call is stuck. The late result of an
        earlier call is discarded.
        """
        if self.is_pending and not self.wait(0.0):
            raise TimeoutError(f"{self._name}: an earlier call has not returned")
        self.begin(*args)
        if not self.wait(timeout):
            raise TimeoutError(f"{self._name}: no answer in {timeout} s")
        return self.take()

    def begin(self, *args: Any) -> None:
        """Request a call; none may be pending. Raise RuntimeError if the system cannot start a thread."""
        self.start()
        self.is_pending = True
        self._requests.put(args)

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the result of the pending call; return whether it has come."""
        if self._answered.acquire(timeout=max(0.0, timeout)):
            self.is_pending = False
        return not self.is_pending

    def take(self) -> T:
        """Return the result of the last call, or raise its exception."""
        (result, error), self._result = self._result, (None, None)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def close(self, last: Callable[[], object] | None = None) -> None:
        """End the thread after its call, and after calling `last`; do not wait. A later request starts a new one."""
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
        """Start the thread before the first request; raise RuntimeError if the system cannot."""
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
    """Return the result of `call`; False if it takes longer than PROMPT, or the system cannot start a thread."""
    asked = BlockingCall(call, name)
    try:
        return asked.ask(PROMPT)
    except (TimeoutError, RuntimeError):
        return False
    finally:
        asked.close()
