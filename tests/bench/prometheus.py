"""Cost of the endpoint for Prometheus in a tick and a scrape, beside prometheus_client's registry, and in memory."""

import gc
import gzip
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.bench.command import agent_command
from tests.bench.figure import MB, CannotMeasure, Effort, Figure, cpu_ms, rss
from tests.bench.nvidia import fake_driver
from tests.ports import free_port

from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch_sinks.prometheus.page import Format, Page

SERIES = 5000
METRICS = 50
TICKS = 20
PLAIN, ZIPPED, FURTHER = 3.0, 6.0, 0.3
TIMES = 10.0
"""Least ratio of prometheus_client's time to ours."""
MEMORY = 3.0
WHOLE = 35.0
DCGM_EXPORTER = 467 * 2**20 / MB
"""Median RSS of dcgm-exporter's pods on machines with 1, 4 or 8 GPUs: https://github.com/pytorch/ci-infra/issues/1011."""


def scrapes(effort: Effort) -> list[Figure]:
    """Take a tick of 5000 series whose values are new and serve it; take turns with prometheus_client."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest
    except ModuleNotFoundError as missing:
        raise CannotMeasure(f"{missing.name} is not installed") from missing
    page, registry, turns = Page(), CollectorRegistry(), count()
    metrics = [
        (counter if n % 2 else gauge)(f"bench.metric{n}", "By", f"Metric {n}.", dims=("gpu", "kind", "part"))
        for n in range(METRICS)
    ]
    dims = [
        Dimensions(gpu=str(n % 8), part=f"part-{n}", kind="bench", hostname="n-1") for n in range(SERIES // METRICS)
    ]
    theirs = [
        Gauge(f"bench_metric{n}", f"Metric {n}.", ["gpu", "part", "kind"], registry=registry) for n in range(METRICS)
    ]
    children = [of.labels(each["gpu"], each["part"], each["kind"]) for of in theirs for each in dims]
    ticks = [
        [metric.point(0, 1000.5 * n + turn, each, start_time=1) for n, metric in enumerate(metrics) for each in dims]
        for turn in range(4)
    ]

    def tick(_: int) -> None:
        page.take(ticks[next(turns) % 4])
        page.body(Format.TEXT, zipped=False)

    def zipped(_: int) -> None:
        page.take(ticks[next(turns) % 4])
        page.body(Format.TEXT, zipped=True)

    def reference(_: int) -> None:
        turn = next(turns) % 4
        for child, point in zip(children, ticks[turn], strict=True):
            child.set(point.value)
        generate_latest(registry)

    cpu_ms(tick, 2, 0)
    gc.freeze()  # as the agent does once it runs
    plain, packed, other = [], [], []
    for _ in range(effort.rounds):
        plain.append(cpu_ms(tick, TICKS, 0.005))
        packed.append(cpu_ms(zipped, TICKS, 0.005))
        other.append(cpu_ms(reference, 1, 0.005))
    if page.series != SERIES:
        raise CannotMeasure(f"the page has {page.series} series instead of {SERIES}")
    sizes = [len(page.body(Format.TEXT, zipped=of)) for of in (False, True)]
    how = f"CPU to take {SERIES} points, all values new, and to write a page of {sizes[0] / 1e6:.2f} MB; mean of {TICKS} ticks"
    share = [100 * mine / theirs for mine, theirs in zip(plain, other, strict=True)]
    return [
        Figure("Prometheus page, one tick", "ms", PLAIN, plain, how),
        Figure("the same with gzip", "ms", ZIPPED, packed, f"{sizes[1] / 1e6:.3f} MB; mean of {TICKS} ticks"),
        Figure(
            "the same by prometheus_client", "ms", None, other, f"{SERIES} labelled gauges set, and generate_latest"
        ),
        Figure("Prometheus page, share of prometheus_client", "%", 100 / TIMES, share, "in the same round"),
    ]


def further_scrapes(effort: Effort) -> list[Figure]:
    """Scrape a page of 5000 series again and again within one tick, over loopback with gzip; take the server's CPU."""
    program = """
import sys, time
from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch_sinks.prometheus import PrometheusSink
sink = PrometheusSink(PrometheusSink.Config(listen=f"127.0.0.1:{sys.argv[1]}"))
sink.open()
metrics = [gauge(f"bench.metric{n}", "By", "Metric.", dims=("gpu", "part")) for n in range(50)]
sink.write([of.point(0, 1000.5 * n, Dimensions(gpu=str(n % 8), part=f"part-{n}")) for of in metrics for n in range(100)])
for line in sys.stdin:
    print(time.process_time_ns(), flush=True)
"""
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin
    assert child.stdout

    def spent() -> int:
        child.stdin.write("\n")
        child.stdin.flush()
        return int(child.stdout.readline())

    with ending(child):
        spent()  # it is ready
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        values = []
        for _ in range(effort.rounds + 1):
            before = spent()
            for _ in range(100):
                connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
                connection.getresponse().read()
            values.append((spent() - before) / 100 / 1e6)
        connection.close()
    how = f"CPU of the server's process for a scrape with gzip of a page of {SERIES} series that is written already; mean of 100"
    return [Figure("Prometheus, further scrape of a tick", "ms", FURTHER, values[1:], how)]


