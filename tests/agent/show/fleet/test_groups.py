"""Groups of nodes: their sums, the worst node of each, and the screen that folds them."""

import pytest

from chipwatch.show.fleet.groups import grouped, groups_of
from chipwatch.show.fleet.node import FleetNode
from chipwatch.show.fleet.screen import FleetView, columns_of, compose, summary


def fleet(racks, size):
    """Return nodes with the worst one first: one of the second rack is not fit, one of the third is silent."""
    same = {"gpus": 8, "busy": 7, "idle": {"data": 1.0}, "utilization": 80.0, "power": 5e3, "seen": 1.0}
    made = [FleetNode(f"r{r}n{n:02}", jobs=[f"j{r}"], **same) for r in range(1, racks + 1) for n in range(1, size + 1)]
    made[size] = FleetNode("r2n01", verdict="not fit", reason="gpu 6 had Xid 79", **same | {"lost": 1, "busy": 6})
    made[2 * size] = FleetNode("r3n01", "no complete answer in 3 s")
    return sorted(made, key=lambda node: node.place)


def screen(nodes, view, size=(80, 24), clock=3600.0):
    lines = compose(nodes, view, size, "every 5 s", clock=clock)
    assert {sum(len(text) for text, _ in line) for line in lines} == {size[0]}
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def test_a_group_has_the_sums_of_its_nodes_and_names_the_worst_one():
    nodes = fleet(4, 16)
    groups = {name: line for name, (line, _) in grouped(nodes, "r", {}).items()}
    assert [*groups] == ["3", "2", "1", "4"], "the worst one is first"
    assert (groups["3"].word, groups["3"].reason) == ("silent", "1 silent, r3n01: no complete answer in 3 s")
    bad = groups["2"]
    assert (bad.word, bad.reason, bad.delivery) == ("not fit", "1 not fit, r2n01: gpu 6 had Xid 79", None)
    assert (bad.gpus, bad.busy, bad.lost, bad.idle, bad.power) == (128, 111, 1, {"data": 16}, 8e4)
    assert (groups["3"].utilization, groups["3"].gpus) == (80, 120), "a silent node counts in no sum"
    assert summary([*groups.values()])[1] == summary(nodes)[1]


@pytest.mark.parametrize(("by", "words"), [
    ("job", ["a", "b"]), ("user", ["-"]), ("verdict", ["silent"]), ("zone", ["eu", "us"]), ("rack", ["12"]), ("x", ["-"]),
])  # fmt: skip
def test_a_node_is_in_the_groups_of_its_label_its_jobs_or_the_number_in_its_name(by, words):
    node = FleetNode("rack-12n03", "no answer", jobs=["a", "b"])
    assert groups_of(node, by, {"rack-12n03": ["eu", "us"]} if by == "zone" else {}) == words


def test_an_unknown_figure_of_a_group_is_absent_and_not_zero():
    ((line, _),) = grouped([FleetNode("a", verdict="waiting"), FleetNode("b")], "job", {}).values()
    assert (line.busy, line.utilization, line.power, line.cpu) == (None,) * 4


@pytest.mark.parametrize(("size", "rows"), [(15, 64), (16, 4)], ids=["60 nodes", "64 nodes"])
def test_groups_are_folded_above_60_nodes_and_enter_turns_one(size, rows):
    view, nodes = FleetView(by="r"), fleet(4, size)
    for key in ("down", "enter"):
        screen(nodes, view)
        assert len(view.drawn.rows[0]) == rows
        view.press(key)
    screen(nodes, view)
    assert len(view.drawn.rows[0]) == rows + (size if rows == 4 else -size)
    assert view.opened is None


def test_filter_order_and_groups_stay_while_a_node_is_open():
    view, nodes = FleetView(by="job"), fleet(30, 16)
    for key in ("/", *"r1 !n02", "enter", "down", "enter", "s", "down"):
        before = screen(nodes, view)
        view.press(key)
    assert before[1].startswith("480 nodes: 1 silent, 1 not fit, 478 answer")
    assert "  r1n03" in "\n".join(before)
    assert "r1n02" not in "\n".join(before)
    before = screen(nodes, view)
    view.press("enter")
    assert (view.opened, view.orders) == (("r1n01",), ["quit"])
    assert screen(nodes, view) == before


def test_a_key_goes_through_the_ways_to_group():
    view, ways = FleetView(label="rack", by="rack"), []
    for _ in range(6):
        ways.append(view.by)
        view.press("b")
    assert ways == ["rack", "job", "user", "verdict", "", "rack"]
    view.press("enter")
    assert (view.opened, view.message) == (None, "there is no node to open")


def test_each_line_has_a_graph_of_the_last_hour_of_the_screen():
    view, nodes = FleetView(by="r"), fleet(4, 16)
    for minute in range(90):
        nodes[5].utilization = 0.0 if minute < 60 else 80.0
        lines = screen(nodes, view, (120, 24), 3600.0 + 60 * minute)
    assert "last hour" in lines[3]
    assert len(view.past) == 24
    hour = next(column for column in columns_of(view) if column.title == "last hour")
    assert [hour.cell(nodes[n])[0] for n in (5, 0)] == ["⣀" * 6 + "⣶" * 6, "-"], "a silent node has none"
    assert "last hour" not in screen(nodes, view)[4]
