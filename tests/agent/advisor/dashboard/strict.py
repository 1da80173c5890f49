"""A parser of dashboards and queries that accepts only what the clouds' documents allow."""

import re

NAME = r'"[^"\'\\]+"'
SEARCH = re.compile(
    rf"SLICE\(SORT\(SEARCH\('\{{({NAME}(?:,{NAME})*)\}} MetricName=({NAME})', '(Average|Sum|p99)', (\d+)\)(?: / (\d+))?"
    r", MAX, DESC\), 0, (\d+)\)"
)
QUERY = re.compile(
    rf"SELECT (AVG|COUNT|MAX|MIN|SUM)\(({NAME})\) FROM SCHEMA\(({NAME}(?:, ?{NAME})*)\)"
    rf"(?: WHERE ({NAME} != '[\w ]+'(?: AND {NAME} != '[\w ]+')*))?"
    rf"(?: GROUP BY ({NAME}(?:, {NAME})*) ORDER BY \1\(\) (ASC|DESC))?"
)
GROUPS = re.compile(
    rf"SELECT (AVG|MAX|MIN|SUM)\({NAME}\) FROM {NAME} GROUP BY {NAME}(?:, {NAME})* ORDER BY \1\(\) (ASC|DESC) LIMIT \d+"
    rf"|(?:AVG|MAX|MIN|SUM|METRIC_COUNT)\(SEARCH\('Namespace={NAME} MetricName={NAME}', '(?:Average|Sum)', \d+\)\)"
    r"|q1 / (?:60|300)"
)
"""Lines of groups: a query, a search for all series as one, and what makes a rate of either."""
ALIGNERS = {"ALIGN_MEAN", "ALIGN_MIN", "ALIGN_MAX", "ALIGN_DELTA", "ALIGN_RATE"}


def names(text):
    return tuple(part.strip().strip('"') for part in text.split(","))


def series(expression):
    """Return namespace, metric, dimensions and statistic of a search."""
    found = SEARCH.fullmatch(expression)
    assert found, expression
    namespace, *dims = names(found[1])
    assert len(set(dims)) == len(dims) <= 30
    return namespace, found[2].strip('"'), tuple(sorted(dims)), found[3]


def query(text):
    """Return what a query says."""
    found = QUERY.fullmatch(text)
    assert found, text
    namespace, *dims = names(found[3])
    groups = names(found[5]) if found[5] else ()
    assert set(groups) <= set(dims)
    excluded = {tuple(re.findall(r"[\w.]+", part)) for part in found[4].split(" AND ")} if found[4] else set()
    assert {key for key, _ in excluded} <= set(dims)
    return namespace, found[2].strip('"'), tuple(sorted(dims)), found[1], groups, excluded


def panels_of(board):
    """Return the rows and panels of a dashboard of Grafana, also the panels of collapsed rows."""
    return [each for panel in board["panels"] for each in (panel, *panel.get("panels", ()))]


def overlap_free(tiles, width):
    """Assert that tiles lie on the page and not on each other."""
    taken = set()
    for x, y, w, h in tiles:
        assert x >= 0
        assert y >= 0
        assert 1 <= w <= width - x
        assert h >= 1
        cells = {(i, j) for i in range(x, x + w) for j in range(y, y + h)}
        assert not cells & taken
        taken |= cells


def check_cloudwatch(body):
    """Assert that the body of PutDashboard is one; return what its searches look for."""
    assert set(body) == {"start", "periodOverride", "widgets"}
    assert re.fullmatch(r"-PT\d+[HM]", body["start"])
    assert body["periodOverride"] in {"auto", "inherit"}
    assert 1 <= len(body["widgets"]) <= 500
    overlap_free([(w["x"], w["y"], w["width"], w["height"]) for w in body["widgets"]], 24)
    found = []
    for widget in body["widgets"]:
        assert set(widget) == {"type", "x", "y", "width", "height", "properties"}
        if widget["type"] == "text":
            assert set(widget["properties"]) == {"markdown"}
            continue
        assert widget["type"] == "metric"
        found += check_graph(widget["properties"])
    return found


