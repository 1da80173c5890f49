"""Cost of OTLP: CPU of a request, beside OpenTelemetry's own exporter in the same run, and memory over TLS."""

import gc
import json
import subprocess
import sys
import tempfile
import zlib
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

from tests.bench.child import ROOT
from tests.bench.command import WARM_UP, resident, signed
from tests.bench.figure import MEMORY, Effort, Figure, cpu_ms

from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch_sinks.otlp.encoding import OtlpEncoder

POINTS, METRICS = 1000, 10
TURNS = 50
PLAIN, ZIPPED = 0.6, 1.2
TIMES = 8.0
"""Least ratio of the time of OpenTelemetry's exporter to ours."""
RESIDENT = {"plain": MEMORY["otlp"], "cloudwatch": 37.0, "google": 39.0, "google with a key file": 54.0}
"""MB by flavour; google has the token of the machine."""


def encoding(effort: Effort) -> list[Figure]:
    """Encode 1000 points whose values are new; take turns with OpenTelemetry's exporter, where it is installed."""
    encoder, turns = OtlpEncoder({}), count()
    metrics = [
        (counter if n % 2 else gauge)(f"bench.metric{n}", "By", f"Metric {n}.", dims=("gpu", "kind", "part"))
        for n in range(METRICS)
    ]
    dims = [
        Dimensions(gpu=str(n % 8), part=f"part-{n}", kind="bench", hostname="n-1") for n in range(POINTS // METRICS)
    ]
    batches = [  # of other metrics each time, as the spool returns them
        [of.point(10**18 + turn, 1000.5 * n + turn, each, start_time=1)
         for n, metric in enumerate(metrics) for of in [replace(metric)] for each in dims]
        for turn in range(4)
    ]  # fmt: skip

    def plain(_: int) -> None:
        encoder.encode(batches[next(turns) % 4])

    def zipped(_: int) -> None:
        packer = zlib.compressobj(level=1, wbits=31)
        packer.compress(encoder.encode(batches[next(turns) % 4]))
        packer.flush()

    cpu_ms(plain, 4, 0)
    gc.freeze()  # as the agent does once it runs
    ours, packed, theirs = [], [], []
    for _ in range(effort.rounds):
        ours.append(cpu_ms(plain, TURNS, 0.005))
        packed.append(cpu_ms(zipped, TURNS, 0.005))
        theirs += exporter(3)
    size = len(encoder.encode(batches[0]))
    how = f"CPU of {POINTS} points of {METRICS} metrics, half of them counters, 3 attributes, {size} bytes; mean of {TURNS}"
    found = [
        Figure("OTLP, 1000 points encoded", "ms", PLAIN, ours, how),
        Figure("OTLP, the same with gzip", "ms", ZIPPED, packed, "gzip at level 1"),
    ]
    if theirs:
        share = [100 * mine / min(theirs) for mine in ours]
        text = "encode_metrics and SerializeToString of opentelemetry-exporter-otlp-proto-common, points at hand"
        found.append(Figure("OTLP, the same by OpenTelemetry's exporter", "ms", None, theirs, text))
        found.append(Figure("OTLP, share of OpenTelemetry's exporter", "%", 100 / TIMES, share, "in the same run"))
    return found


def exporter(rounds: int) -> list[float]:
    """Return the milliseconds that OpenTelemetry's exporter takes, none where `make proof` has not installed it."""
    python = ROOT / ".proof/otlp/bin/python"
    if not python.exists():
        return []
    done = subprocess.run(
        [python, ROOT / "tests/proof/otlp_run.py", "cost", str(rounds)], capture_output=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


@contextmanager
def receiving(folder: Path):
    """Run a strict receiver over TLS in a separate process; give its address, and a bundle of certificates with its own."""
    certificate, key, bundle = signed(folder)
    words = [sys.executable, "-m", "tests.doubles.otlp", "--port", "0", "--tls", str(certificate), str(key)]
    receiver = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert receiver.stdout
        yield receiver.stdout.readline().strip(), bundle
    finally:
        receiver.kill()
        receiver.communicate()


def memory(effort: Effort) -> list[Figure]:
    """Watch the real command while it sends over TLS, with each flavour."""
    from tests.bench.cloudwatch import environ
    from tests.bench.google import TOKENS, secure
    from tests.doubles import cloudwatch as aws
    from tests.doubles.gce import Gce

    found = []
    for case, asked in RESIDENT.items():
        flavour, has_key = case.partition(" ")[0], case.endswith("file")
        with (
            tempfile.TemporaryDirectory() as name,
            tempfile.TemporaryDirectory() as keys,
            receiving(Path(name)) as (url, bundle),
            secure(Path(keys)) as wanted,
            Gce() as gce,
        ):
            key_file = {key: value for key, value in wanted.items() if key.startswith(("GOOGLE", "NO_GCE"))}
            machine = {"GCE_METADATA_HOST": gce.host, "CLOUDSDK_CONFIG": name, "NO_GCE_CHECK": ""}
            env = aws.environment(**(machine if case == "google" else key_file))
            env |= {"SSL_CERT_FILE": str(bundle), "SSL_CERT_DIR": "", "CHIPWATCH_SINKS__OTLP__FLAVOUR": flavour}
            words = ["--sink", "otlp", "--interval", "1", "--window", "10", "--flush", "1", "--spool", name]
            words += ["--endpoint-url", url, "--region", "eu-west-1"]
            with environ(env | {"OTEL_RESOURCE_ATTRIBUTES": "location=us-central1"}):
                values, _ = resident(words, effort, WARM_UP + 12)  # the first window is sent by then
            if flavour == "google" and not (TOKENS if has_key else gce.given):
                raise RuntimeError("nobody asked for a token, so nothing was sent; try it by hand")
        how = f"chipwatch --sink otlp, flavour {flavour}, all default collectors, TLS, windows of 10 s"
        found.append(Figure(f"OTLP, RSS of the agent, {case}", "MB", asked, values, f"{how}; MB are 10^6 bytes"))
    return found


def otlp(effort: Effort) -> list[Figure]:
    """Measure all of it."""
    return [*encoding(effort), *memory(effort)]
