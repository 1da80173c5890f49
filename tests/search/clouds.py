"""Readers of what services answer: CloudWatch, Cloud Monitoring, metadata, endpoints."""

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import grpc
from google.api_core.exceptions import from_grpc_error
from tests.doubles.cloudwatch import environment
from tests.doubles.gce import VM
from tests.doubles.imds import DOCUMENT
from tests.doubles.monitoring.answers import AWAY, DISABLED, EXHAUSTED, SCOPES
from tests.doubles.raw import RawServer, http
from tests.search.answers import KINDS, STATUSES
from tests.search.corruptions import AT, window

from chipwatch.collectors.openmetrics.endpoint import Endpoint, ScrapeFailed
from chipwatch.collectors.openmetrics.fetch import Scraper
from chipwatch.config.identity.dmi import DmiTables
from chipwatch.config.identity.platforms import Ec2, Ecs, Gce
from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch_sinks.cloudwatch import CloudwatchSink
from chipwatch_sinks.google import GoogleSink

CLASSIFIED = (Retryable, Refused, BadBatch)
FIXTURES = Path(__file__).parents[1] / "fixtures"


def targets(stack: ExitStack, folder: Path) -> Iterator[tuple]:
    """Yield name, captures, reader and documented errors of each."""
    answers = [kind(Random(n)).partition(b"\r\n\r\n")[2] for n, kind in enumerate(KINDS.values())]
    members = b'{"__type":"com.amazonaws.cloudwatch#InvalidParameterValue","message":"The parameter MetricData.member.'
    seeds = [
        *(body for body in answers if 0 < len(body) < 1000),
        members + b'1.Timestamp must be.\\nMetricData.member.2.X"}',
    ]
    yield "cloudwatch answer", seeds, cloudwatch(stack), CLASSIFIED
    statuses = [one.status().trailing_metadata[0][1] for one in (AWAY, DISABLED, EXHAUSTED, SCOPES)]
    texts = [
        b"One or more TimeSeries could not be written: timeSeries[0-1,3]: out of order; timeSeries[2] failed with: x"
    ]
    yield "google answer", [*statuses, *texts], google(stack), CLASSIFIED
    server = stack.enter_context(Raw())
    page = b"# TYPE a counter\na_total 1\n# EOF\n"
    kinds = ("Content-Type: text/plain; version=0.0.4", "Content-Type: application/openmetrics-text; version=1.0.0")
    yield (
        "endpoint http",
        [http(200, page, kind) for kind in kinds],
        server.fed(lambda: _scrape(server.url)),
        (ScrapeFailed,),
    )
    hardware = DmiTables(folder, {})
    ec2 = Ec2({"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url}, hardware)
    yield (
        "metadata ec2",
        [http(200, json.dumps(DOCUMENT).encode()), http(200, b"token")],
        server.fed(lambda: ec2.ask(()).words),
    )
    ecs = Ecs({"ECS_CONTAINER_METADATA_URI_V4": f"{server.url}/v4/x"})
    tasks = [http(200, path.read_bytes()) for path in sorted((FIXTURES / "ecs").glob("*.json"))]
    yield "metadata ecs", tasks, server.fed(lambda: ecs.ask(["ecs_container", "ecs_cluster"]).words)
    gce = Gce({"GCE_METADATA_HOST": urlsplit(server.url).netloc}, hardware)
    document = http(200, json.dumps(VM).encode(), "Metadata-Flavor: Google")
    yield "metadata gce", [document], server.fed(lambda: gce.ask(["gcp_project"]).words)


def _scrape(url: str) -> list[object]:
    return [Scraper(Endpoint(f"{url}/metrics", timeout=1.0)).scrape()]


class Raw(RawServer):
    """A server that says the bytes that it is given, and closes."""

    def __init__(self) -> None:
        self.answer = b""
        super().__init__([lambda _: [self.answer]])

    def fed(self, ask):
        """Return a reader of what the server says."""

        def feed(data: bytes):
            self.answer = data
            return ask()

        return feed


def cloudwatch(stack: ExitStack):
    """Return a writer whose request is answered by a body, under a status that the body decides."""
    before = dict(os.environ)
    stack.callback(lambda: (os.environ.clear(), os.environ.update(before)))
    os.environ.update(environment())
    server = stack.enter_context(Raw())
    sink = CloudwatchSink(CloudwatchSink.Config(region="eu-west-1", endpoint_url=server.url), lambda: AT)
    sink.open()
    stack.callback(sink.close)
    batch = window(0)[:3]

    def feed(data: bytes) -> None:
        status = STATUSES[zlib.crc32(data) % len(STATUSES)]
        word = data[:30].decode("latin-1").translate({10: 32, 13: 32})
        server.answer = http(
            status, data, f"Retry-After: {word}", f"Date: {word}", f"x-amzn-query-error: {word};Sender"
        )
        sink.write(batch)

    return feed


class _Failed(grpc.RpcError, grpc.Call):
    """An answer of a gRPC service: a status, its words, and the bytes of its details."""

    def __init__(self, data: bytes) -> None:
        codes = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
        self._code, self._data = codes[zlib.crc32(data) % len(codes)], data

    def code(self):
        return self._code

    def details(self):
        return self._data.decode(errors="replace")

    def trailing_metadata(self):
        return (("grpc-status-details-bin", self._data),)

    def initial_metadata(self):
        return ()

    is_active = cancel = lambda self: False
    time_remaining = add_callback = lambda self, *_: None


def google(stack: ExitStack):
    """Return a writer whose request is answered by these words and details."""
    sink = GoogleSink(GoogleSink.Config(project="some-project", endpoint="127.0.0.1:1", insecure=True), lambda: AT)
    sink.open()
    stack.callback(sink.close)
    batch = [point for point in window(0) if point.metric.kind == "gauge"][:5]

    class Client:
        transport = sink._client._client.transport

        def create_time_series(self, *_args, **_more):
            # What google.api_core does with an error of grpc, and with one that it cannot take apart.
            raise from_grpc_error(_Failed(self.answer))

    stub = Client()
    sink._client._client = stub

    def feed(data: bytes) -> None:
        stub.answer = data
        sink._client._client = stub
        sink.write(batch)

    return feed
