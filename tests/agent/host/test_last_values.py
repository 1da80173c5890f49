import json
import os
from pathlib import Path

import pytest
from tests.doubles import sysfs

from chipwatch.contract.datapoint import Dimensions, counter
from chipwatch.host import last_values
from chipwatch.host.counters import Counters
from chipwatch.host.last_values import EVERY, LastValues

S = 10**9
BOOT = 1_795_000_000 * S
AT = BOOT + 5000 * S
SENT = counter("test.sent", "By", "Sent.", dims=("interface",))
ETH0 = Dimensions(interface="eth0")


class Agents:
    """Runs of an agent, one after the other, on one machine with one device."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.state, self.device = folder / "proc", folder / "state", folder / "sys/eth0"
        sysfs.write(self.proc / "stat", f"btime {BOOT // S}\n")
        self.boot("one")
        self.state.mkdir()
        self.device.mkdir(parents=True)
        self.file = self.state / "counters.network.json"
        self.start()

    def boot(self, name: str) -> None:
        sysfs.write(self.proc / "sys/kernel/random/boot_id", name)

    def replace_device(self) -> None:
        self.device.rename(self.device.with_name(f"gone{len(list(self.device.parent.iterdir()))}"))
        self.device.mkdir()

    def start(self, state: Path | None = None) -> None:
        self.kept = LastValues(state or self.state, "network", self.proc)
        self.counters = Counters(kept=self.kept, device=self.device)

    def read(self, at: int, value: float, dims: Dimensions = ETH0) -> tuple[float, int]:
        point = self.counters.point(SENT, at, value, dims)
        self.kept.save(at)
        return point.value, point.start_time


@pytest.fixture
def fresh(tmp_path):
    return Agents(tmp_path)


@pytest.fixture
def agents(fresh):
    """The first of them has read 700 at AT."""
    fresh.read(AT, 700)
    return fresh


def test_the_first_run_of_a_boot_counts_from_the_boot_and_the_next_one_goes_on(fresh):
    assert fresh.read(AT, 700) == (700, BOOT)
    fresh.start()
    assert fresh.read(AT + S, 700) == (700, BOOT)


def test_a_reset_in_the_last_minute_before_a_kill_is_kept(agents):
    assert agents.read(AT + S, 3) == (3, AT)
    agents.start()
    assert agents.read(AT + 2 * S, 800) == (800, AT)


def test_a_measured_boot_time_that_changes_does_not_move_the_start(agents):
    sysfs.write(agents.proc / "stat", f"btime {BOOT // S + 3}\n")
    agents.start()
    assert agents.read(AT + S, 701) == (701, BOOT)


def test_a_counter_that_is_lower_after_a_stop_started_after_the_last_reading(agents):
    agents.read(AT + 5 * S, 900)
    agents.kept.close()
    agents.start()
    assert agents.read(AT + 1000 * S, 899) == (899, AT + 5 * S)


def test_a_counter_that_is_lower_after_a_kill_started_after_all_that_may_have_been_sent(agents):
    agents.read(AT + 59 * S, 900)
    agents.start()
    assert agents.read(AT + 1000 * S, 699) == (699, AT + EVERY)
    agents.start()
    assert agents.read(AT + 1001 * S, 698) == (698, AT + 1001 * S)


def test_a_counter_of_another_device_of_that_name_starts_at_its_first_reading(agents):
    agents.replace_device()
    agents.start()
    assert agents.read(AT + S, 10**9) == (10**9, AT + S)


def test_a_kill_loses_less_than_a_minute_of_values(fresh):
    for seconds in range(0, 181, 5):
        fresh.read(AT + seconds * S, 1000 + seconds)
    (kept,) = json.loads(fresh.file.read_text())["counters"].values()
    assert kept[:2] == [1180, BOOT]
    fresh.read(AT + 239 * S, 1239)
    (kept,) = json.loads(fresh.file.read_text())["counters"].values()
    assert kept[:2] == [1180, BOOT]


def test_after_a_kill_a_device_that_reset_in_place_and_passed_what_was_saved_is_not_noticed(agents):
    """The limit of the law: docs/maintain/faults.md and the decision name it."""
    agents.read(AT + 59 * S, 900)
    agents.start()
    assert agents.read(AT + 1000 * S, 800) == (800, BOOT)


def test_a_single_zero_after_a_restart_is_ignored_as_ever(agents):
    agents.start()
    assert [agents.read(AT + at * S, value)[0] for at, value in ((1, 0), (2, 701))] == [700, 701]


def test_what_the_last_run_did_not_read_and_what_comes_later_starts_at_its_first_reading(agents):
    late = Dimensions(interface="late")
    assert agents.read(AT + S, 5, late) == (5, AT + S)
    agents.start()
    assert agents.read(AT + 2 * S, 6, Dimensions(interface="new")) == (6, AT + 2 * S)
    assert agents.read(AT + 2 * S, 6, late) == (6, AT + 2 * S)
    assert agents.read(AT + 3 * S, 800) == (800, AT + 3 * S)


def test_what_another_boot_kept_is_ignored(agents):
    agents.boot("two")
    agents.start()
    assert agents.read(AT + S, 10) == (10, BOOT)


@pytest.mark.parametrize("state", ["none", "no boot id"])
def test_without_a_folder_or_a_boot_nothing_is_kept_and_the_boot_is_the_start(fresh, state):
    if state == "no boot id":
        (fresh.proc / "sys/kernel/random/boot_id").unlink()
    fresh.kept = LastValues(None if state == "none" else fresh.state, "network", fresh.proc)
    fresh.counters = Counters(kept=fresh.kept)
    assert fresh.read(AT, 700) == (700, BOOT)
    fresh.kept.close()
    assert list(fresh.state.iterdir()) == []


@pytest.mark.parametrize(
    "rot", [b"", b"{", b"\xff", b"[]", b'{"boot": "one"}', b'{"boot":"one","until":1,"counters":{"a":[1,"x",0]}}']
)
def test_of_a_file_that_cannot_be_read_each_counter_gets_a_newer_start(agents, rot):
    agents.file.write_bytes(rot)
    agents.start()
    assert agents.read(AT + S, 5) == (5, AT + S)
    agents.start()
    assert agents.read(AT + 2 * S, 6) == (6, AT + S)


def test_of_a_file_above_the_bound_each_counter_gets_a_newer_start(agents):
    agents.file.write_bytes(b" " * (5 << 20) + agents.file.read_bytes())
    agents.start()
    assert agents.read(AT + S, 700) == (700, AT + S)


def test_a_kept_start_in_the_future_is_not_used(fresh):
    fresh.read(AT + 10**6 * S, 700, Dimensions(interface="other"))
    fresh.read(AT + 10**6 * S, 700)
    fresh.start()
    assert fresh.read(AT, 800) == (800, AT)


@pytest.mark.parametrize("value", [1 << 63, 4 * ((1 << 64) - 1), 1e300])
def test_a_value_that_no_file_holds_costs_only_itself(fresh, value):
    fresh.read(AT, value, Dimensions(interface="odd"))
    fresh.counters.point(SENT, AT, 5, ETH0)
    fresh.kept.close()
    assert len(json.loads(fresh.file.read_text())["counters"]) == 1


def test_the_number_of_kept_counters_is_bounded(fresh, monkeypatch):
    monkeypatch.setattr(last_values, "MAX_COUNTERS", 20)
    for number in range(25):
        fresh.counters.point(SENT, AT, 5, Dimensions(interface=f"veth{number}"))
    fresh.kept.save(AT)
    assert len(json.loads(fresh.file.read_text())["counters"]) == 20


def test_counters_of_a_device_that_is_gone_are_forgotten(agents):
    agents.counters = Counters(kept=agents.kept)
    agents.read(AT + EVERY, 5, Dimensions(interface="eth1"))
    assert [*json.loads(agents.file.read_text())["counters"]] == ["test.sent {'interface': 'eth1'}"]


def test_a_device_that_went_before_a_stop_starts_at_its_first_reading(agents):
    agents.read(AT + S, 900)
    agents.counters = Counters()
    agents.kept.close()
    agents.start()
    assert agents.read(AT + 2 * S, 800) == (800, AT + 2 * S)


def test_a_name_that_is_not_text_is_kept_too(fresh):
    odd = Dimensions(interface=os.fsdecode(b"eth\xff"))
    assert fresh.read(AT, 700, odd) == (700, BOOT)
    fresh.start()
    assert fresh.read(AT + S, 701, odd) == (701, BOOT)


def test_a_folder_that_cannot_be_written_costs_nothing_else(fresh):
    fresh.file.mkdir()
    fresh.start()
    assert fresh.read(AT, 700) == (700, AT)
    fresh.kept.close()
    fresh.kept.close()


def test_the_file_is_this_users_alone(agents):
    assert agents.file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in agents.state.iterdir()] == ["counters.network.json"]
