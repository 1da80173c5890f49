"""Cost of a large page of metrics, from its bytes to datapoints, beside prometheus_client's parser."""

import gc

from tests.bench.figure import CannotMeasure, Effort, Figure, cpu_ms

from chipwatch.collectors.openmetrics.endpoint import Endpoint, PageReader
from chipwatch.host.exposition import ScrapeResponse

SERIES = 5000
BYTES = 1_400_000
TICKS = 20
ASKED = 12.0
TIMES = 20.0
"""Least ratio of prometheus_client's time to ours."""
GPUS = 8


def large_page(effort: Effort) -> list[Figure]:
    """Read a page whose values are new at each tick; take turns with prometheus_client."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ModuleNotFoundError as missing:
        raise CannotMeasure(f"{missing.name} is not installed") from missing
    reader = PageReader("dcgm", Endpoint(max_series=SERIES))
    pages = [page(tick) for tick in range(4)]
    bodies = [ScrapeResponse(text.encode(), openmetrics=False, whole=True) for text in pages]
    turn = found = 0

    def tick(at: int) -> None:
        nonlocal turn, found
        turn += 1
        found = len(reader.read(bodies[turn % 4], at)[0])

    def reference(_: int) -> None:
        for _family in text_string_to_metric_families(pages[turn % 4]):
            pass

    cpu_ms(tick, 2, 0)
    gc.freeze()  # as the agent does once it runs
    ours, theirs = [], []
    for _ in range(effort.rounds):
        ours.append(cpu_ms(tick, TICKS, 0.005))
        theirs.append(cpu_ms(reference, 1, 0.005))
    if found != SERIES:
        raise CannotMeasure(f"the page gave {found} series instead of {SERIES}")
    size = f"{len(pages[0]) / 1e6:.2f} MB"
    how = f"CPU from the bytes of a page of {size} to {found} datapoints, all series known, all values new; mean of {TICKS} pages"
    figures = [Figure("OpenMetrics page, one tick", "ms", ASKED, ours, how)]
    figures.append(
        Figure("the same by prometheus_client", "ms", None, theirs, "its text parser alone, families thrown away")
    )
    share = [100 * mine / other for mine, other in zip(ours, theirs, strict=True)]
    how = "our time, to datapoints, by that of prometheus_client, to its families, in the same round"
    return [*figures, Figure("OpenMetrics, share of prometheus_client", "%", 100 / TIMES, share, how)]


def page(tick: int = 0) -> str:
    """Return a page as dcgm-exporter writes it: 5000 series of 1.4 MB, half of them counters."""
    lines = []
    for n in range(SERIES // GPUS // 5):
        kind = "counter" if n % 2 else "gauge"
        lines += [f"# HELP DCGM_FI_DEV_{n} What field {n} of the device says.", f"# TYPE DCGM_FI_DEV_{n} {kind}"]
        lines += [
            f'DCGM_FI_DEV_{n}{{gpu="{gpu}",UUID="GPU-c601d117-58ff-cd30-ae20-529ab192ba{gpu}{part}",pci_bus_id="00000000:0{gpu}:00.0",'
            f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="gke-gke-dcgm-default-pool-eb7746d2-6vkd",'
            f'container="trainer",namespace="default",pod="trainer-{part}-worker-0",part="{part}"}} {1000 * n + gpu + tick / 4}'
            for gpu in range(GPUS)
            for part in range(5)
        ]
    return "\n".join(lines) + "\n"
