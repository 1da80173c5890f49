"""A tick that hangs is named with the part that holds it up, and systemd gets no sign of life meanwhile."""

import os
import socket
import sys
import threading
import time

import pytest

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Level, gauge
from chipwatch.engine import watchdog as module
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.watchdog import Progress, Watchdog, sign_of_life

LONG = 60.0
LOAD = gauge("x.load", "1", "Load.")


class KernelFile(Collector):
    """Reads a file of the kernel, which does not answer while the gate is shut."""

    metrics = (LOAD,)

    def __init__(self, gate):
        self.gate = gate

    def waits(self):
        return False

    def collect(self, at):
        self.gate.wait(LONG)
        yield LOAD.point(at, 1.0)


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


def test_a_kernel_file_that_hangs_is_named_and_the_service_manager_hears_nothing(gate, until, caplog, monkeypatch):
    monkeypatch.setattr(module, "PERIOD", 0.01)
    monkeypatch.setattr(module, "LONGEST", 0.05)
    signs = []
    monkeypatch.setattr(module, "sign_of_life", lambda _: lambda: signs.append(1))
    caplog.set_level("INFO")
    pipeline = Pipeline([Sampler("memory", KernelFile(gate), Level.ALL)], (), interval=3600.0)
    running = threading.Thread(target=pipeline.run)
    running.start()
    until(lambda: caplog.messages)
    so_far = len(signs)
    time.sleep(0.1)
    assert len(signs) == so_far
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert caplog.messages[0].startswith("tick: takes ")
    assert caplog.messages[0].endswith(" so far: collector memory does not return")
    gate.set()
    until(lambda: len(signs) > so_far and caplog.messages[1:] == ["tick: goes on again"])
    pipeline.stop()
    running.join(LONG)
    assert not running.is_alive()
    pipeline.close(0)
    so_far = len(signs)
    time.sleep(0.1)
    assert len(signs) <= so_far + 1, "one may have been given as the run ended, and none after it"


def test_between_two_ticks_and_in_a_short_one_it_gives_signs_of_life(caplog):
    progress, signs = Progress(), []
    watchdog = Watchdog(progress, lambda: signs.append(1))
    for since in (None, time.monotonic()):
        progress.since = since
        watchdog.look()
    assert (len(signs), caplog.messages) == (2, [])


@pytest.mark.parametrize("name", ["here", "@chipwatch-test"])
def test_systemd_gets_a_datagram_if_it_asks_for_signs_of_life(tmp_path, name):
    if name.startswith("@") and sys.platform != "linux":
        pytest.skip("names without a file are Linux's")
    address = name if name.startswith("@") else str(tmp_path / name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind(address.replace("@", "\0"))
        there.settimeout(LONG)
        env = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}
        for less in ("WATCHDOG_USEC", "NOTIFY_SOCKET"):
            sign_of_life({key: value for key, value in env.items() if key != less})()
        sign_of_life(env | {"WATCHDOG_PID": "1"})()
        sign_of_life(env)()
        assert there.recv(100) == b"WATCHDOG=1"
        there.setblocking(False)
        with pytest.raises(BlockingIOError):
            there.recv(100)
    sign_of_life(env)()  # nobody listens
