"""Makes docs/media/report.html and its pictures (`make picture-report`): a recording of the node in README's picture, in Chromium."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.proof.chromium import Page

from chipwatch.history.record_file import RecordFile
from tools.picture import STEP, record

SIZE: Final = (1440, 1010)
LARGEST: Final = 300_000
"""Bytes of a file in docs/media/."""
PICTURES: Final = {"light": "report.png", "dark": "report-dark.png"}
HEADER: Final = {"chipwatch": 1, "version": "", "host": {"hostname": "node-7"}, "interval": STEP}


def main(folder: str) -> None:
    """Write the page and its pictures below `folder`."""
    media = Path(folder) / "docs/media"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        place, page = Path(temporary), media / "report.html"
        file = RecordFile(place / "node-7.chipwatch", lambda: HEADER)
        record(place, lambda points, at: file.add([p._replace(value=float(p.value)) for p in points], at))
        file.close()
        words = ("report", file.path, "-o", page, "--price", "2.5", "--grid", "DE")
        subprocess.run([sys.executable, "-m", "chipwatch", *words], check=True)
        with Page("about:blank", place) as browser:
            for theme, name in PICTURES.items():
                browser.screen(*SIZE, prefers_color_scheme=theme, prefers_reduced_motion="reduce")
                browser.open(page.absolute().as_uri())
                browser.until("document.querySelectorAll('.uplot').length >= 8")
                (media / name).write_bytes(browser.screenshot())
    for name in (page.name, *PICTURES.values()):
        assert (size := (media / name).stat().st_size) <= LARGEST, f"{name}: {size:,} bytes"


if __name__ == "__main__":
    main(*sys.argv[1:])