def check_graph(graph):
    keys = {"title", "view", "stacked", "region", "period", "metrics", "yAxis"}
    assert keys <= set(graph) <= keys | {"annotations"}
    for line in graph.get("annotations", {"horizontal": []})["horizontal"]:
        assert set(line) == {"label", "value"}
    assert graph["view"] in {"timeSeries", "singleValue"}
    assert graph["region"]
    assert graph["period"] in {1, 5, 10, 20, 30} or graph["period"] % 60 == 0
    assert set(graph["yAxis"]) == {"left"}
    axis = graph["yAxis"]["left"]
    assert {"label", "showUnits"} <= set(axis) <= {"label", "showUnits", "min", "max"}
    assert 1 <= len(graph["metrics"]) <= 500
    found, lines, ids, queries = [], 0, [], 0
    for (metric,) in graph["metrics"]:
        assert {"expression", "id", "period"} <= set(metric) <= {"expression", "id", "period", "label", "visible"}
        assert re.fullmatch(r"[a-z]\w*", metric["id"])
        ids.append(metric["id"])
        if GROUPS.fullmatch(metric["expression"]):
            continue
        if metric["expression"].startswith("SELECT"):
            *_, function, groups, excluded = query(metric["expression"])
            assert (function, groups, excluded) == ("AVG", (), set())
            assert metric["period"] % 60 == 0
            lines, queries = lines + 1, queries + 1
            continue
        match = SEARCH.fullmatch(metric["expression"])
        assert match, metric["expression"]
        assert int(match[4]) == metric["period"] == graph["period"]
        assert match[5] in {None, match[4]}
        lines += int(match[6])
        found.append(series(metric["expression"]))
    assert len(set(ids)) == len(ids)
    assert lines <= 500
    assert queries <= 1, "GetMetricData takes one query of Metrics Insights"
    return found


def check_google(board):
    """Assert that a Dashboard of Google's API is one; return the filters and aligners of its graphs."""
    assert set(board) == {"displayName", "mosaicLayout"}
    assert set(board["mosaicLayout"]) == {"columns", "tiles"}
    tiles = board["mosaicLayout"]["tiles"]
    assert 1 <= len(tiles) <= 100
    overlap_free([(t["xPos"], t["yPos"], t["width"], t["height"]) for t in tiles], board["mosaicLayout"]["columns"])
    found = []
    for tile in tiles:
        assert set(tile) == {"xPos", "yPos", "width", "height", "widget"}
        if "text" in tile["widget"]:
            assert tile["widget"]["text"]["format"] == "MARKDOWN"
            continue
        assert set(tile["widget"]) == {"title", "xyChart"}
        chart = tile["widget"]["xyChart"]
        assert (
            {"dataSets", "yAxis", "chartOptions"} <= set(chart) <= {"dataSets", "yAxis", "chartOptions", "thresholds"}
        )
        assert all(set(limit) == {"label", "value"} for limit in chart.get("thresholds", []))
        assert set(chart["yAxis"]) == {"label", "scale"}
        assert 1 <= len(chart["dataSets"]) <= 50
        found += [check_line(line) for line in chart["dataSets"]]
    return found


def check_line(line):
    known = {"timeSeriesQuery", "plotType", "targetAxis", "minAlignmentPeriod", "legendTemplate"}
    assert known - {"legendTemplate"} <= set(line) <= known
    assert line["plotType"] == "LINE"
    assert re.fullmatch(r"\d+s", line["minAlignmentPeriod"])
    (query_,) = line["timeSeriesQuery"].values()
    assert set(line["timeSeriesQuery"]) == {"timeSeriesFilter"}
    assert set(query_) == {"filter", "aggregation"}
    aggregation = query_["aggregation"]
    known = {"alignmentPeriod", "perSeriesAligner", "crossSeriesReducer"}
    assert known - {"crossSeriesReducer"} <= set(aggregation) <= known
    assert aggregation["perSeriesAligner"] in ALIGNERS
    assert aggregation.get("crossSeriesReducer", "REDUCE_MEAN") in {"REDUCE_MEAN", "REDUCE_PERCENTILE_95"}
    match = re.fullmatch(r'metric\.type = "([\w./]+)"', query_["filter"])
    assert match, query_["filter"]
    return match[1], aggregation["perSeriesAligner"]
