"""Faults that a driver reports of a GPU, and the verdict on them, compared with the codes of DCGM 4.6."""

import time
from pathlib import Path

import pytest

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.collectors.nvidia.health import EVERY, HELD
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import PartlyCollected
from chipwatch.engine.sampler import Sampler
from chipwatch.jobs.verdict import judge as verdict
from chipwatch.jobs.verdict.callers import DEGRADED, FIT, NOT_FIT, UNKNOWN
from chipwatch.jobs.verdict.events import EventHistory
from chipwatch.jobs.verdict.rules import FAULTS, RULES

SECOND = 10**9
NOWHERE = Path("/nonexistent")
GOOD = 0x11AA
"""The fabric's mask where nothing is wrong and a partition is assigned: 2 is `no`, 1 is `none` and `assigned`."""
PEER = 2
"""The GPU that is sick."""

# name, DCGM's code or -, what the driver answers of one GPU, what changes between two readings, verdict, fault or kind
SICK = [
    ("row remap failed", 80, {"field": {"145": "1u"}}, {}, NOT_FIT, "rows_failed"),
    ("row remap pending", 85, {"field": {"144": "1u"}}, {}, DEGRADED, "rows_pending"),
    ("9 rows replaced for uncorrected errors", "-", {"field": {"143": "9u"}}, {}, DEGRADED, "rows_many"),
    ("a bank without spare rows", "-", {"spare": 2}, {}, DEGRADED, "rows_exhausted"),
    ("SRAM above its threshold", 118, {"sram": {"over": 1, "uncorrected": 9}}, {}, NOT_FIT, "sram_threshold"),
    ("SRAM uncorrected", 4, {"sram": {"uncorrected": 1}}, {}, DEGRADED, "sram_uncorrected"),
    ("DRAM uncorrected", 4, {"dram": {"uncorrected": 1}}, {}, DEGRADED, "dram_uncorrected"),
    ("uncorrected, now", 4, {}, {"field": {"4": 1}}, NOT_FIT, "gpu.ecc.uncorrected"),
    ("channel repair pending", "-", {"repair": 1}, {}, DEGRADED, "repair_pending"),
    ("TPC repair pending", "-", {"repair": 2}, {}, DEGRADED, "repair_pending"),
    ("memory that cannot be repaired", 52, {"unrepairable": 1}, {}, NOT_FIT, "memory_unrepairable"),
    ("ECC switched off", 55, {"ecc": {"now": 0}}, {}, DEGRADED, "ecc_off"),
    ("one NVLink down", 14, {"links_down": 1}, {}, NOT_FIT, "nvlink_down"),
    ("half of the NVLinks down", 14, {"links_down": 9}, {}, NOT_FIT, "nvlink_down"),
    ("all NVLinks down", 14, {"links_down": 18}, {}, NOT_FIT, "nvlink_down"),
    ("no bridge, which its peers have", 14, {"name": "NVIDIA H100 PCIe", "links_down": 18}, {}, DEGRADED, "nvlink_none"),
    ("an NVLink goes down", 14, {}, {"links_down": 1}, NOT_FIT, "nvlink_down"),
    ("effective bit errors", 119, {"field": {"220.3": 0x20B}}, {}, DEGRADED, "nvlink_bit_errors"),
    ("effective bit errors, just above", 119, {"field": {"220.3": 0x20C}}, {}, DEGRADED, "nvlink_bit_errors"),
    ("symbol bit errors", 121, {"field": {"222.5": 0x10A}}, {}, DEGRADED, "nvlink_bit_errors"),
    ("an NVLink recovers", 71, {"field": {"162.4": 0}}, {"field": {"162.4": 1}}, DEGRADED, "nvlink_recovery"),
    ("an NVLink 5 recovers", 71, {"field": {"213.4": 7}}, {"field": {"213.4": 8}}, DEGRADED, "nvlink_recovery"),
    ("an NVLink does not recover", 71, {"field": {"214.4": 0}}, {"field": {"214.4": 1}}, NOT_FIT, "nvlink_recovery_failed"),
    ("an NVLink replays", 71, {"field": {"161.17": 2}}, {"field": {"161.17": 3}}, DEGRADED, "nvlink_replay"),
    ("CRC errors above a rate", 70, {"field": {"163.1": 0}}, {"field": {"163.1": 400_000}}, DEGRADED, "nvlink_crc"),
    ("fabric not started", 123, {"fabric": {"state": 1}}, {}, NOT_FIT, "fabric_failed"),
    ("fabric failed", 112, {"fabric": {"status": 999}}, {}, NOT_FIT, "fabric_failed"),
    ("fabric in progress", 123, {"fabric": {"state": 2}}, {}, DEGRADED, "fabric_starting"),
    ("fabric unhealthy", 123, {"fabric": {"summary": 2}}, {}, NOT_FIT, "fabric_unhealthy"),
    ("fabric of limited capacity", "-", {"fabric": {"summary": 3}}, {}, DEGRADED, "fabric_limited"),
    ("less bandwidth", 33, {"fabric": {"mask": GOOD & ~3 | 1}}, {}, DEGRADED, "fabric_limited"),
    ("route recovers", 33, {"fabric": {"mask": GOOD & ~12 | 4}}, {}, DEGRADED, "fabric_limited"),
    ("route unhealthy", 33, {"fabric": {"mask": GOOD & ~48 | 16}}, {}, NOT_FIT, "fabric_unhealthy"),
    ("access timeout", 33, {"fabric": {"mask": GOOD & ~192 | 64}}, {}, NOT_FIT, "fabric_unhealthy"),
    ("too few NVLinks for the fabric", 33, {"fabric": {"mask": GOOD & ~0xF00 | 0x500}}, {}, NOT_FIT, "fabric_unhealthy"),
    ("no partition", 33, {"fabric": {"mask": GOOD & ~0x3000 | 0x2000}}, {}, DEGRADED, "fabric_no_partition"),
    ("no partition, by the configuration", 33, {"fabric": {"mask": GOOD & ~0xF00 | 0x400}}, {}, DEGRADED, "fabric_no_partition"),
    ("route unhealthy, of a driver without a summary", 33, {"fabric": {"version": 2, "mask": GOOD & ~48 | 16}}, {},
     NOT_FIT, "fabric_unhealthy"),
    ("at 120 C", "-", {"temperature": 120}, {}, NOT_FIT, "too_hot"),
    ("past the margin at which it shuts down", "-", {"margin": -8, "field": {"193": "-8s"}}, {}, NOT_FIT, "too_hot"),
    ("slowed down by heat", 10, {"reasons": 0x20}, {}, DEGRADED, "thermal_slowdown"),
    ("slowed down by heat, by hardware", 10, {"reasons": 0x48}, {}, DEGRADED, "thermal_slowdown"),
    ("slowed down by the power brake", 12, {"reasons": 0x88}, {}, DEGRADED, "power_brake"),
    ("slowed down by hardware", "-", {"reasons": 0x8}, {}, DEGRADED, "hardware_slowdown"),
    ("PCIe narrow", 46, {"pcie": {"width": 8}}, {}, DEGRADED, "pcie_narrow"),
    ("PCIe slow under load", 45, {"pcie": {"generation": 3}}, {}, DEGRADED, "pcie_slow"),
    ("PCIe replays above a rate", 3, {"field": {"94": "3u"}}, {"field": {"94": "600u"}}, DEGRADED, "pcie_replay"),
    ("PCIe fatal", "-", {}, {"field": {"180": "1u"}}, DEGRADED, "pcie_fatal"),
    ("PCIe fatal, before anybody watched", "-", {"field": {"180": "4u"}}, {}, DEGRADED, "pcie_fatal"),
    ("PCIe nonfatal, before anybody watched", "-", {"field": {"179": "4u"}}, {}, DEGRADED, "pcie_nonfatal"),
    ("asks for a reset of its bus", "-", {"field": {"230": "6u"}}, {}, NOT_FIT, "gpu.recovery_action"),
    ("asks for a restart of the machine", "-", {"field": {"230": "7u"}}, {}, NOT_FIT, "gpu.recovery_action"),
    ("C2C errors", "-", {"field": {"170": "1u", "231": 0}}, {"field": {"231": 1}}, DEGRADED, "c2c"),
    ("reset required", 125, {"temperature": "!16"}, {}, NOT_FIT, "gpu.state"),
]  # fmt: skip
LASTS = "slowed down by heat"
"""The only one that takes longer than two readings."""
HEALTHY = [
    ("all is well", {}, {}),
    ("slowed down by heat for a moment", {}, {"reasons": 0x20}),
    ("just below the temperature at which it shuts down", {"temperature": 91}, {"margin": -7, "field": {"193": "-8s"}}),
    ("the software power cap", {"reasons": 4}, {}),
    ("an idle GPU lowers the speed of its link", {"pcie": {"generation": 1}, "utilization": {"gpu": 0}}, {}),
    ("a few PCIe replays", {"field": {"94": "3u"}}, {"field": {"94": "9u"}}),
    ("a few CRC errors", {"field": {"163.1": 0}}, {"field": {"163.1": 50}}),
    ("no bit errors", {"field": {"220.1": 0xFFF, "222.1": 0xFFF, "222.2": 0xFEE, "220.2": 0x10C}}, {}),
    (
        "an old replay and recovery",
        {"field": {"161.1": 7, "162.2": 7, "214.1": 1, "143": "8u", "170": "4u", "231.3": 3}},
        {},
    ),
    ("a healthy GB300 whose IMEX daemon is idle (aicr issue 2641)", {"fabric": {"mask": GOOD, "summary": 1}}, {}),
    ("a fabric that has not told its health", {"fabric": {"mask": 0, "summary": 0}}, {}),
]


