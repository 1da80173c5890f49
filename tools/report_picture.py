"""Makes the picture of docs/report.md (`make picture-report`): a recording of the node in README's picture, in Chromium."""

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
"""Bytes of a picture in docs/media/."""
PICTURES: Final = {"light": "report.png", "dark": "report-dark.png"}


def main(folder: str) -> None:
    """Write the pictures below `folder`."""
    media = Path(folder) / "docs/media"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        place = Path(temporary)
        (place / "node").mkdir()
        recording, page = place / "node-7.chipwatch", place / "node-7.html"
        file = RecordFile(
            recording, lambda: {"chipwatch": 1, "version": "", "host": {"hostname": "node-7"}, "interval": STEP}
        )
        record(place / "node", lambda points, at: file.add([p._replace(value=float(p.value)) for p in points], at))
        file.close()
        words = ("report", recording, "-o", page, "--price", "2.5", "--grid", "DE")
        subprocess.run([sys.executable, "-m", "chipwatch", *words], check=True)
        with Page("about:blank", place) as browser:
            for theme, name in PICTURES.items():
                browser.screen(*SIZE, prefers_color_scheme=theme, prefers_reduced_motion="reduce")
                browser.open(page.as_uri())
                browser.until("document.documentElement.dataset.ready === 'yes'")
                browser.until("document.querySelectorAll('.uplot').length >= 8")
                picture = browser.screenshot()
                assert len(picture) <= LARGEST, f"{name}: {len(picture):,} bytes"
                (media / name).write_bytes(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
