"""AMD's tools, which are real programs here, fill what sysfs lacks."""

import errno
import json
import time

import pytest
from tests.doubles.sysfs import FailingFile

from chipwatch.collectors.amd.tools import pci_addresses
from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector

ROW = {
    "usage": {"gfx_activity": {"value": 1, "unit": "%"}, "umc_activity": "N/A"},
    "power": {"socket_power": {"value": 77, "unit": "W"}, "power_limit": "N/A"},
    "clock": {"gfx_0": {"clk": {"value": 1234, "unit": "MHz"}}},
    "temperature": {"edge": "N/A", "hotspot": "N/A", "mem": "N/A"},
    "fan": {"usage": "N/A"},
    "energy": {"total_energy_consumption": {"value": 0.0, "unit": "J"}},
    "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": 2},
    "mem_usage": {"total_vram": {"value": 4096, "unit": "MB"}, "used_vram": {"value": 1024, "unit": "MB"}},
}
OLD = {"mem_info_vram_total": None, "mem_info_vram_used": None}


class Smi:
    """amd-smi and rocm-smi, with a log of their runs."""

    def __init__(self, machine):
        self.machine = machine

    def amd(self, cards, then="", **more):
        """`cards`: PCI addresses in the order of the tool's own numbers; `more` of the second one's row."""
        self.list([{"gpu": n, "bdf": slot, "uuid": "x"} for n, slot in enumerate(cards)])
        self.metric([{"gpu": n} | ROW | (more if n else {}) for n, _ in enumerate(cards)])
        self.machine.tool(
            "amd-smi",
            f"echo $1 >> {self.machine.root}/runs; {then}\n"
            f"echo WARNING: odd; cat {self.machine.root}/$1.json; echo done >> {self.machine.root}/ended",
        )

    def list(self, rows):
        (self.machine.root / "list.json").write_text(json.dumps(rows))

    def metric(self, rows):
        (self.machine.root / "metric.json").write_text(json.dumps({"gpu_data": rows}))

    def rocm(self, **cards):
        """The rows of the cards, by name."""
        self.machine.tool("rocm-smi", f"echo rocm >> {self.machine.root}/runs; echo '{json.dumps(cards)}'")

    @property
    def runs(self):
        path = self.machine.root / "runs"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def smi(machine):
    return Smi(machine)


@pytest.fixture
def opened(machine):
    """Make collectors that are opened, and closed at the end."""
    made = []

    def make(level=Level.ALL, **more):
        collector = machine.collector(**({"tool_interval": 15, "tool_timeout": 10} | more))
        made.append(collector)
        collector.open(Given(level=level))
        return collector

    yield make
    for collector in made:
        collector.close()


def filled(read, collector, until, *keys):
    """Return the values of the tick in which all `keys` are there."""
    problems_seen = []

    def values_if_complete():
        values, problems = read(collector)
        problems_seen.extend(problems)
        return values if all(key in values for key in keys) else None

    values = until(values_if_complete)
    assert problems_seen == []
    return values


def settled(read, collector, until):
    """Tick until no tool runs; return all values that were reported, and the problems."""
    values, problems = {}, []

    def quiet():
        new, trouble = read(collector)
        values.update(new)
        problems.extend(trouble)
        tools = [source.tool for source in collector._gaps._sources] if collector._gaps else []
        return not any(tool._oneshot._process for tool in tools)

    read(collector)
    for _ in range(6):  # the list and then the answer, of each of the two
        until(quiet)
    return values, problems


def test_a_tool_fills_only_what_sysfs_lacks(machine, read, until, smi, opened):
    machine.card(1, power1_average=None, freq1_input=None)
    smi.amd(["0000:01:00.0"])
    collector = opened()
    before, _ = read(collector)
    assert ("gpu.power", "1") not in before
    values = filled(read, collector, until, ("gpu.power", "1"))
    assert values["gpu.power", "1"] == 77
    assert values["gpu.power.utilization", "1"] == pytest.approx(100 * 77 / 300)
    assert values["gpu.clock.graphics", "1"] == 1234
    assert values["gpu.utilization", "1"] == 91, "sysfs has it"
    assert values["gpu.memory.used", "1"] == 1564491776, "sysfs has it"
    assert smi.runs == ["list", "metric"]
    assert "amd-smi metric" in collector.describe()


