from __future__ import annotations

from chipwatch.host.supervised_process import LineSplitter


def test_a_line_of_exactly_the_largest_size_is_kept_and_a_longer_one_skipped():
    reports, line = [], b"x" * (1 << 20)
    splitter = LineSplitter(reports.append, len(line))
    assert list(splitter.split(line + b"\n" + line + b"y\nnext\n")) == [line, b"next"]
    assert reports == ["a line above 1 MiB was skipped"]
