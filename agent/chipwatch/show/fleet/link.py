"""A connection to a node that stays open: requests its page, and reads the answers."""

from __future__ import annotations

import asyncio
from typing import Final, cast

MAX_BODY: Final = 8 << 20
"""Most bytes of a page."""
MAX_HEAD: Final = 1 << 16
MAX_CHUNKS: Final = 20_000
"""Most chunks of an answer: more of them would delay the other nodes."""
NOT_HTTP: Final = "the answer is not valid HTTP"
CUT: Final = "the connection was closed before a whole answer came"
TOO_LONG: Final = f"the answer has more than {MAX_BODY >> 20} MiB"


class BadAnswer(Exception):
    """The other side did not answer with a page."""


class PageLink(asyncio.BufferedProtocol):
    """A connection for one request at a time; it takes a third of the CPU time of asyncio's streams."""

    arrived: Final = memoryview(bytearray(1 << 18))
    """Buffer that all connections share: each copies its data from there at once."""

    def __init__(self) -> None:
        self.is_open, self._data = False, bytearray()
        self._problem: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_open, self._transport = True, cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self.arrived

    def buffer_updated(self, nbytes: int) -> None:
        if self._waiter is None:  # data without a request
            self.close()
            return
        self._data += self.arrived[:nbytes]
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open, self._problem = False, exc
        self._wake()

    def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self._transport.abort()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def _more(self) -> None:
        """Wait for more data of the answer; raise OSError or BadAnswer."""
        if len(self._data) > MAX_BODY + 4 * MAX_HEAD:  # many small chunks
            raise BadAnswer(TOO_LONG)
        if self.is_open:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        elif self._problem:
            raise self._problem
        else:
            raise ConnectionError(CUT)

    async def ask(self, request: bytes) -> bytes:
        """Send `request`, return the page; raise OSError or BadAnswer. Then the link must be closed."""
        self._data = bytearray()
        self._transport.write(request)
        start = await self._end_of(b"\r\n\r\n", 0)
        head = self._data[:start].decode("latin-1").lower()
        if not head.startswith("http/1."):
            raise BadAnswer(NOT_HTTP)
        fields, status = dict(line.partition(":")[::2] for line in head.split("\r\n")[1:]), head[9:12]
        if fields.get("content-encoding", "identity").strip() != "identity":
            raise BadAnswer("the answer is compressed, which was not asked for")
        if "chunked" in fields.get("transfer-encoding", ""):
            body = await self._chunks(start)
        elif (length := fields.get("content-length", "").strip()).isdecimal():
            body = await self._bytes(start, int(length))
        else:
            raise BadAnswer("the answer does not say its length" if status == "200" else f"status {status}")
        self._waiter, self._data = None, bytearray()
        if "close" in fields.get("connection", ""):
            self.close()
        if status != "200":
            words = body[:100].decode(errors="replace").strip().partition("\n")[0]
            is_text = words and words.isprintable() and words[0] != "<"
            raise BadAnswer(f"status {status}{f': {words}' if is_text else ''}")
        return body

    async def _end_of(self, mark: bytes, start: int) -> int:
        """Return the index after the next `mark` in the data."""
        while (place := self._data.find(mark, start, start + MAX_HEAD)) < 0:
            if len(self._data) > start + MAX_HEAD:
                raise BadAnswer(NOT_HTTP)
            await self._more()
        return place + len(mark)

    async def _bytes(self, start: int, count: int, before: int = 0) -> bytes:
        """Return `count` bytes from the index `start`; `before`: bytes of the page that came earlier."""
        if not 0 <= count <= MAX_BODY - before:
            raise BadAnswer(TOO_LONG)
        while len(self._data) < start + count:
            await self._more()
        with memoryview(self._data) as data:
            return bytes(data[start : start + count])

    async def _chunks(self, start: int) -> bytes:
        """Return a body that comes in chunks; raise ValueError for an invalid chunk size."""
        body = bytearray()
        for _ in range(MAX_CHUNKS):
            end = await self._end_of(b"\r\n", start)
            size = int(self._data[start:end].partition(b";")[0], 16)
            if not size:
                await self._end_of(b"\r\n\r\n", end - 2)
                return bytes(body)
            body += await self._bytes(end, size, len(body))
            start = await self._end_of(b"\r\n", end + size)
        raise BadAnswer(f"the answer has more than {MAX_CHUNKS:,} chunks")
