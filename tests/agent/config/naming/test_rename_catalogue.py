"""The catalogue's tables, cell by cell: what W&B and MLflow call each metric is what their profiles call it."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.agent.config.naming.builders import declared

from chipwatch.config.naming.profiles import profile
from chipwatch.config.naming.rename import OF_TREE, copier, renamer
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric

TEXT = (Path(__file__).parents[3] / "fixtures" / "catalogue.md").read_text()
TOOLS = {"wandb-docs": "W&B tag", "mlflow": "MLflow"}
PLACES = {"device_id": "ipu", "core": "neuron_core"}
"""The catalogue's words for dimensions within a tag; `i` stands for the dimension of the row."""
READ = {
    ("gpu.encoder.utilization", "encoderUtilization"): (["encoderUtilization", ""], "the tag is of the encoder alone"),
    ("tpu.memory.used", "tpu.{i}.memoryUsageBytes"): (["tpu.{i}.memoryUsageBytes", ""], "the tag is of what is used"),
    ("gpu.pcie.sent", "pcieTxBytes, …"): (
        ["pcieTxBytes", "pcieRxBytes", "nvlinkTxBytes", "nvlinkRxBytes"],
        "the dots stand for names that W&B's code has",
    ),
    ("gpu.sm.active", "smActive, smOccupancy, pipeTensorActive, dramActive, …"): (
        [
            "smActive",
            "smOccupancy",
            "pipeTensorActive",
            "dramActive",
            *(f"pipeFp{bits}Active" for bits in (64, 32, 16)),
        ],
        "the dots stand for names that W&B's code has",
    ),
}
"""Cells whose tags are not one a metric: first metric and cell -> the tags of each metric of the row, and why."""
EXCEPTIONS = {
    ("wandb-docs", "tpu.memory.utilization"): (
        "tpu.{i}.memoryUsage",
        "the page gives the share the tag of the bytes, and two units in one series would be none; this is W&B's code",
    ),
}
"""Tags that are given otherwise than the cell says, and why."""


@dataclass(frozen=True)
class Row:
    """The catalogue's row of one metric."""

    name: str
    kind: Kind
    unit: str
    dims: tuple[str, ...]
    tags: dict[str, tuple[str, ...]]
    """By tool, with the catalogue's places."""

    def point(self, value: float, at: int = 7) -> Datapoint:
        """Return a point of the metric with another value for each dimension."""
        metric = Metric(self.name, self.kind, self.unit, "M.", dims=self.dims)
        dims = Dimensions({key: f"my-{key}" for key in self.dims})
        return metric.point(at, value, dims, start_time=1 if self.kind is Kind.COUNTER else None)

    def filled(self, tag: str) -> str:
        """Return a tag as that point is to have it."""
        return re.sub(
            r"\{(\w+)\}", lambda place: f"my-{PLACES.get(place[1], place[1])}", tag.replace("{i}", self.index)
        )

    @property
    def index(self) -> str:
        (index,) = {"cpu", "gpu", "tpu"} & set(self.dims) or {""}
        return f"{{{index}}}"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables() -> list[tuple[list[str], list[list[str]]]]:
    """Return header and rows of each table."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE):
        header, _, *lines = block.splitlines()
        found.append((cells(header), [cells(line) for line in lines]))
    return found


def names_of(cell: str) -> list[str]:
    """`a.b.sent, .received` are a.b.sent and a.b.received; `a.b.c, .d.e` are a.b.c and a.d.e."""
    words = cell.split(", ")
    first = words[0].split(".")
    return [".".join(first[: len(first) - word.count(".")]) + word if word[0] == "." else word for word in words]


def tags_of(cell: str, names: list[str]) -> list[tuple[str, ...]]:
    """Return the tags of each of a row's metrics."""
    if (names[0], cell) in READ:
        return [(tag,) if tag else () for tag in READ[names[0], cell][0]]
    plain = re.sub(r" \((?:old|new|a second time)[^)]*\)", "", cell)
    tags = [tag for tag in re.split(r"[,;] ", plain) if tag]
    if len(names) == 1 or not tags:
        return [tuple(tags)] * len(names)
    tags = [tags[0].rpartition(".")[0] + tag if tag[0] == "." else tag for tag in tags]
    assert len(tags) == len(names), f"{cell!r} is not one tag a metric: say in READ how it is meant"
    return [(tag,) for tag in tags]


