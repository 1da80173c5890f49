"""`chipwatch top` on a console of Windows, with doubles of msvcrt and kernel32."""

import sys
import tty
from pathlib import Path

import pytest
from tests.agent.top.conftest import ENTERED, LEFT, Seat

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes away what Linux has")


@pytest.fixture
def sit(tmp_path):
    """Start `chipwatch top` as if on Windows."""
    (tmp_path / "proc").symlink_to("/proc")
    words = [sys.executable, "-P", "-m", "tests.doubles.other_system", "win32", str(tmp_path / "proc"), "top"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path), "PYTHONWARNINGS": "ignore",
           "PYTHONPATH": f"{ROOT}:{ROOT}/agent:{ROOT}/sinks", "AWS_EC2_METADATA_DISABLED": "true", "PYTHONUTF8": "1"}  # fmt: skip
    seat = Seat(words, env, tmp_path, (120, 40))
    tty.setraw(seat.file)
    yield seat
    seat.close()


def test_keys_and_a_new_size_are_seen_and_the_console_is_as_before(sit, tmp_path):
    sit.shows("CPU", "q quit")
    sit.press("?")
    sit.shows("absent is not zero")
    sit.press("?")
    sit.shows("CPU")
    sit.resize(60, 20)
    sit.until(lambda text: "q quit" in text.splitlines()[-1])
    sit.press("\x00Pq")  # the arrow down, and q
    assert sit.end() == 0
    assert sit.sent.count(ENTERED) == sit.sent.count(LEFT) == 1
    assert sit.sent.endswith(LEFT)
    assert (tmp_path / "console").read_text().split() == ["7", "3"]


def test_ctrl_c_ends_it(sit, tmp_path):
    sit.shows("CPU", "q quit")
    sit.press("\x03")
    assert sit.end() == 0
    assert sit.sent.endswith(LEFT)
    assert (tmp_path / "console").read_text().split() == ["7", "3"]
