"""The cost of sending by OTLP (Google charges samples, CloudWatch bytes), and CloudWatch dashboards in PromQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chipwatch.contract import advice
from chipwatch.contract.datapoint import HIDDEN, NO_DIMENSIONS, Datapoint, Dimensions
from chipwatch.contract.errors import Refused
from chipwatch_sinks.common.advice import dated, document, promql, read_prices, tiers, widgets
from chipwatch_sinks.common.cloudwatch_prices import CloudwatchPrices
from chipwatch_sinks.otlp.encoding import labels
from chipwatch_sinks.otlp.resource import attribute_of

CHART: Final = Path(__file__).with_name("chart.json").read_text(encoding="utf-8")
"""
A graph's JSON for a PromQL query, with the keys that AWS's own dashboards have.

From https://github.com/aws-observability/aws-observability-accelerator, artifacts/cloudwatch-dashboards; labels:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-PromQL-Querying.html.
"""
EC2: Final = Dimensions({f"{HIDDEN}{word}": value for word, value in {
    "instance_id": "i-0123456789abcdef0", "instance_type": "p5.48xlarge", "ami_id": "ami-0123456789abcdef0",
    "hostname": "ip-10-0-0-1.ec2.internal", "region": "us-east-1", "availability_zone": "us-east-1a",
    "account_id": "123456789012",
}.items()})  # fmt: skip
"""Dimensions that the sink learns on an instance of EC2, in their usual lengths."""
DRAWN: Final[Mapping[advice.Drawn, str]] = {"rate": "rate({}[5m])", "increase": "increase({}[5m])"}
"""A graph's way to show a counter -> its PromQL; five minutes hold several points of one-minute windows."""


class OtlpAdvisor(advice.Advisor):
    """Prices for the sink's flavour of receiver."""

    def __init__(self, config: Any, terms: advice.Terms) -> None:
        self._config, self._terms = config, terms
        self._book = read_prices(Path(__file__).with_name("prices.toml")).get(config.flavour, {})
        self.tariff = advice.Tariff(
            service=self._book.get("service", "a receiver whose prices are not known"),
            charges_for="bytes" if config.flavour == "cloudwatch" else "points",
            apart="each host is a separate resource, whatever the dimensions are",
            ended="cost nothing",
        )

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        return None if self._config.flavour == "google" else sum(map(self._size, window))

    def _size(self, point: Datapoint) -> int:
        """Return the bytes charged for a point: name, attributes, the resource's attributes, 16 for time and value."""
        given, on_points = self._config.resource_attributes, self._config.machine_attributes
        machine = EC2 if self._config.flavour == "cloudwatch" else NO_DIMENSIONS
        pairs = labels(point.metric, machine | point.dims, given, on_points=on_points)
        size = len(point.metric.name) + 16 + sum(len(f"{key}{value}".encode()) for key, value in pairs)
        if point.summary is None or self._config.gauges == "mean":
            return size
        return 3 * size if self._config.gauges == "mean-min-max" else size + 48 + 2 * len(point.summary.values)

    def costs(self, load: advice.Load) -> Iterable[advice.Cost]:
        book = self._book
        if self._config.flavour == "cloudwatch":
            price = self._terms.price_per_gb
            yield advice.Cost(
                "GB of points, about", (load.bytes or 0) / 1e9, price, unit="GB", missing="--price-per-gb"
            )
        elif self._config.flavour == "google":
            prices = tuple(zip((*book["tiers"], None), book["millions"], strict=True))
            samples = load.points * (3 if self._config.gauges == "mean-min-max" else 1) / 1e6
            yield from tiers("million samples", samples, prices, unit="million", as_of=dated(book))
        else:
            yield advice.Cost("million points", load.points / 1e6, None, unit="million")

    def quotas(self, load: advice.Load) -> Iterable[advice.Quota]:
        if limit := self._book.get("requests_per_second"):
            used = load.requests / advice.MONTH
            yield advice.Quota("requests/s", limit, used, self._book["owner"], shared=True)

    def notes(self, load: advice.Load) -> Iterable[str]:
        if self._config.flavour == "plain":
            yield "Bytes are without compression; with gzip about a tenth of them is sent."
        if self._config.flavour == "google" and self._config.gauges == "histogram":
            yield "A histogram counts as several samples, which is not reckoned here."
        if self._config.flavour != "cloudwatch":
            return
        yield (
            "A point's bytes are its name, its attributes, its resource's attributes, time and value; the resource is"
            " an instance of EC2 here, and tasks and pods have more attributes."
        )
        if self._terms.price_per_gb is None:
            yield "No page of AWS that could be read has the price of a GB; give yours with --price-per-gb."

    def beside(self, load: advice.Load) -> Iterable[str]:
        if self._config.flavour != "cloudwatch" or not load.bytes:
            return
        bill = [*CloudwatchPrices(self._config, self._terms).costs(load)]
        dollars, size = sum(line.dollars or 0.0 for line in bill), load.bytes / 1e9
        yield (
            f"By PutMetricData (--sink cloudwatch) the same series cost {dollars:,.2f} dollars a month, as much as"
            f" these {size:,.3f} GB at {dollars / size:,.2f} dollars a GB."
        )


class CloudwatchOtlpAdvisor(OtlpAdvisor):
    """Dashboards of CloudWatch in PromQL."""

    board = advice.Board(20, program="cloudwatch-promql", by_name=True)

    def dashboard(self, charts: Sequence[advice.Chart], scope: advice.Scope) -> Iterable[str]:
        region = CloudwatchPrices(self._config, self._terms).region
        return document({"widgets": [*widgets(charts, region, "chart", lambda chart: _graph(chart, scope))]})

    def omissions(self, charts: Sequence[advice.Chart]) -> Iterable[str]:
        yield f"A graph shows the {advice.MAX_GROUPS} series or groups with the highest values."

    def alarms(self, alarms: Sequence[advice.Alarm], scope: advice.Scope) -> Iterable[str]:
        raise Refused("no alarms of PromQL for CloudWatch: send to the sink cloudwatch too, and use --cloud cloudwatch")


def _graph(chart: advice.Chart, scope: advice.Scope) -> dict[str, Any]:
    """Return a graph's properties; one dot of an increase covers the time range of its query."""
    first, graph = chart.series[0], json.loads(CHART)
    texts = [_query(chart, shown, sent) for shown, sent in chart.lines]
    step = scope.period or (300 if first.drawn == "increase" else 60)
    (query,) = graph["data"]["queries"]
    queries = [{**query, "id": f"q{number}", "query": text, "step": step} for number, text in enumerate(texts, 1)]
    title = f"{chart.title}, {chart.label}" if chart.label else chart.title
    view = "number" if chart.fold and not chart.by else graph["view"]
    return {**graph, "title": title, "view": view, "data": {"queries": queries}}


def _query(chart: advice.Chart, shown: advice.Shown, sent: advice.SentMetric) -> str:
    """Return the query for a line of a graph; of many series it shows those with the highest values."""
    keys = [_label(sent, key) for key in chart.by]
    text = promql(chart, shown, sent, f"{{{json.dumps(sent.name)}}}", keys, drawn=DRAWN)
    return f"topk({advice.MAX_GROUPS}, {text})" if shown == "each" else text


def _label(sent: advice.SentMetric, key: str) -> str:
    """Return PromQL's label for a key: a metric's own dimensions are attributes of points, others of the resource."""
    word = "service.instance.id" if key == advice.MACHINE else attribute_of(key)
    return json.dumps(key if key in sent.metric.dims else f"@resource.{word}")
