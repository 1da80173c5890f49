import gzip

import pytest

from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge
from chipwatch.history.columns import load
from chipwatch.show.top.replay import Player
from chipwatch_sinks.stdout.jsonl import lines

AT, S = 1_795_168_805_000_000_000, 10**9
USED = gauge("gpu.utilization", "%", "U.", dims=("gpu",))
CPU = gauge("cpu.utilization", "%", "C.")
NET = counter("network.sent", "By", "N.")


def recorded(path, ticks=200, interval=1):
    points = []
    for n in range(ticks):
        at = AT + n * interval * S
        points += [USED.point(at, float(n % 100), Dimensions(gpu=str(g), hostname="node-7")) for g in range(2)]
        points += [CPU.point(at, 12.0, Dimensions(hostname="node-7"))]
        points += [Datapoint(NET, 3e6 * n, Dimensions(hostname="node-7"), at, AT, at - S, None, 3e6)]
    path.write_bytes(gzip.compress(lines(points, []).encode()))
    return path


@pytest.fixture
def player(tmp_path):
    made = Player(load(recorded(tmp_path / "run.jsonl.gz", interval=60)))
    made.start()
    yield made
    made.close()


def skipped(player, key):
    """Return the minutes of the frames that come after a key, at once."""
    player.press(key)
    return [(frame.at - AT) // S // 60 for frame in player.new()]


def test_the_first_frame_comes_at_once_and_the_next_at_its_time(player):
    assert [frame.at for frame in player.new()] == [AT]
    assert 0 < player.due() <= 5
    assert not [*player.new()]


def test_winding_forward_gives_all_frames_on_the_way(player):
    assert [frame.at for frame in player.new()] == [AT]
    assert skipped(player, "]") == [1]
    assert [skipped(player, "]") for _ in range(3)] == [[2], [3], [4]]


def test_winding_back_begins_some_minutes_earlier_for_the_graphs(player):
    for _ in range(31):
        [*player.new()]
        player.press("]")
    minutes = [(frame.at - AT) // S // 60 for frame in player.new()]
    assert minutes == [31]
    assert skipped(player, "[") == [*range(20, 31)]
    assert player.rewound


def test_the_speed_changes_by_factors_of_two_within_bounds(player):
    assert "x1" in player.mode()
    player.press(">")
    assert "x2" in player.mode()
    for _ in range(20):
        player.press("<")
    assert "x0.125" in player.mode()


def test_a_recording_is_played_up_to_where_its_file_is_damaged(tmp_path):
    path = recorded(tmp_path / "run.jsonl.gz", ticks=20_000)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = b"\xff" * (len(data) // 2)
    path.write_bytes(data)
    player = Player(load(path))
    assert [frame.at for frame in player.new()] == [AT]
    for _ in range(200):
        player.press("]")
        [*player.new()]
    assert player.mode().endswith("ended, some lines are broken")
    player.close()


def test_a_recording_that_is_named_without_an_option_is_shown_and_wound(sit, tmp_path):
    seat = sit(recorded(tmp_path / "run.jsonl.gz", ticks=100), size=(120, 30))
    seat.shows("run.jsonl.gz", "recording", "x1", "utilization", "NET in - out 3.0M", "GPU")
    seat.press(">>>>>>>>")
    seat.shows("x256", "ended", "99")
    seat.press("[")
    seat.until(lambda text: "ended" in text)
    seat.press("q")
    assert seat.end() == 0


def test_what_is_not_a_recording_is_refused_before_the_screen_is_taken(sit, tmp_path):
    (tmp_path / "notes.txt").write_text("hello\n")
    for words, why in ((("--replay", "notes.txt"), b"notes.txt: no line is one of"),
                       (("run-2.chipwatch",), b"chipwatch: run-2.chipwatch: No such file or directory")):  # fmt: skip
        seat = sit(*words)
        assert seat.end() == 1
        assert why in seat.sent
        assert b"\x1b[?1049h" not in seat.sent
