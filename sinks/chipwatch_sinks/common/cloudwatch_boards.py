"""The widgets of a CloudWatch dashboard: texts, and graphs, three in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from chipwatch.contract.advice import Chart
from chipwatch.contract.errors import Refused
from chipwatch_sinks.common.advice import placed

WIDTH, HEIGHT = 8, 6
"""Size of a graph in units of CloudWatch's grid, which is 24 wide."""
MAX_WIDGETS: Final = 500
"""Most widgets: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html."""


def widgets(
    charts: Sequence[Chart],
    region: str | None,
    kind: str,
    properties: Callable[[Chart], dict[str, Any]],
    note: str = "",
) -> Iterator[dict[str, Any]]:
    """Yield a widget of this `kind` for each graph, and text widgets: the note and the sections' titles."""
    if not region:
        raise Refused("no AWS region, and each graph needs one: set --region or AWS_REGION")
    for what, x, y in placed(charts, WIDTH, HEIGHT, service="CloudWatch", limit=MAX_WIDGETS, note=note):
        if isinstance(what, str):
            text = {"markdown": what if what == note else f"## {what}"}
            yield {"type": "text", "x": 0, "y": y, "width": 3 * WIDTH, "height": 1, "properties": text}
        else:
            size = {"type": kind, "x": x, "y": y, "width": WIDTH, "height": HEIGHT}
            yield {**size, "properties": {**properties(what), "region": region}}
