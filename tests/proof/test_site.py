"""The site of docs/ in a real browser: its links lead somewhere, it asks nobody else, and its search finds."""

import functools
import http.server
import re
import subprocess
import threading

import pytest
from tests.proof.chromium import Page
from tests.proof.parts import FOLDER, ROOT, python

pytestmark = [pytest.mark.proof, pytest.mark.xdist_group("site")]
PICTURE = FOLDER / "site.png"
SECONDS = 300
FOUND = "document.querySelectorAll('.md-search-result__item').length"


@pytest.fixture(scope="module")
def site():
    done = subprocess.run(
        [python("site"), "-m", "tools.site"], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr  # a link that leads nowhere is an error
    assert int(done.stdout.split()[-2]) >= 100
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=ROOT / "build/site")
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        newest = re.search('url=([^"]+)', (ROOT / "build/site/index.html").read_text())[1]
        yield f"http://127.0.0.1:{server.server_port}/{newest}"
        server.shutdown()


def test_a_page_names_its_version_and_asks_nobody_else(site, tmp_path):
    with Page(site, tmp_path) as page:
        page.screen(1400, 1000, prefers_color_scheme="dark")
        page.until("document.querySelector('h1')?.textContent.startsWith('chipwatch')")
        page.until("document.querySelector('.md-version__current') !== null")
        assert [
            address for address in page.requests() if not address.startswith((site.rsplit("/", 2)[0], "data:", "blob:"))
        ] == []
        assert page.errors() == []
        PICTURE.write_bytes(page.screenshot())


def test_the_search_finds_a_metric(site, tmp_path):
    with Page(site, tmp_path) as page:
        page.until("document.querySelector('.md-search__input') !== null")
        page.evaluate("document.querySelector('.md-search__input').focus()")
        for key in "nvlink":
            page.press(key)
        assert page.until(FOUND, SECONDS) >= 1
