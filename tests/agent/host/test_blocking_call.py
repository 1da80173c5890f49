import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

from chipwatch.host.blocking_call import BlockingCall

LONG = 60.0


class Blocking:
    """A call that returns on command, and counts its starts."""

    def __init__(self):
        self.begun = 0
        self.gates: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.threads: set[threading.Thread] = set()

    def __call__(self):
        self.begun += 1
        self.threads.add(threading.current_thread())
        return self.gates.get()


def ask_until_it_works(caller, limit=LONG):
    deadline = time.monotonic() + limit
    while True:
        try:
            return caller.ask(LONG)
        except TimeoutError:
            assert time.monotonic() < deadline
            time.sleep(0.001)


def end_of(thread):
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_signal_whose_handler_outlasts_the_timeout_does_not_make_the_wait_endless():
    gate = threading.Event()
    guard = threading.Timer(LONG, gate.set)
    guard.start()
    before = signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.3))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError):
            BlockingCall(gate.wait).ask(0.1)
    finally:
        signal.signal(signal.SIGALRM, before)
        gate.set()
        guard.cancel()


def test_an_answer_of_none_is_an_answer():
    assert BlockingCall(lambda: None).ask(LONG) is None


def test_an_exception_is_raised_by_ask_and_the_thread_goes_on():
    answers = iter([ValueError("first"), 2])

    def call():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    caller = BlockingCall(call)
    with pytest.raises(ValueError, match="first"):
        caller.ask(LONG)
    assert caller.ask(LONG) == 2


def test_all_calls_run_on_one_daemon_thread():
    caller = BlockingCall(threading.current_thread, "my thread")
    first = caller.ask(LONG)
    assert first is caller.ask(LONG)
    assert first is not threading.current_thread()
    assert first.daemon
    assert first.name == "my thread"


def test_a_call_that_does_not_return_times_out_and_no_second_one_is_started():
    call = Blocking()
    caller = BlockingCall(call)
    with pytest.raises(TimeoutError):
        caller.ask(0.01)
    started = time.monotonic()
    for _ in range(100):
        with pytest.raises(TimeoutError):
            caller.ask(LONG)
    assert time.monotonic() - started < LONG / 2
    assert call.begun == 1
    assert len(call.threads) == 1
    call.gates.put("late")


def test_a_call_that_was_stuck_once_answers_again_and_again():
    call = Blocking()
    caller = BlockingCall(call)
    with pytest.raises(TimeoutError):
        caller.ask(0.01)
    for answer in ("late", "fresh", "second", "third"):
        call.gates.put(answer)
    assert ask_until_it_works(caller) == "fresh"
    assert [caller.ask(LONG), caller.ask(LONG)] == ["second", "third"]
    with pytest.raises(TimeoutError, match="no answer in"):
        caller.ask(0.01)
    call.gates.put("late again")


def test_a_late_exception_is_discarded_too():
    gate = threading.Event()
    answers = iter([OSError("late"), "fresh"])

    def call():
        gate.wait(LONG)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    caller = BlockingCall(call)
    with pytest.raises(TimeoutError):
        caller.ask(0.01)
    gate.set()
    assert ask_until_it_works(caller) == "fresh"


def test_closing_lets_the_thread_end_and_asking_again_starts_another():
    caller = BlockingCall(threading.current_thread)
    first = caller.ask(LONG)
    caller.close()
    caller.close()
    end_of(first)
    second = caller.ask(LONG)
    assert second is not first
    caller.close()
    end_of(second)


def test_closing_does_not_wait_for_a_stuck_call_or_start_a_second_one():
    call = Blocking()
    caller = BlockingCall(call)
    with pytest.raises(TimeoutError):
        caller.ask(0.01)
    (thread,) = call.threads
    caller.close()
    with pytest.raises(TimeoutError):
        caller.ask(LONG)
    assert call.begun == 1
    call.gates.put("late")
    call.gates.put("fresh")
    end_of(thread)
    assert ask_until_it_works(caller) == "fresh"


def test_a_stuck_call_does_not_keep_the_process_from_ending():
    program = """
import threading
from chipwatch.host.blocking_call import BlockingCall
call = BlockingCall(threading.Event().wait)
try:
    call.ask(0.01)
except TimeoutError:
    print("left")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=True)
    assert done.stdout == "left\n"
