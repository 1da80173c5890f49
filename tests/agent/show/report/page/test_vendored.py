"""The chart library in the page is the one that the decision names."""

import re
from hashlib import sha256
from pathlib import Path

from chipwatch.show.report.page import build

RECORD = (Path(__file__).parents[5] / "docs/decisions/0065-a-vendored-chart-library.md").read_text()


def test_the_library_has_the_sizes_and_hashes_of_the_record_and_its_licence():
    rows = re.findall(r"\| `(uPlot[\w.]+)` \| ([\d,]+) \| `(\w{64})` \|", RECORD)
    assert [name for name, *_ in rows] == ["uPlot.iife.min.js", "uPlot.min.css"]
    for name, size, digest in rows:
        content = (build.HERE / "uplot" / name).read_bytes()
        assert (f"{len(content):,}", sha256(content).hexdigest()) == (size, digest)
    assert "MIT" in (build.HERE / "uplot/LICENSE").read_text()
