"""A figure that is more than a quarter worse than the kept one fails, whatever the speed of the machine."""

import json

import pytest
from tests.bench import bench, kept
from tests.bench.figure import Figure, Skipped
from tests.bench.kept import compare, keep, load


def figure(value, *, unit="ms", reference=2.0, name="a tick", asked=100.0, noise=0.0):
    return Figure(name, unit, asked, [value], "by hand", reference=reference, noise=noise)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (figure(10.0), figure(12.4), "ok"),
        (figure(10.0), figure(12.6), "WORSE"),
        (figure(10.0), figure(24.0, reference=4.0), "ok"),  # a slower machine
        (figure(10.0), figure(7.0, reference=1.0), "WORSE"),  # a faster one
        (figure(0.01), figure(0.05), "ok"),  # less than noise
        (figure(1.4, unit="x"), figure(1.6, unit="x", reference=9.0), "ok"),
        (figure(1.4, unit="x"), figure(1.8, unit="x", reference=9.0), "WORSE"),
        (figure(20.0, unit="MB"), figure(26.0, unit="MB"), "WORSE"),
        (figure(3.0, noise=5.0), figure(7.9, noise=5.0), "ok"),  # a wall time on a busy machine
        (figure(3.0, noise=5.0), figure(8.1, noise=5.0), "WORSE"),
        (figure(0.3, unit="s"), figure(3.0, unit="s"), "ok"),  # waiting is not compared
        (figure(10.0, asked=None), figure(99.0, asked=None), "-"),  # a program of others
        (figure(90.0), figure(101.0), "MISS"),
    ],
)
def test_a_quarter_more_than_the_kept_figure_is_worse(tmp_path, before, after, verdict):
    keep([before], tmp_path / "kept.json")
    (compared,) = compare([after], load(tmp_path / "kept.json"))
    assert compared.verdict == verdict


def test_a_figure_that_was_not_measured_stays_kept_and_nothing_else_is_kept(tmp_path):
    file = tmp_path / "kept.json"
    keep([figure(10.0, name="one"), figure(4.0, name="two")], file)
    keep([figure(20.0, name="one"), Skipped("two", "no time"), figure(1.0, unit="s", name="three")], file)
    assert load(file) == {"one": 10.0, "two": 2.0}
    assert json.loads(file.read_text())["version"]
    assert load(tmp_path / "none.json") == {}


def test_a_worse_figure_ends_the_command_with_an_error_and_the_table_shows_what_was_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kept, "FILE", tmp_path / "kept.json")
    monkeypatch.setattr(bench, "MEASUREMENTS", {"tick": lambda effort: [figure(next(values))]})
    monkeypatch.setattr(kept, "reference", lambda: 2.0)
    codes, values = [], iter((10.0, 11.0, 13.0))
    for words in (["--keep"], [], []):
        with pytest.raises(SystemExit) as ended:
            bench.main([*words, "--format", "table", "--only", "tick"])
        codes.append(ended.value.code)
    assert codes == [False, False, True]
    row = capsys.readouterr().out.splitlines()[-1]
    assert " ".join(row.split()) == "a tick <= 100 ms 13 ms 10 13 .. 13 (n=1) WORSE by hand"