def merge(gpu, answers):
    for name, value in answers.items():
        if isinstance(value, dict):
            merge(gpu.setdefault(name, {}), value)
        else:
            gpu[name] = value


class Judge:
    """A collector at level basic behind a sampler's validation, and what a running agent remembers of it."""

    def __init__(self, fake, tmp_path):
        (tmp_path / "proc/driver/nvidia").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/driver/nvidia/version").write_text("")
        self.fake = fake
        self.collector = NvidiaCollector(NvidiaCollector.Config(proc=tmp_path / "proc", root=tmp_path))
        self.now, self.at = SECOND, time.time_ns()
        self.collector._clock = lambda: self.now
        self.sampler = Sampler("nvidia", self.collector, Level.BASIC)
        self.sampler.ok = True
        self.history = EventHistory([self.sampler], self.at)
        self.collector.open(self.sampler._given)
        self.problems = []

    def tell(self, answers):
        """Change what the driver says of the sick GPU."""
        merge(self.fake.gpus[PEER], answers)
        self.fake.tell()

    def read(self, readings=1, apart=EVERY):
        """Read so many times, each when a reading is due, and return the verdict."""
        for _ in range(readings):
            self.now, self.at = self.now + apart, self.at + apart
            points = []
            try:
                self.sampler.validation.take(self.collector.collect(self.at), self.at, points)
            except PartlyCollected as partly:
                self.problems += partly.problems
            self.history.take(points, self.at)
        return verdict.judge(self.history.answer(watched=apart == EVERY), [], NOWHERE, [], "agent")