def test_cards_are_matched_by_pci_address_and_not_by_number(machine, read, until, smi, opened):
    machine.card(1, power1_average=None)
    machine.card(2, power1_average=None)
    smi.amd(["0000:02:00.0", "0000:01:00.0"], power={"socket_power": {"value": 11, "unit": "W"}})
    values = filled(read, opened(), until, ("gpu.power", "1"), ("gpu.power", "2"))
    assert (values["gpu.power", "1"], values["gpu.power", "2"]) == (11, 77)


OF_DETAIL = {"freq1_input": None, "freq2_input": None, "pwm1": None}


@pytest.mark.parametrize(
    "case",
    [
        *((level, {}, {}) for level in Level),
        (Level.BASIC, {"gpu_metrics": None, "mem_busy_percent": None}, OF_DETAIL),  # metrics of a higher level
        (Level.ALL, {}, {"pwm1": None}),  # there is no fan
        (Level.ALL, {}, {"power1_cap": 0, "power1_average": 0}),  # a second die has neither power nor limit
    ],
)
def test_no_tool_is_started_or_loaded_if_nothing_is_missing(machine, read, smi, opened, case):
    level, files, sensors = case
    machine.card(1, files, **sensors)
    smi.amd(["0000:01:00.0"])
    collector = opened(level)
    for seconds in (20, 20, 1, 1, 20):  # errors are read every ten seconds, and not missing in between
        machine.now += seconds * 10**9
        values, problems = read(collector)
        assert values
        assert not problems
    assert (smi.runs, collector._gaps) == ([], None)
    has_power = any(name.startswith("gpu.power") for name, _ in values)
    assert has_power is ("power1_cap" not in sensors)


def test_a_value_that_is_missing_for_one_tick_or_with_all_others_starts_no_tool(machine, read, smi, opened):
    machine.card(1)
    smi.amd(["0000:01:00.0"])
    collector, folder = opened(), machine.sys / "class/drm/card1/device"
    read(collector)
    for text in ("N/A", "41000000", "N/A", "41000000"):
        (folder / "hwmon/hwmon1/power1_average").write_text(text)
        machine.now += 20 * 10**9
        read(collector)
    for path in (*folder.glob("*_*"), *folder.glob("hwmon/hwmon1/*_input"), *folder.glob("hwmon/hwmon1/p*")):
        path.write_text("N/A")
    for _ in range(4):
        machine.now += 20 * 10**9
        assert read(collector)[0] == {}
    assert smi.runs == []


def test_a_tool_is_asked_for_the_share_of_a_fan_but_not_if_there_is_no_fan(machine, read, until, smi, opened):
    machine.card(1, pwm1=None)
    machine.card(2, pwm1=None, fan1_input=900)
    smi.amd(["0000:01:00.0", "0000:02:00.0"], fan={"usage": {"value": 30, "unit": "%"}})
    values = filled(read, opened(), until, ("gpu.fan.utilization", "2"))
    assert values["gpu.fan.utilization", "2"] == 30
    assert ("gpu.fan.utilization", "1") not in values


def test_a_tool_runs_once_an_interval_and_its_answer_is_reported_once(machine, read, until, smi, opened):
    machine.card(1, power1_average=None)
    smi.amd(["0000:01:00.0"])
    collector = opened(tool_interval=60)
    key = "gpu.power", "1"
    filled(read, collector, until, key)
    for _ in range(11):
        machine.now += 5 * 10**9
        assert key not in read(collector)[0]
    assert smi.runs == ["list", "metric"]
    machine.now += 6 * 10**9
    filled(read, collector, until, key)
    assert smi.runs == ["list", "metric", "metric"]


def test_a_tool_that_hangs_delays_no_tick_and_the_next_tool_fills_the_gap(machine, read, until, smi, opened):
    machine.card(1, power1_average=None)
    smi.amd(["0000:01:00.0"], then="exec sleep 60")
    smi.rocm(card0={"PCI Bus": "0000:01:00.0", "Average Graphics Package Power (W)": "33.0"})
    collector = opened(tool_timeout=10)
    read(collector)
    read(collector)
    until(lambda: smi.runs)
    slowest, messages = 0.0, []
    for _ in range(12):
        machine.now += 10**9
        begun = time.monotonic()
        values, problems = read(collector)
        slowest = max(slowest, time.monotonic() - begun)
        messages += problems
        assert values["gpu.utilization", "1"] == 91
    assert slowest < 5
    assert messages == ["amd-smi gave no answer in 10 s"]
    assert filled(read, collector, until, ("gpu.power", "1"))["gpu.power", "1"] == 33
    assert smi.runs == ["list", "rocm"]


