"""Cost of sending to Cloud Monitoring: CPU a series, and memory."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.bench.child import ask, environment, receiving
from tests.bench.cloudwatch import cpu, environ
from tests.bench.command import WARM_UP, resident, signed
from tests.bench.figure import MEMORY, Effort, Figure
from tests.doubles.web import WebDouble, give

from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge

SERIES = 1000
REQUEST = 200
LEVELS = [gauge(f"bench.level{n}.utilization", "%", "A level of something.", dims=("n",)) for n in range(25)]
TOTALS = [counter(f"bench.total{n}.bytes", "By", "A total of something.", dims=("n",)) for n in range(25)]
MACHINE = {"@instance_id": "4520031799277581759", "@gcp_zone": "us-central1-a"}


def google(effort: Effort) -> list[Figure]:
    """Measure all of it."""
    return [*cost(effort), *memory(effort)]


# -- CPU ----------------------------------------------------------------------------------------------------------


def cost(effort: Effort) -> list[Figure]:
    """Measure in a separate process, which sends to another one that accepts everything and reads nothing."""
    with receiving("grpc") as target:
        told = json.loads(ask("google", target, str(effort.rounds)))
    share = [min(told["documented"]) / ours for ours in told["sink"]]
    how = f"{SERIES} series of 3 labels, half of them counters, {REQUEST} a request, gRPC on loopback to a server that discards"
    return [
        Figure("Google, CPU of 1000 series", "ms", 6.0, told["sink"], f"CPU, all threads, of `write`; {how}"),
        Figure(
            "Google, the same as a share of the documented style", "", 1 / 8, [1 / times for times in share],
            f"the client's documented style takes {min(told['documented']):.1f} ms, in the same process",
        ),
    ]  # fmt: skip


DIMS = [Dimensions(MACHINE, instance_type="a3-highgpu-8g", run="7", n=str(n)) for n in range(20)]
"""Made once, as the frame does."""


def batches(at: int) -> list[list[Datapoint]]:
    """Return a window's points, cut into requests."""
    points = [metric.point(at, float(at % 97), dims) for metric in LEVELS for dims in DIMS]
    points += [metric.point(at, float(at // 10**6), dims, start_time=1) for metric in TOTALS for dims in DIMS]
    return [points[n : n + REQUEST] for n in range(0, SERIES, REQUEST)]


def child(target: str, rounds: str) -> None:
    """Send the same series by the sink and in the documented style, in this process; print the CPU times."""
    from chipwatch_sinks.google import GoogleSink

    sink = GoogleSink(GoogleSink.Config(project="some-project", endpoint=target, insecure=True))
    sink.open()
    told: dict[str, list[float]] = {"sink": [], "documented": []}
    begun = time.time_ns() - 3600 * 10**9
    for n in range(3 * int(rounds) + 1):
        window = batches(begun + n * 60 * 10**9)
        told["sink"].append(cpu(lambda window=window: [sink.write(batch) for batch in window]))
    sink.close()
    style = documented(target)
    for n in range(int(rounds) + 1):
        window = batches(begun + n * 60 * 10**9)
        told["documented"].append(cpu(lambda window=window: [style(batch) for batch in window]))
    json.dump({name: values[1:] for name, values in told.items()}, sys.stdout)


def documented(target: str) -> Any:
    """Return a function that writes a batch as the client's documentation does: attribute by attribute."""
    import grpc
    from google.api.metric_pb2 import MetricDescriptor
    from google.cloud import monitoring_v3
    from google.cloud.monitoring_v3.services.metric_service.transports import MetricServiceGrpcTransport

    transport = MetricServiceGrpcTransport(channel=grpc.insecure_channel(target))
    client = monitoring_v3.MetricServiceClient(transport=transport)

    def write(batch: list[Datapoint]) -> None:
        made = []
        for point in batch:
            series = monitoring_v3.TimeSeries()
            series.metric.type = "custom.googleapis.com/chipwatch/" + point.metric.name.replace(".", "/")
            series.resource.type = "gce_instance"
            series.resource.labels["instance_id"] = point.dims["@instance_id"]
            series.resource.labels["zone"] = point.dims["@gcp_zone"]
            for key in ("instance_type", "run", "n"):
                series.metric.labels[key] = point.dims[key]
            times = {"end_time": {"seconds": point.at // 10**9, "nanos": point.at % 10**9}}
            if point.start_time:
                series.metric_kind = MetricDescriptor.MetricKind.CUMULATIVE
                times["start_time"] = {"seconds": 0, "nanos": point.start_time}
            interval = monitoring_v3.TimeInterval(times)
            series.points = [monitoring_v3.Point({"interval": interval, "value": {"double_value": point.value}})]
            made.append(series)
        client.create_time_series(name="projects/some-project", time_series=made)

    return write


# -- memory -------------------------------------------------------------------------------------------------------


def memory(effort: Effort) -> list[Figure]:
    """Watch the real command while it sends: over TLS, with credentials that google-auth finds and refreshes."""
    with tempfile.TemporaryDirectory() as folder, secure(Path(folder)) as wanted, environ(wanted):
        words = ["--sink", "google", "--project", "some-project", "--interval", "1", "--window", "10", "--flush", "1"]
        values, peak = resident([*words, "--spool", folder], effort, WARM_UP + 12)  # the first window is sent by then
        if not TOKENS:
            raise RuntimeError("nobody asked for a token, so nothing was sent; try it by hand")
    how = "chipwatch --sink google, all default collectors, TLS, windows of 10 s; MB are 10^6 bytes"
    return [
        Figure("Google, RSS of the agent", "MB", MEMORY["google"], values, how),
        Figure("Google, peak RSS of the agent", "MB", None, [peak], "VmHWM of the same process"),
    ]


TOKENS: list[str] = []


class Tokens(WebDouble):
    """Gives a token to every client, as https://oauth2.googleapis.com/token does."""

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        TOKENS.append(http.path)
        body = json.dumps({"access_token": "a-token", "expires_in": 3600, "token_type": "Bearer"}).encode()
        give(http, 200, body, Content_Type="application/json")


@contextmanager
def secure(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server that speaks TLS, and one that gives tokens; give the environment that finds both."""
    certificate, key, bundle = signed(folder, "localhost")
    own = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    TOKENS.clear()
    with Tokens() as tokens, receiving("grpc", certificate, key) as target:
        credentials = {
            "type": "service_account", "project_id": "some-project", "client_email": "bench@some-project.example.org",
            "private_key": own.decode(), "token_uri": f"{tokens.url}/token",
        }  # fmt: skip
        (folder / "credentials.json").write_text(json.dumps(credentials))
        yield environment() | {
            "NO_GCE_CHECK": "true", "AWS_EC2_METADATA_DISABLED": "true",
            "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "credentials.json"),
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(bundle),
            "CHIPWATCH_SINKS__GOOGLE__ENDPOINT": f"localhost:{target.rpartition(':')[2]}",
        }  # fmt: skip