@pytest.fixture
def judge(driver, tmp_path, at_the_end):
    def start(answers, name="h100", many=8, version=None, **of_all):
        fake = driver(name, many)
        fake.machine["driver"] = version or fake.machine["driver"]
        for gpu in fake.gpus:
            gpu.update({**of_all, "name": answers.get("name", gpu["name"])})
        if many > PEER:
            merge(fake.gpus[PEER], answers)
        fake.tell()
        one = Judge(fake, tmp_path)
        at_the_end.callback(one.collector.close)
        return one

    return start


def shown(verdict):
    """Return about which GPU, and by which fault, kind or metric, for each reason."""
    seen = [reason.shown_by for reason in verdict.reasons]
    return {(one.dims["gpu"], one.dims.get("fault") or one.dims.get("kind") or one.metric) for one in seen}


WATCHED = [(row, 2 + HELD // EVERY, EVERY) for row in SICK]
ALONE = [(row, 1, SECOND) for row in SICK if row[0] != LASTS]


@pytest.mark.parametrize(("row", "readings", "apart"), [*WATCHED, *ALONE], ids=lambda part: str(part)[:60])
def test_a_sick_gpu_is_named_by_its_fault(judge, row, readings, apart):
    """By an agent, and without one by two readings a second apart."""
    _, _, answers, change, word, fault = row
    sick = judge(answers, many=3)
    sick.read(apart=apart)
    sick.tell(change)
    verdict = sick.read(readings, apart)
    assert verdict.word == word
    assert (str(PEER), fault) in shown(verdict)
    assert {gpu for gpu, _ in shown(verdict)} == {str(PEER)}, "the others are well"


def test_heat_that_may_last_for_a_moment_only_is_not_known_after_two_readings(judge):
    sick = judge(next(row[2] for row in SICK if row[0] == LASTS))
    verdict = sick.read(2, apart=SECOND)
    assert verdict.word == FIT
    assert "clocks of GPUs" in verdict.fine
    assert (f"gpu {PEER}", "not told by the driver: thermal slowdown") in [one[:2] for one in verdict.unknown]


@pytest.mark.parametrize(("version", "number"), [("590.48.01", 5), ("590.48.01", 8), ("615.71", 8), ("615.71", 99)])
def test_a_recovery_that_is_not_known_is_unknown_and_goes_before_degraded(judge, version, number):
    sick = judge({"field": {"230": f"{number}u", "144": "1u"}}, version=version)
    verdict = sick.read(2)
    assert verdict.word == UNKNOWN
    assert [reason.severity for reason in verdict.reasons] == [DEGRADED]
    (asks,) = [one for one in verdict.unknown if one.decides]
    assert asks.about == f"gpu {PEER}"
    assert asks.why.startswith(f"asks for a recovery that is not known here: unknown ({number}). Update this program")


@pytest.mark.parametrize(("code", "text"), [(3, "Not Supported"), (4, "Insufficient Permissions")])
def test_a_gpu_that_answers_no_query_is_unknown_and_its_memory_is_not_called_fine(judge, code, text):
    sick = judge({"lost": f"!{code}"})
    verdict = sick.read(3)
    assert (verdict.word, verdict.reasons, verdict.fine) == (UNKNOWN, [], ["7 GPUs"])
    (silent,) = [one for one in verdict.unknown if one.decides]
    assert silent[:2] == (f"gpu {PEER}", f"the driver answers no query about it: {text} (NVML {code})")
    sick.tell({"lost": None})
    sick.now += 3600 * SECOND  # what is not supported is asked again after an hour
    assert "8 GPUs" in sick.read(2).fine


def test_a_gpu_that_the_driver_does_not_give_is_unknown(judge):
    sick = judge({"handle": "!4"})
    verdict = sick.read(2)
    assert (verdict.word, verdict.fine) == (UNKNOWN, ["7 GPUs"])
    (silent,) = [one for one in verdict.unknown if one.decides]
    assert silent[:2] == (f"gpu {PEER}", "the driver does not give it: Insufficient Permissions (NVML 4)")


@pytest.mark.parametrize(
    ("model", "many", "down", "word"),
    [
        ("NVIDIA H100 80GB HBM3", 8, 18, NOT_FIT),
        ("NVIDIA H100 80GB HBM3", 8, 1, NOT_FIT),
        ("NVIDIA A100-SXM4-80GB", 4, 18, NOT_FIT),
        ("NVIDIA GB200 NVL", 4, 18, NOT_FIT),
        ("NVIDIA H100 80GB HBM3", 1, 1, NOT_FIT),
        ("NVIDIA H100 80GB HBM3", 1, 18, FIT),  # alone on the machine, as with a guest that has one GPU of a board
        ("NVIDIA H100 PCIe", 8, 18, FIT),
        ("NVIDIA H100 NVL", 8, 6, FIT),
        ("NVIDIA A100X", 2, 12, FIT),
        ("NVIDIA H100 CNX", 2, 18, FIT),
        ("Tesla V100-SXM2-16GB", 4, 2, FIT),  # half of a board
        ("NVIDIA GeForce RTX 3090", 2, 18, FIT),
        ("NVIDIA L40S", 8, None, FIT),
        ("Tesla T4", 4, None, FIT),
    ],
)
def test_links_that_all_gpus_lack_are_a_fault_of_a_board_and_a_card_without_links_has_no_word_about_them(
    judge, model, many, down, word
):
    links = {"links_down": down} if down else {"links": None, "fabric": None}
    verdict = judge({"name": model}, many=many, **links).read(2)
    assert verdict.word == word
    assert shown(verdict) == ({(str(n), "nvlink_down") for n in range(many)} if word == NOT_FIT else set())
    if not down:
        assert "NVLink" not in str(verdict.fine)
        assert "nvlink" not in str(verdict.unknown)


def test_the_sick_gpus_have_every_fault_and_kind_of_the_rules():
    assert len(SICK) >= 44
    asked = {
        word
        for rule in RULES
        if rule.metric in {"gpu.fault", "gpu.link.errors"}
        for words in rule.only.values()
        for word in words
    }
    assert asked - {row[-1] for row in SICK} == set()


@pytest.mark.parametrize(("answers", "change"), [row[1:] for row in HEALTHY], ids=[row[0] for row in HEALTHY])
def test_a_healthy_gpu_gives_no_reason(judge, answers, change):
    well = judge(answers)
    well.read(2)
    well.tell(change)
    verdict = well.read(2)
    assert (verdict.word, verdict.reasons, well.problems) == (FIT, [], [])
    assert "8 GPUs" in verdict.fine


def test_what_a_driver_does_not_tell_is_reported_as_unknown_and_never_fine(judge):
    old = judge({}, "t4", 2)
    old.fake.gpus[0]["field"] = old.fake.gpus[1]["field"] = None
    old.fake.tell()
    verdict = old.read(3)
    assert (verdict.word, old.problems) == (FIT, [])
    assert verdict.fine == ["2 GPUs"]
    faults = sum("NVLink" not in area for area in FAULTS.values())
    assert [(one.about, one.why.count(",")) for one in verdict.unknown] == [("GPUs", faults - 1)], "it tells none"
    some = judge({"fabric": {"state": 0}, "unrepairable": "!13", "sram": "!25"})
    verdict = some.read(2)
    unknown, of_all = verdict.unknown
    assert of_all[:2] == ("GPUs", "not told by the driver: nvlink bit errors"), "before NVLink 5"
    assert unknown.about == f"gpu {PEER}"
    assert not unknown.decides
    for word in ("memory unrepairable", "sram threshold", "fabric failed", "fabric no partition"):
        assert word in unknown.why
    assert verdict.word == FIT


def test_with_mig_links_are_not_known(judge):
    sliced = judge({}, "h100_mig", 1)
    merge(sliced.fake.gpus[0], {"links": 18, "links_down": 18, "spare": 0})
    sliced.fake.tell()
    assert sliced.read(2).word == FIT


def test_in_mig_mode_links_are_not_known_before_there_is_an_instance(judge):
    empty = judge({}, many=8, migs=7, links_down=18)
    assert empty.read(2).word == FIT
    for gpu in empty.fake.gpus:
        gpu["migs"] = 0
    empty.fake.tell()
    empty.now += 3600 * SECOND
    assert empty.read(3).word == NOT_FIT, "MIG mode was switched off"


def test_counters_of_links_go_on_over_an_answer_that_fails_once(judge):
    one = judge({"field": {"161.1": 4, "161.2": 5}})
    one.read()
    one.tell({"fields": "!999"})
    one.read()
    one.tell({"fields": None})
    assert one.read().reasons == []


def test_other_sinks_get_faults_at_level_all_only(judge):
    faults = {
        metric.name: metric.level for metric in NvidiaCollector.metrics if metric.name in NvidiaCollector.needs.always
    }
    assert faults == dict.fromkeys(("gpu.fault", "gpu.link.errors"), Level.ALL) | {
        "gpu.recovery_action": Level.DETAILED
    }