def test_a_tool_that_fails_is_retried_with_back_off(machine, read, until, smi, opened):
    machine.card(1, power1_average=None)
    machine.tool("amd-smi", f"echo run >> {machine.root}/runs; echo Invalid platform")
    collector = opened(tool_interval=15)
    values, problems = settled(read, collector, until)
    assert problems == ["amd-smi printed no JSON: 'Invalid platform'"]
    assert values["gpu.utilization", "1"] == 91
    for seconds, runs in ((29, 1), (2, 2), (58, 2), (4, 3)):
        machine.now += seconds * 10**9
        settled(read, collector, until)
        assert len(smi.runs) == runs


def test_a_value_that_a_tool_lacks_is_requested_again_after_an_hour(machine, read, until, smi, opened):
    machine.card(1, {"mem_busy_percent": None, "gpu_metrics": None})
    smi.amd(["0000:01:00.0"])
    collector = opened()
    values, problems = settled(read, collector, until)
    assert not problems
    assert ("gpu.energy", "1") not in values, "a card that counts no energy reports 0.0 J"
    for _ in range(10):
        machine.now += 60 * 10**9
        settled(read, collector, until)
    assert smi.runs == ["list", "metric"]
    machine.now += 3600 * 10**9
    settled(read, collector, until)
    assert smi.runs == ["list", "metric", "metric"]


def test_a_tool_returns_the_memory_in_bytes_and_its_total_is_kept(machine, read, until, smi, opened):
    machine.card(1, OLD)
    machine.card(2, {"mem_info_vram_total": None})
    smi.amd(["0000:01:00.0", "0000:02:00.0"])
    collector = opened(Level.BASIC)
    values = filled(read, collector, until, ("gpu.memory.used", "1"))
    assert values["gpu.memory.used", "1"] == 1024 * 2**20
    assert values["gpu.memory.utilization", "1"] == 25
    assert values["gpu.memory.used", "2"] == 1564491776
    values, _ = read(collector)
    assert ("gpu.memory.used", "1") not in values, "reported once"
    assert values["gpu.memory.utilization", "2"] == pytest.approx(100 * 1564491776 / (4096 * 2**20))


def test_without_bytes_the_share_of_the_memory_is_used_and_activity_is_not_a_share(machine, read, until, smi, opened):
    machine.card(1, OLD | {"mem_busy_percent": None})
    smi.rocm(
        card3={"PCI Bus": "0000:01:00.0", "GPU Memory Allocated (VRAM%)": "12", "GPU memory use (%)": "55"},
        system={"Driver version": "6"},
    )
    values = filled(read, opened(), until, ("gpu.memory.utilization", "1"))
    assert values["gpu.memory.utilization", "1"] == 12
    assert values["gpu.memory.activity", "1"] == 55


def test_a_counter_has_one_source_and_starts_again_when_sysfs_provides_it(machine, until, smi, opened):
    machine.card(1, {"ras/umc_err_count": "ue: ?\nce: ?"})
    smi.amd(["0000:01:00.0"])
    collector = opened()

    def errors(at):
        return {p.metric.name: (p.value, p.start_time) for p in collector.collect(at) if ".ecc." in p.metric.name}

    assert until(lambda: errors(1)) == {"gpu.ecc.corrected": (5, 1), "gpu.ecc.uncorrected": (2, 1)}
    machine.put("class/drm/card1/device/ras/umc_err_count", "ue: 0\nce: 1")
    machine.now += 20 * 10**9
    assert until(lambda: errors(2)) == {"gpu.ecc.corrected": (1, 2), "gpu.ecc.uncorrected": (0, 2)}
    machine.put("class/drm/card1/device/ras/umc_err_count", "ue: ?\nce: ?")
    for at in range(3, 8):
        machine.now += 20 * 10**9
        assert errors(at) == {}, "the counter of the tool is another one"


