"""Reads the pages of an endpoint."""

from __future__ import annotations

from collections.abc import Mapping

from chipwatch.collectors.openmetrics.endpoint import Endpoint, MetricFilter
from chipwatch.host import exposition


class PageReader(exposition.ExpositionReader):
    """Adds the dimension `endpoint`, and selects series by the endpoint's filters."""

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        chosen = MetricFilter(endpoint.filters)

        def takes(metric: str, labels: Mapping[str, str]) -> bool:
            return chosen.takes(f"{name}.{metric}", labels)

        def dims(labels: dict[str, str]) -> Mapping[str, str]:
            if "endpoint" in labels:
                theirs = "exported_endpoint"
                while theirs in labels:
                    theirs = f"exported_{theirs}"
                labels[theirs] = labels.pop("endpoint")
            return {**labels, "endpoint": name}

        super().__init__(endpoint.max_series, dims, takes)
