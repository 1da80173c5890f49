"""
One life of an agent that its parent may kill at any moment: the real frame around a quick collector and a moody sink.

`python conservation_child.py FOLDER LIFE SEED MOODS`, where MOODS is `wild` or `calm` (no failures; it delivers what
is owed and ends at SIGTERM). It keeps three journals, each line written at once by one call, so that a kill cannot cut it:
`appended` (what append returned from), `answered` (a batch, and what the far side made of it), and `doubted` (a batch
that the far side took although the sink says that it failed).
"""

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, gauge
from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Pauses, Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window

NUMBER = gauge("test.number", "1", "A number of its own for every point.")
BATCH = 40
MOST = 60
A_LIFE = 1_000_000


def poison(number):
    return number % 211 == 7


def unwanted(number):
    return number % 53 == 3


class SpoolFile:
    def __init__(self, folder, name, life):
        self._file = os.open(folder / f"{name}.{life}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, word, numbers):
        line = f"{word} {' '.join(map(str, numbers))}\n".encode()
        assert os.write(self._file, line) == len(line)


class Numbers(Collector):
    metrics = (NUMBER,)

    def __init__(self, life, dice):
        self._next, self._dice = life * A_LIFE, dice

    def collect(self, at):
        for _ in range(self._dice.randrange(1, MOST)):
            yield NUMBER.point(at, float(self._next))
            self._next += 1


class JournalledSpool(Spool):
    def __init__(self, journal, *args, **more):
        super().__init__(*args, **more)
        self._notes = journal

    def append(self, points, common=None):
        super().append(points, common)
        self._notes.note("appended", [int(p.value) for p in points])


class MoodySink(Sink):
    limits = Limits(max_points=BATCH, window=0, flush=0)

    def __init__(self, folder, life, dice, *, wild):
        self._answered, self._doubted = SpoolFile(folder, "answered", life), SpoolFile(folder, "doubted", life)
        self._dice, self._wild = dice, wild

    def write(self, batch):
        numbers = [int(p.value) for p in batch]
        mood = self._dice.random() if self._wild else 1.0
        if mood < 0.10:
            raise Retryable("no answer")
        if mood < 0.13:
            raise Refused("no such role")
        if mood < 0.16:
            self._answered.note("bug", numbers)
            raise RuntimeError("a bug")
        if mood < 0.165:
            threading.Event().wait()
        if any(map(poison, numbers)):
            if len(numbers) == 1:
                self._answered.note("poison", numbers)
            raise BadBatch("something in it is wrong")
        self._answered.note("took", numbers)
        if mood < 0.20:
            self._doubted.note("doubted", numbers)
            raise Retryable("the answer was lost")
        return [Rejected(p, "unwanted") for p in batch if unwanted(int(p.value))]


def main():
    folder, life, seed, moods = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    wild = moods == "wild"
    common = Dimensions(life=str(life))
    sampler = Sampler("numbers", Numbers(life, random.Random(f"{seed} numbers")), Level.ALL)
    sink = MoodySink(folder, life, random.Random(f"{seed} moods"), wild=wild)
    spool = JournalledSpool(SpoolFile(folder, "appended", life), "moody", folder / "moody.db")
    quick = {"pauses": Pauses(0.001, 0.004, 0.001, 0.004)}
    worker = Worker("moody", sink, spool, common=lambda: common, **quick)
    route = Route(MetricFilter(Level.ALL), Window(0, born=time.time_ns()), spool, worker, lambda: common)
    pipeline = Pipeline([sampler], [route], interval=0.002)
    signal.signal(signal.SIGTERM, lambda *_: pipeline.stop())
    pipeline.start()
    pipeline.run()
    pipeline.close(deadline=60.0)


if __name__ == "__main__":
    main()
