"""A page in headless Chromium, driven through its debugging pipe: no driver, no library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from itertools import count
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


class Page:
    """Opens `url`; ends with the block."""

    def __init__(self, url: str, folder: Any) -> None:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            pytest.skip("chromium is not on PATH: `apt-get install chromium`")
        to_read, to_write = os.pipe(), os.pipe()  # it reads commands from 3 and writes answers to 4
        words = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
            f"--user-data-dir={folder}/chromium", "--window-size=1400,2400", "about:blank",
        ]  # fmt: skip
        self._log = (folder / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_read[0]} 4>&{to_write[1]}', "-", *words],
            pass_fds=(to_read[0], to_write[1]), stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip
        os.close(to_read[0])
        os.close(to_write[1])
        self._out, self._in = os.fdopen(to_read[1], "wb", buffering=0), os.fdopen(to_write[0], "rb")
        self._ids, self._session = count(1), None
        target = self._call("Target.createTarget", url=url)["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._call("Browser.close", of_page=False)
        self._process.wait(60)
        self._out.close()
        self._in.close()
        self._log.close()

    def evaluate(self, script: str) -> Any:
        """Return the value of a script."""
        return self._call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def until(self, script: str, seconds: float = 180.0) -> Any:
        """Return the value of a script as soon as it is true; fail with the page's text if it never is."""
        deadline = time.monotonic() + seconds
        while not (value := self.evaluate(script)):
            assert time.monotonic() < deadline, self.evaluate("document.body.innerText")
            time.sleep(0.2)
        return value

    def _call(self, method: str, *, of_page: bool = True, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session and of_page:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "result" in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        got = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "chromium has ended"
            got += byte
        return json.loads(got)
