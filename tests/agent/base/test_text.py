import os
import sys

import pytest

from chipwatch.base.text import duration, line_width

termios = pytest.importorskip("termios", reason="POSIX only")


@pytest.mark.parametrize(
    ("seconds", "units", "text"),
    [
        (0.04, 4, "0.0 s"), (8.31, 4, "8.3 s"), (9.96, 4, "10 s"), (59.4, 4, "59 s"), (60, 4, "1 min"), (1500, 2, "25 min"),
        (4328, 4, "1 h 12 min 8 s"), (3690, 2, "1 h 1 min"), (3608, 4, "1 h 8 s"), (86_400 * 3 + 14_401, 2, "3 d 4 h"),
    ],
)  # fmt: skip
def test_a_duration_has_its_largest_units(seconds, units, text):
    assert duration(seconds, units) == text


def test_a_line_is_as_wide_as_the_terminal_at_most(monkeypatch):
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 60))
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert (line_width(100), line_width(40)) == (60, 40)
        termios.tcsetwinsize(theirs, (0, 0))
        assert line_width(100) == 100, "an emulator may not say"
    assert line_width(100) == 100, "standard output is closed"
    monkeypatch.setattr(sys, "stdout", None)
    assert line_width(100) == 100
    os.close(ours)
