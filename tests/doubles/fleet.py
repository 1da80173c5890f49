"""
Many nodes in one process: each address of loopback is a node, and serves a page that the sink `prometheus` made.

As a program (`python -m tests.doubles.fleet PORT SECONDS`) it serves good nodes whose pages change every two seconds, or as often as the third word says.
"""

import asyncio
import contextlib
import sys
import threading
import time
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "fixtures/fleet/page.txt").read_bytes()
"""The page of a node with eight H100 of a fake driver, one of which is lost, at level detailed."""
FINE = PAGE
for before, after in (
    (b'gpu_state{gpu="6"} 0', b'gpu_state{gpu="6"} 1'),
    (b'gpu_utilization_ratio{gpu="7"}', b'gpu_utilization_ratio{gpu="6"} 0.5\ngpu_utilization_ratio{gpu="7"}'),
    (b'gpu_count{state="busy"} 6.0', b'gpu_count{state="busy"} 7.0'),
    (b'gpu_count{state="lost"} 1.0', b'gpu_count{state="lost"} 0.0'),
):
    FINE = FINE.replace(before, after)
PERIOD = 2
LYING = FINE.replace(b'gpu_utilization_ratio{gpu="0"} 0.9', b'gpu_utilization_ratio{gpu="0"} 40')


def answer(body, status="200 OK", *headers):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def good(address):
    return answer(FINE)


class FleetDouble:
    """Serves, on every address of loopback, what `answers` returns for it: bytes, or None for silence."""

    def __init__(self, answers=good, port=0, tls=None):
        self.answers, self.asked, self.heads, self._tls = answers, [], [], tls
        self.port, self._ready = port, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    async def _run(self):
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._open = {}
        server = await asyncio.start_server(self._accept, "0.0.0.0", self.port, backlog=1024, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        self._loop.remove_reader(server.sockets[0])
        for _ in range(3):  # a connection that was just accepted gets its task, which asyncio refuses after close()
            await asyncio.sleep(0)
        server.close()
        for task, writer in self._open.items():
            task.cancel()
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()  # a task that has not begun does not close its connection
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader, writer):
        self._open[asyncio.ensure_future(self._serve(reader, writer))] = writer

    async def _serve(self, reader, writer):
        address = writer.get_extra_info("sockname")[0]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                self.asked.append(address)
                body = self.answers(address)
                if body is None:
                    await self._over.wait()
                writer.write(body)
                await writer.drain()
                if b"Connection: close" in body[:400]:
                    break
        with contextlib.suppress(OSError, RuntimeError):
            writer.transport.abort()


def changing(address):
    """Return the page of a node, other than PERIOD seconds ago."""
    return answer(
        FINE.replace(
            b'gpu_utilization_ratio{gpu="0"} 0.9', b'gpu_utilization_ratio{gpu="0"} 0.%d' % (time.monotonic() // PERIOD)
        )
    )


if __name__ == "__main__":
    PERIOD = float(sys.argv[3]) if len(sys.argv) > 3 else PERIOD
    with FleetDouble(changing, int(sys.argv[1])) as double:
        time.sleep(float(sys.argv[2]))
        sys.stdout.write(f"{len(double.asked)}\n")
