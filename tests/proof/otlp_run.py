"""
Sends points by OpenTelemetry's own exporter, or measures what its encoding costs; runs in .proof/otlp.

`python otlp_run.py send URL` takes JSON on standard input: resource, scope, metrics. `python otlp_run.py cost ROUNDS`
prints milliseconds of CPU for 1000 points.
"""

import json
import sys
import time

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics._internal.point import Buckets
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope


def number(point):
    return NumberDataPoint(point["attributes"], point["start"], point["at"], point["value"])


def histogram(point):
    of = point["value"]
    return ExponentialHistogramDataPoint(
        point["attributes"], point["start"], point["at"], of["count"], of["sum"], of["scale"], of["zeros"],
        Buckets(*of["positive"]), Buckets(*of["negative"]), 0, of["min"], of["max"],
    )  # fmt: skip


def data(metric):
    points = metric["points"]
    if metric["kind"] == "gauge":
        return Gauge([number(point) for point in points])
    way = AggregationTemporality.DELTA if metric["kind"].endswith("delta") else AggregationTemporality.CUMULATIVE
    if metric["kind"].startswith("sum"):
        return Sum([number(point) for point in points], way, is_monotonic=True)
    return ExponentialHistogram([histogram(point) for point in points], way)


def batch(given):
    metrics = [Metric(of["name"], of["help"], of["unit"], data(of)) for of in given["metrics"]]
    scope = ScopeMetrics(InstrumentationScope(*given["scope"]), metrics, "")
    return MetricsData([ResourceMetrics(Resource(given["resource"], given["schema"]), [scope], given["schema"])])


def series(n):
    return {"gpu": str(n % 8), "kind": "bench", "part": f"part-{n}"}


def points(turn):
    """Return 1000 points of 10 metrics, as the bench of our encoder has them."""
    for m in range(10):
        kind = "sum cumulative" if m % 2 else "gauge"
        rows = [
            {"attributes": series(n), "start": 1, "at": 10**18 + turn, "value": 1000.5 * m + n + turn}
            for n in range(100)
        ]
        yield {"name": f"bench.metric{m}", "help": f"Metric {m}.", "unit": "By", "kind": kind, "points": rows}


def cost(rounds):
    given = {
        "resource": {"service.name": "chipwatch", "service.instance.id": "n-1"},
        "scope": ["chipwatch", "1"],
        "schema": "",
    }
    batches = [batch({**given, "metrics": [*points(turn)]}) for turn in range(4)]
    took = []
    for n in range(rounds + 1):
        begun = time.process_time()
        encode_metrics(batches[n % 4]).SerializeToString()
        took.append(1000 * (time.process_time() - begun))
    return took[1:]


def main():
    if sys.argv[1] == "cost":
        sys.stdout.write(json.dumps(cost(int(sys.argv[2]))))
        return
    exporter = OTLPMetricExporter(endpoint=sys.argv[2])
    result = exporter.export(batch(json.load(sys.stdin)))
    exporter.shutdown()
    sys.stdout.write(result.name)


if __name__ == "__main__":
    main()
