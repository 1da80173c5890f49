"""
Measures what a gateway costs: `python -m tools.gateway_load ROTEL`, a program that takes OTLP over HTTP and forwards it.

Simulated agents send what the sink `otlp` sends, 300 series each, to the gateway; a receiver behind it counts points. All is on
loopback, bounded in count and time.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge
from chipwatch_sinks.otlp.encoding import OtlpEncoder

AGENTS: Final = 200
SERIES: Final = 300
TICK: Final = os.sysconf("SC_CLK_TCK")
WAIT: Final = 30.0
"""Seconds for the last points to arrive."""


@dataclass
class Counted:
    """Requests and bodies that arrived behind the gateway."""

    requests: int = 0
    bodies: list[bytes] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def receiver(counted: Counted) -> ThreadingHTTPServer:
    """Return a server that takes every request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with counted.lock:
                counted.requests += 1
                counted.bodies.append(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # server_close waits for them
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def body_of(agent: int, turn: int) -> bytes:
    """Return one request of an agent: 300 series, half of them counters, of 8 GPUs and a job."""
    at = time.time_ns()
    machine = {
        "@instance_id": f"i-{agent:017x}",
        "hostname": f"node-{agent}",
        "k8s_pod": f"train-{agent}",
        "k8s_namespace": "team",
    }
    points: list[Datapoint] = []
    for n in range(SERIES):
        make = counter if n % 2 else gauge
        metric = make(f"load.metric{n // 8}.{'sum' if n % 2 else 'now'}", "By", "A metric.", dims=("gpu", "job"))
        dims = Dimensions(machine, gpu=str(n % 8), job="41337")
        points.append(metric.point(at, float(1000 * turn + n), dims, start_time=at - 10**12))
    return gzip.compress(OtlpEncoder({}).encode(points), 1)


def used(pid: int) -> tuple[float, float]:
    """Return CPU seconds and resident MB of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(words[11]) + int(words[12])) / TICK, int(words[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def free_port() -> int:
    """Return a port of loopback that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def load(program: str, seconds: float, per_second: float, agents: int = AGENTS) -> dict[str, float]:
    """Send `per_second` requests of `agents` through the gateway for some seconds; return what it took."""
    counted, port = Counted(), free_port()
    server = receiver(counted)
    target = f"http://127.0.0.1:{server.server_address[1]}"
    words = [program, "start", "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}",
             "--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", target, "--batch-timeout", "1s",
             "--metrics-batch-max-size", "1000"]  # fmt: skip
    env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    gateway = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        bodies = [body_of(agent, 1) for agent in range(agents)]
        before, begun, sent, failed = used(gateway.pid)[0], time.monotonic(), 0, 0
        largest, delays = 0.0, []

        def send(body: bytes) -> float | None:
            started = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                head = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
                connection.request("POST", "/v1/metrics", body, head)
                answer = connection.getresponse()
                answer.read()
                return time.monotonic() - started if answer.status == 200 else None
            except OSError:
                return None
            finally:
                connection.close()

        with ThreadPoolExecutor(8) as pool:
            while (passed := time.monotonic() - begun) < seconds:
                due = min(int(passed * per_second) - sent, 64)
                for delay in pool.map(send, [bodies[(sent + n) % agents] for n in range(due)]):
                    failed += delay is None
                    delays += [delay] if delay is not None else []
                sent += max(due, 0)
                largest = max(largest, used(gateway.pid)[1])
                time.sleep(0.02)
        wanted, deadline = (sent - failed) * SERIES, time.monotonic() + WAIT
        while (arrived := points_in(counted)) < wanted and time.monotonic() < deadline:
            time.sleep(0.5)
        cpu, memory = used(gateway.pid)
        delays.sort()
        return {
            "agents": agents, "requests": sent, "failed": failed, "points": wanted, "arrived": arrived,
            "seconds": round(time.monotonic() - begun, 1), "cpu_per_million": round((cpu - before) / (wanted / 1e6), 2),
            "cpu_share": round((cpu - before) / seconds, 3), "memory_mb": round(max(largest, memory)),
            "p50_ms": round(1000 * delays[len(delays) // 2], 1), "p99_ms": round(1000 * delays[len(delays) * 99 // 100], 1),
            "bytes_per_request": round(sum(map(len, bodies)) / agents), "load": round(os.getloadavg()[0], 1),
            "kept": kept(counted),
        }  # fmt: skip
    finally:
        gateway.kill()
        gateway.wait()
        server.shutdown()
        server.server_close()


def points_in(counted: Counted) -> int:
    """Return the points that arrived: each has the name of its attribute job once."""
    with counted.lock:
        return sum(body.count(b"41337") for body in counted.bodies)


def kept(counted: Counted) -> float:
    """Return the share of bodies that name the pod of a resource."""
    with counted.lock:
        return sum(b"k8s.pod.name" in body for body in counted.bodies) / max(1, len(counted.bodies))


if __name__ == "__main__":
    for rate in (20, 60, 120):
        sys.stdout.write(json.dumps({"per_second": rate, **load(sys.argv[1], 15, rate)}) + "\n")
        sys.stdout.flush()