def test_no_tool_is_started_while_a_card_sleeps(machine, read, until, smi, opened):
    machine.card(1, power1_average=None)
    machine.card(2, {"power/runtime_status": "suspended"})
    smi.amd(["0000:01:00.0", "0000:02:00.0"])
    collector = opened()
    for _ in range(4):
        machine.now += 20 * 10**9
        assert read(collector)[0]["gpu.utilization", "1"] == 91
    assert smi.runs == []
    machine.put("class/drm/card2/device/power/runtime_status", "active")
    filled(read, collector, until, ("gpu.power", "1"))


def test_a_card_that_is_gone_is_not_asleep(machine, read, until, smi, opened):
    machine.card(1, power1_average=None)
    machine.card(2)
    smi.amd(["0000:01:00.0", "0000:02:00.0"])
    collector = opened()
    card = collector._cards["2"]
    card._opened = dict.fromkeys(card._opened, FailingFile(errno.ENODEV))

    def power():
        values, _ = read(collector)
        assert values["gpu.state", "2"] == 0
        return values.get(("gpu.power", "1"))

    assert until(power) == 77
    assert "asleep" not in collector.describe()


def test_a_power_limit_of_zero_is_absent(machine, read, until, smi, opened):
    machine.card(1, power1_cap=None)
    smi.amd(["0000:01:00.0"], then="")
    smi.metric([{"gpu": 0} | ROW | {"power": {"power_limit": {"value": 0, "unit": "W"}}}])
    values, problems = settled(read, opened(), until)
    assert not problems
    assert values["gpu.power", "1"] == 41
    assert ("gpu.power.limit", "1") not in values


def test_the_cards_are_listed_again_when_one_has_gone(machine, read, until, smi, opened):
    for index in (1, 2):
        machine.card(index, power1_average=None)
    smi.amd(["0000:01:00.0", "0000:02:00.0"], power={"socket_power": {"value": 11, "unit": "W"}})
    collector = opened()
    filled(read, collector, until, ("gpu.power", "2"))
    smi.list([{"gpu": 0, "bdf": "0000:02:00.0"}])
    smi.metric([{"gpu": 0} | ROW])
    machine.now += 20 * 10**9
    values, problems = settled(read, collector, until)
    assert problems == ["amd-smi reported other GPUs than it listed before"]
    assert not [gpu for name, gpu in values if name == "gpu.power"]
    machine.now += 60 * 10**9
    values, problems = settled(read, collector, until)
    assert not problems
    assert {gpu: value for (name, gpu), value in values.items() if name == "gpu.power"} == {"2": 77}


def test_the_first_partition_provides_the_values_of_a_divided_card(machine, read, until, smi, opened):
    machine.card(1, power1_average=None)
    smi.amd(["0000:01:00.0", "0000:01:00.0"], power={"socket_power": {"value": 11, "unit": "W"}})
    assert filled(read, opened(), until, ("gpu.power", "1"))["gpu.power", "1"] == 77


def test_the_contract_is_kept_with_a_tool(machine, smi):
    machine.card(1, OLD | {"ras/umc_err_count": None}, power1_average=None)
    smi.amd(["0000:01:00.0"])
    for level in Level:
        assert check_collector(machine.collector(), given=Given(level=level))


def test_closing_ends_the_tool(machine, read, until, smi, opened):
    machine.card(1, power1_average=None)
    smi.amd(["0000:01:00.0"], then="exec sleep 60")
    collector = opened()
    read(collector)
    read(collector)
    until(lambda: smi.runs)
    (source,) = collector._gaps._sources
    child = source.tool._oneshot._process
    collector.close()
    assert child.child.poll() is not None


def test_pci_addresses_are_read_from_every_form_of_a_list():
    rows = [{"gpu": 0, "bdf": "0000:0A:00.0"}, {"gpu": 1, "bdf": "N/A"}, {"gpu": 2, "bdf": 7}, {"bdf": "0000:0b:00.0"}]
    expected = {"0": "0000:0a:00.0", "1": "", "2": ""}
    assert pci_addresses(json.dumps(rows).encode()) == expected
    assert pci_addresses(b"WARNING: x\n" + json.dumps({"gpu_data": rows}).encode()) == expected
    assert pci_addresses(b'{"card4": {"PCI Bus": "0000:C3:00.0"}, "card5": {}, "system": {}}') == {
        "4": "0000:c3:00.0",
        "5": "",
    }
