"""For the process that forks verdicts: the two readings of each are as little apart as they may be, not a second."""

import os


def _hurry():
    from chipwatch.jobs.verdict import reading  # in the child: its import is the start of the program

    reading.APART = reading.LEAST_APART


os.register_at_fork(after_in_child=_hurry)