@contextmanager
def ending(child: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill a child at the end, and close its pipes."""
    try:
        yield
    finally:
        child.kill()
        child.communicate()


def scrape(port: int) -> bytes:
    """Return the page, scraped with gzip; wait for the agent's first one."""
    deadline = time.monotonic() + 20
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
            body = answer.read()
        except ConnectionRefusedError:
            answer = None
        connection.close()
        if answer and answer.status == 200:
            return gzip.decompress(body) if answer.headers["Content-Encoding"] else body
        if time.monotonic() > deadline:
            raise CannotMeasure("the agent serves no page")
        time.sleep(0.05)


def endpoint_memory(effort: Effort) -> list[Figure]:
    """Compare the agent with this sink, scraped twice a second, and the agent with stdout."""
    resident: dict[str, list[float]] = {"stdout": [], "prometheus": []}
    port = free_port()
    for _ in range(min(3, effort.rounds)):
        for sink, values in resident.items():
            child = subprocess.Popen(
                [agent_command(), "--sink", sink, "--format", "json", "--interval", "1"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, "CHIPWATCH_SINKS__PROMETHEUS__LISTEN": f"127.0.0.1:{port}"},
            )  # fmt: skip
            with ending(child):
                time.sleep(effort.steady_seconds / 3)
                for _ in range(4 if sink == "prometheus" else 0):
                    scrape(port)
                    time.sleep(0.5)
                if child.poll() is not None:
                    raise CannotMeasure(f"the agent with the sink {sink} has ended")
                values.append(rss(child.pid) / MB)
    values = resident["prometheus"]
    more = [ours - theirs for ours, theirs in zip(resident["prometheus"], resident["stdout"], strict=True)]
    return [
        Figure("the agent with the Prometheus endpoint", "MB", None, values, "basic metrics at 1 s, after 4 scrapes"),
        Figure(
            "what that is above the agent with stdout",
            "MB",
            MEMORY,
            more,
            "the same run with stdout, in the same round",
        ),
    ]


def with_gpus(effort: Effort) -> list[Figure]:
    """Run the agent with this sink, DCGM's names and a fake driver of eight GPUs; dcgm-exporter's published size beside it."""
    resident = []
    port = free_port()
    for _ in range(min(3, effort.rounds)):
        with fake_driver() as (folder, env):
            child = subprocess.Popen(
                [agent_command(), "--sink", "prometheus", "--names", "dcgm", "--level", "all", "--interval", "1"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={
                    **env, "CHIPWATCH_SINKS__PROMETHEUS__LISTEN": f"127.0.0.1:{port}",
                    "CHIPWATCH_COLLECTORS__NVIDIA__PROC": folder,
                },
            )  # fmt: skip
            with ending(child):
                for _ in range(max(4, int(effort.steady_seconds))):
                    page = scrape(port)
                    time.sleep(0.5)
                resident.append(rss(child.pid) / MB)
    fields = page.count(b"\nDCGM_FI_")
    if fields < 8 * 20:
        raise CannotMeasure(f"the page has {fields} series of GPUs; is the fake driver there?")
    how = f"host and 8 GPUs of a fake driver at level all, 1 s, {fields} series of DCGM's names, scraped twice a second"
    published = "published, not measured here: pytorch/ci-infra#1011, median of pods with 1, 4 or 8 GPUs"
    return [
        Figure("the whole agent with 8 GPUs and the Prometheus endpoint", "MB", WHOLE, resident, how),
        Figure("dcgm-exporter", "MB", None, [DCGM_EXPORTER], published),
    ]


def prometheus(effort: Effort) -> list[Figure]:
    """Measure all of it."""
    return [*scrapes(effort), *further_scrapes(effort), *endpoint_memory(effort), *with_gpus(effort)]
