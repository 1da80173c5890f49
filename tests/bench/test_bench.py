"""The medians, the table and the JSON of `make bench`."""

import threading
import time

from tests.bench import bench, kept
from tests.bench.figure import CannotMeasure, Effort, Figure, Skipped, cpu_ms

LEAST = Effort(rounds=1, tick_seconds=1, steady_seconds=1, growth_ticks=1, starts=1)


def test_the_cpu_time_of_a_call_counts_other_threads_and_no_waiting():
    def burn():
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    def call(at):
        thread = threading.Thread(target=burn)
        thread.start()
        thread.join()
        time.sleep(0.05)

    assert 18 <= cpu_ms(call, 1, 0.05) < 45


def test_the_median_decides():
    assert Figure("a", "ms", 2.0, [1, 2, 99], "").verdict == "ok"
    assert Figure("a", "ms", 2.0, [1, 2.1, 3], "").verdict == "MISS"
    assert Figure("a", "ms", None, [1], "").verdict == "-"


def test_a_measurement_that_fails_or_cannot_be_made_leaves_the_others(monkeypatch, capsys):
    def broken(effort):
        raise ValueError("no good")

    def absent(effort):
        raise CannotMeasure("nothing here")

    good = Figure("good", "ms", 1.0, [1.0], "")
    monkeypatch.setattr(bench, "MEASUREMENTS", {"broken": broken, "absent": absent, "good": lambda effort: [good]})
    monkeypatch.setattr(kept, "reference", lambda: good.reference)
    found = [figure for name in bench.MEASUREMENTS for figure in bench.one(name, LEAST)]
    assert found == [Skipped("broken", "ValueError: no good", "FAIL"), Skipped("absent", "nothing here"), good]
    assert "Traceback" in capsys.readouterr().err