def parse() -> list[Row]:
    rows = []
    for header, lines in tables():
        columns = {tool: n for tool, word in TOOLS.items() for n, of in enumerate(header) if of.startswith(word)}
        prefixes = {tool: (re.findall(r"`(.+)`", header[n]) or [""])[0] for tool, n in columns.items()}
        for line in lines:
            names = names_of(line[0])
            units = [unit.split()[0] for unit in re.sub(r"\(.*?\)", "", line[2]).split(", ")]
            dims = tuple(key for key in re.sub(r"\(.*?\)", "", line[3]).replace(" ", "").split(",") if key)
            tags = {tool: tags_of(line[n], names) for tool, n in columns.items()}
            for n, name in enumerate(names):
                mine = {tool: tuple(prefixes[tool] + tag for tag in of[n]) for tool, of in tags.items()}
                rows.append(Row(name, Kind(KINDS[line[1]]), units[min(n, len(units) - 1)], dims, mine))
    return rows


KINDS = {"G": "gauge", "C": "counter"}
ROWS = parse()
NAMED = [(tool, row) for tool in TOOLS for row in ROWS if row.tags.get(tool)]
GPUS = [row for row in ROWS if row.name.startswith("gpu.") and row.name not in OF_TREE]


def theirs(tool: str, points: list[Datapoint]) -> list[Datapoint]:
    """Return what comes out for the points of one tick."""
    copy, rename = copier(tool), renamer(tool)
    return [rename(point) for point in (*points, *(copy(points) if copy else ()))]


def expected(tool: str, row: Row) -> set[str]:
    tags = row.tags.get(tool, ())
    if (tool, row.name) in EXCEPTIONS:
        tags = (EXCEPTIONS[tool, row.name][0],)
    return {row.filled(tag) for tag in tags} or {row.name}


def factor_of(tag: str) -> float:
    """Return how many bytes, or whatever the unit is, one of the tool's units holds."""
    if tag.startswith("system/"):
        return 1e6 if tag.endswith("_megabytes") else 1
    if tag.endswith("GB"):
        return 2**30
    return 2**20 if tag.endswith("MB") or re.fullmatch(r"disk\..*(in|out)", tag) else 1


# -- the walk -------------------------------------------------------------------------------------------------------


def test_the_walk_meets_every_row_and_every_metric_once():
    assert len(tables()) == TEXT.count("| name | kind | unit |") == 6
    assert sum(len(lines) for _, lines in tables()) == TEXT.count("| G | ") + TEXT.count("| C | ")
    assert len({row.name for row in ROWS}) == len(ROWS) == 106
    assert {tool: sum(bool(row.tags.get(tool)) for row in ROWS) for tool in TOOLS} == {"wandb-docs": 59, "mlflow": 13}


def test_the_collectors_have_every_metric_of_every_row():
    assert {row.name for row in ROWS} <= {*declared()}
    assert all((declared()[row.name].kind, declared()[row.name].unit) == (row.kind, row.unit) for row in ROWS)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_point_of_a_row_comes_out_under_exactly_the_names_that_the_row_gives(tool):
    found = {row.name: sorted(point.metric.name for point in theirs(tool, [row.point(5.0)])) for row in ROWS}
    assert found == {row.name: sorted(expected(tool, row)) for row in ROWS}


@pytest.mark.parametrize(("tool", "row"), NAMED, ids=lambda of: getattr(of, "name", of))
def test_its_value_is_in_the_unit_of_the_name(tool, row):
    for tag in expected(tool, row):
        rename, factor = renamer(tool), factor_of(tag)
        points = [*theirs(tool, [row.point(3 * factor)])]
        if row.kind is Kind.COUNTER:
            rename(row.point(100 * factor, at=5))
            points = [rename(row.point(103 * factor, at=7))]
        assert [point.value for point in points] == [pytest.approx(3)] * len(points)
        assert {point.start_time for point in points} == {5 if row.kind is Kind.COUNTER else None}


@pytest.mark.parametrize("row", GPUS, ids=lambda row: row.name)
def test_wandb_docs_has_the_tags_of_a_gpu_once_more_where_the_tree_uses_it(row):
    (tag,) = expected("wandb-docs", row)
    again = tag.replace("gpu.", "gpu.process.", 1)
    own = {name for other in ROWS if other.name in OF_TREE for name in expected("wandb-docs", other)}
    for other in (of for of in ROWS if of.name in OF_TREE):
        found = {point.metric.name for point in theirs("wandb-docs", [row.point(5.0), other.point(6.0)])}
        assert found - expected("wandb-docs", other) == {tag, again} - own if tag != row.name else {row.name}


@pytest.mark.parametrize("tool", TOOLS)
def test_no_two_series_of_all_rows_come_out_as_one(tool):
    found = [(point.metric.name, point.dims) for point in theirs(tool, [row.point(5.0) for row in ROWS])]
    assert len(found) == len(set(found))
    assert len(found) == len(ROWS) + (len(profile("wandb-docs").copies) if tool == "wandb-docs" else 0)
