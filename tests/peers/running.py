"""Rounds: all programs at the same time, in the same seconds, then all of them again in another order."""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tests.bench.child import ROOT, environment
from tests.bench.figure import CannotMeasure
from tests.bench.nvidia import fake_driver
from tests.peers.measure import Usage, counters, tree, usage
from tests.peers.programs import Place, Program
from tests.ports import free_port

START = 0.3
"""Seconds between the starts of two programs, so that they do not wake up together."""
Results = dict[str, list[Usage]]


class Started:
    """A program that runs, and its standard output, which is drained and counted."""

    def __init__(self, program: Program, place: Place) -> None:
        self.program, self.place, self.written = program, place, 0
        words = program.command(place)
        self._errors = (place.folder / "stderr").open("w+b")
        self.run = subprocess.Popen(
            words, cwd=place.folder, env=place.env, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        assert self.run.stdout is not None
        with suppress(ValueError, OSError):
            while data := os.read(self.run.stdout.fileno(), 1 << 16):
                self.written += len(data)

    def fault(self) -> str | None:
        """Return why the program has ended, or None while it runs."""
        if self.run.poll() is None:
            return None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"it ended with {self.run.returncode}: {last[:200]}"

    def stop(self) -> None:
        """End the program and its children."""
        members = tree(self.run.pid)
        with suppress(ProcessLookupError):
            os.killpg(self.run.pid, signal.SIGKILL)
        for pid in members[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.run.wait()
        assert self.run.stdout is not None
        self.run.stdout.close()
        self._errors.close()


class Scraper:
    """Fetches a page as Prometheus does, and counts its bytes."""

    def __init__(self, address: str, every: float = 1.0) -> None:
        self._address, self._every, self._end, self.taken = address, every, threading.Event(), 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=5)
        while not self._end.wait(self._every):
            try:
                connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
                self.taken += len(connection.getresponse().read())
            except (OSError, http.client.HTTPException):
                connection.close()
        connection.close()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


@contextmanager
def receiving(programs: Sequence[Program]) -> Iterator[tuple[dict[str, str], Callable[[], Counter[str]]]]:
    """Run the receiver; yield the address of each program, and a function that returns the bytes so far."""
    words = [f"{of.name}={of.receiver}" for of in programs if of.receiver not in ("", "scraped")]
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.peers.receiver", *words],
        cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdin is not None
    assert run.stdout is not None
    asked, answered = run.stdin, run.stdout

    def taken() -> Counter[str]:
        asked.write("\n")
        asked.flush()
        return Counter(json.loads(answered.readline()))

    try:
        yield json.loads(run.stdout.readline()), taken
    finally:
        run.communicate()


def one_round(programs: Sequence[Program], seconds: float, warm: float, absent: dict[str, str]) -> dict[str, Usage]:
    """Run all programs side by side; return what each has used. Those that cannot run are noted in `absent`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses, taken = stack.enter_context(receiving(programs))
        gpus: dict[str, str] = {}
        if any(of.gpus for of in programs):
            try:
                proc, env = stack.enter_context(fake_driver())
                gpus = env | {"FAKE_PROC": proc}
            except CannotMeasure as reason:
                absent |= {of.name: str(reason) for of in programs if of.gpus}
        running: dict[str, Started] = {}
        scrapers: dict[str, Scraper] = {}
        for program in programs:
            if program.name in absent:
                continue
            place = Place(folder / f"of-{program.name}", addresses.get(program.name) or f"127.0.0.1:{free_port()}")
            place.folder.mkdir()
            place.env |= {"HOME": str(place.folder)} | (gpus if program.gpus else {})
            try:
                running[program.name] = started = Started(program, place)
            except CannotMeasure as reason:
                absent[program.name] = str(reason)
                continue
            stack.callback(started.stop)
            if program.receiver == "scraped":
                scrapers[program.name] = scraper = Scraper(place.address, program.every)
                stack.callback(scraper.stop)
            time.sleep(START)
        time.sleep(warm)

        def sent() -> Counter[str]:
            return Counter(
                taken()
                | {name: scraper.taken for name, scraper in scrapers.items()}
                | {name: of.written for name, of in running.items() if not of.program.receiver}
            )

        begun, bytes_before = time.monotonic(), sent()
        before = {name: counters(of.run.pid) for name, of in running.items()}
        time.sleep(seconds)
        used = {}
        after = {name: counters(of.run.pid) for name, of in running.items()}
        bytes_after, spent = sent(), time.monotonic() - begun
        for name, started in running.items():
            if fault := started.fault():
                absent[name] = fault
                continue
            rate = (bytes_after[name] - bytes_before[name]) / spent
            used[name] = replace(usage(before[name], after[name]), sent=rate)
        return used


def rounds(programs: Sequence[Program], runs: int, seconds: float, warm: float) -> tuple[Results, dict[str, str]]:
    """Run several rounds; return the results of each program, and why others have none."""
    results: Results = {}
    absent: dict[str, str] = {}
    order = list(programs)
    for number in range(runs):
        random.Random(number).shuffle(order)
        sys.stderr.write(f"peers: round {number + 1} of {runs}, {len(order)} programs, {warm + seconds:.0f} s\n")
        for name, used in one_round(order, seconds, warm, absent).items():
            results.setdefault(name, []).append(used)
    return results, absent
