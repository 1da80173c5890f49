"""A page in headless Chromium, driven through its debugging pipe: no driver, no library."""

import base64
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
    """Opens `url`; the browser ends with the block."""

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
        self.events: list[dict[str, Any]] = []
        """Events of the protocol since the page was opened: messages, errors, requests."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self.open(url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._call("Browser.close", of_page=False)
        self._process.wait(60)
        self._out.close()
        self._in.close()
        self._log.close()

    def open(self, url: str) -> None:
        """Load another address; `events` begins again."""
        self.events.clear()
        self._call("Page.navigate", url=url)

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

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for, with its own."""
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]

    def errors(self) -> list[dict[str, Any]]:
        """Return the errors and warnings of the console, and exceptions that nothing caught."""
        self.evaluate("0")  # what the page has reported by now is read
        bad = {"Runtime.exceptionThrown", "Log.entryAdded"}
        return [
            event
            for event in self.events
            if event["method"] in bad
            or (
                event["method"] == "Runtime.consoleAPICalled"
                and event["params"]["type"] in ("error", "warning", "assert")
            )
        ]

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)

    def mouse(self, kind: str, x: float, y: float, clicks: int = 0) -> None:
        """Dispatch mouseMoved, mousePressed or mouseReleased of the left button."""
        button = {"button": "left", "buttons": 1, "clickCount": clicks} if clicks else {}
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def screen(self, width: int, height: int, scale: float = 1, **features: str) -> None:
        """Set the size of the window, and media features such as prefers_color_scheme="dark"."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        media = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._call("Emulation.setEmulatedMedia", features=media)

    def screenshot(self, form: str = "png", **options: Any) -> bytes:
        """Return a picture of the window."""
        return base64.b64decode(self._call("Page.captureScreenshot", format=form, **options)["data"])

    def pdf(self) -> bytes:
        """Return the page as it prints."""
        return base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"])

    def _call(self, method: str, *, of_page: bool = True, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session and of_page:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if "method" in answer:
                self.events.append(answer)
            if answer.get("id") == number:
                assert "result" in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        got = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "chromium has ended"
            got += byte
        return json.loads(got)
