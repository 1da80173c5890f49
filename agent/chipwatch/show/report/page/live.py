"""The page of a recording that goes on, served on loopback; its script asks for the lines that are new."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from secrets import compare_digest, token_urlsafe
from typing import Final

from chipwatch.base.redaction import one_line
from chipwatch.contract.errors import CommandError, ConfigError, os_text, text_of
from chipwatch.history.columns import LONGEST, is_whole, load, runs_of, tail_of
from chipwatch.net.page_server import PageServer, Request, Response
from chipwatch.show.report.page.build import page
from chipwatch.show.report.page.usage import terms_of

ADDRESS: Final = "127.0.0.1", 0
"""Loopback, and any free port."""
PRIVATE: Final = "Cache-Control", "no-store"
LOOK: Final = 1.0
"""Seconds between two looks for new lines."""
MOST_LINES: Final = 1000
"""Most lines that are kept; a browser that lacks more loads the page again."""


class LivePage:
    """
    Answers with the page, and with the newest lines of the recording as they are; it writes nothing.

    All is below a secret path, so that other users of this machine cannot read it.
    """

    def __init__(self, page: Callable[[int], str], path: Path) -> None:
        """`page` makes the page of the recording `path`, whose script asks for the lines from that number on."""
        self._page, self._path, self._tail = page, path, tail_of(path)
        self.place = f"/{token_urlsafe(16)}/"
        self._file = Path(os.devnull).open("rb")  # noqa: SIM115  # `follow` closes it
        """The tail that is read; it stays open, so that its last lines can be read when another has taken its place."""
        self._lines: deque[tuple[int, bytes]] = deque(maxlen=MOST_LINES)
        """The newest lines with their numbers."""
        self._count = self._newest = self._first = 0
        """Number of lines so far; of those before the tail that is read; and of those before the tail before it."""
        self._problem = ""
        """Why the recording cannot be followed at present."""

    def follow(self) -> None:
        """Take new lines of the recording, 4 MB at most, or the reason why not; only one thread may call it."""
        try:
            self._path.stat()
            if self._tail.is_file() and not os.path.samestat(self._tail.stat(), os.fstat(self._file.fileno())):
                before, self._file = self._file, self._tail.open("rb")
                with before:
                    self._take(before)
                self._first, self._newest = self._newest, self._count
            self._take(self._file)
            self._problem = ""
        except OSError as problem:
            self._problem = f"{problem.filename or self._tail}: {os_text(problem)}"

    def _take(self, file: BufferedReader) -> None:
        piece = file.read(LONGEST)
        end = piece.rfind(b"\n") + 1 or len(piece) // LONGEST * LONGEST  # a longer line is none
        file.seek(end - len(piece), os.SEEK_CUR)
        lines = [*filter(is_whole, piece[:end].splitlines())]
        self._lines.extend(enumerate(lines, self._count))
        self._count += len(lines)

    def answer(self, request: Request) -> Response | Callable[[], Response]:
        """Return the page; or below it, for a number, the lines from that number on."""
        place, number = request.path[: len(self.place)], request.path[len(self.place) :]
        if not compare_digest(place.encode(), self.place.encode()):
            return Response(404, b"Nothing is here; `chipwatch report --live` has printed the address.\n")
        return partial(_made, partial(self._new, int(number[-12:])) if number.isdecimal() else self.whole)

    def whole(self) -> Response:
        """Return the page as it is now; raise CommandError."""
        return Response(200, self._page(self._first).encode(), (("Content-Type", "text/html; charset=utf-8"), PRIVATE))

    def _new(self, number: int) -> Response:
        """Return the first kept line's number, the next one's, and the lines from `number` on; raise CommandError."""
        if self._problem:
            raise CommandError(self._problem)
        lines = [*self._lines] or [(number - 1, b"")]
        new = b",".join(line for at, line in lines if at >= number)
        body = b'{"first":%d,"next":%d,"lines":[%b]}' % (lines[0][0], lines[-1][0] + 1, new)
        return Response(200, body, (("Content-Type", "application/json"), PRIVATE))


def _made(make: Callable[[], Response]) -> Response:
    """Return what `make` returns, or the reason why the recording cannot be read."""
    try:
        return make()
    except (CommandError, OSError) as problem:
        return Response(503, f"{one_line(text_of(problem))}\n".encode())


def serve(files: Sequence[Path], price: float | None, grid: str | None, show: Callable[[str], object]) -> None:
    """Serve the page of one recording on loopback until Ctrl-C; `show` its address. Raise CommandError."""
    if len(files) > 1:
        raise ConfigError(f"report --live: {files[1]}: it shows one recording while it grows; name one")
    terms = terms_of(price, grid)
    live = LivePage(lambda first: page([load(*runs_of(files)[0])], terms, first), files[0])
    live.whole()
    server = PageServer(ADDRESS, live.answer)
    name = one_line(str(files[0]))
    show(f"http://{server.host}:{server.port}{live.place} shows {name} while it grows; Ctrl-C ends it")
    while True:
        live.follow()
        time.sleep(LOOK)
