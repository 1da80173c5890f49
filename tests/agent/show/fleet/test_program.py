"""Keys on the screen of a fleet."""

from chipwatch.show.fleet.program import FleetView


def test_enter_opens_the_chosen_node_and_chooses_the_first_one_before():
    view = FleetView()
    view.press("enter")
    assert (view.opened, view.message) == (None, "there is no node to open")
    view.drawn.rows = [("gpu001",), ("gpu002",)], []
    view.press("enter")
    assert (view.opened, view.selected, view.message) == (None, ("gpu001",), "Enter opens the chosen node")
    view.press("enter")
    assert (view.opened, view.orders) == (("gpu001",), ["quit"])
