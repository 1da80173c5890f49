"""amd-smi and rocm-smi, where sysfs shows no card."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.load import seconds_since

from chipwatch.collectors.amd.tools import AMD_SMI, QueryFailed, amd_smi, rocm_smi
from chipwatch.contract.datapoint import Dimensions
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host.gpu_metrics import GpuPoints
from chipwatch.host.rows import tool_number

FIXTURES = Path(__file__).parents[3] / "fixtures/amd"


def by_name(cards):
    return {gpu: {metric.name: value for metric, value in readings.items()} for gpu, readings in cards.items()}


def test_amd_smi_of_rocm_7_is_parsed():
    cards = by_name(amd_smi((FIXTURES / "amdsmi_metric_rocm7_two_radeon.json").read_bytes()))
    assert cards["0"] == pytest.approx(
        {
            "gpu.utilization": 91,
            "gpu.memory.activity": 66,
            "gpu.memory.total": 30576 * 2**20,
            "gpu.memory.used": 20450 * 2**20,
            "gpu.temperature": 54,
            "gpu.hotspot.temperature": 63,
            "gpu.memory.temperature": 70,
            "gpu.power": 214,
            "gpu.energy": 0,
            "gpu.clock.graphics": 2774,
            "gpu.clock.memory": 1258,
            "gpu.fan.utilization": 49.8,
            "gpu.ecc.corrected": 0,
            "gpu.ecc.uncorrected": 0,
        }
    )


def test_the_bare_list_of_older_amd_smi_has_the_same_values():
    whole = (FIXTURES / "amdsmi_metric_rocm721_mi300x_trimmed.json").read_bytes()
    bare = json.dumps(json.loads(whole)["gpu_data"]).encode()
    assert amd_smi(bare) == amd_smi(b"[WARN] odd\nWARNING: {x\n" + whole) == amd_smi(whole)
    assert by_name(amd_smi(whole))["1"] == {
        "gpu.utilization": 0,
        "gpu.memory.total": 196592 * 2**20,
        "gpu.memory.used": 284 * 2**20,
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("telegraf_rx6700xt_rocm430", {"gpu.power": 6, "gpu.memory.used": 1622728704, "gpu.memory.activity": 0}),
        ("telegraf_rx6700xt_rocm602", {"gpu.power.limit": 211, "gpu.power": None, "gpu.clock.graphics": 500}),
        ("telegraf_mi100_rocm571", {"gpu.power": 39, "gpu.temperature": 31, "gpu.memory.total": 34342961152}),
        ("telegraf_vega-10-XT", {"gpu.fan.utilization": 13, "gpu.memory.temperature": 92, "gpu.memory.activity": None}),
        ("wandb_mi210_rocm5", {"gpu.energy": pytest.approx(93668579.2586811), "gpu.memory.utilization": None}),
        ("wandb_mi250_rocm6_one_card", {"gpu.power": 91, "gpu.power.limit": 560, "gpu.memory.utilization": 0}),
    ],
)
def test_rocm_smi_of_every_version_is_parsed(name, expected):
    card = by_name(rocm_smi((FIXTURES / f"{name}.json").read_bytes()))["0"]
    assert {key: card.get(key) for key in expected} == expected


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_an_answer_that_is_cut_anywhere_is_refused_or_correct(path):
    parse = amd_smi if path.name.startswith("amdsmi") else rocm_smi
    data = path.read_bytes()
    whole = parse(data)
    for end in range(0, len(data), 97 if len(data) > 4000 else 5):
        try:
            cards = parse(data[:end])
        except QueryFailed:
            continue
        for gpu, readings in cards.items():
            assert readings.items() <= whole[gpu].items()


@pytest.mark.parametrize(
    "value",
    ["N/A", "n/a", "N/A (Secondary die)", None, "", True, [], {}, {"value": "N/A", "unit": "W"},
     {"value": 1, "unit": "mW"}, "12W extra", 10**400, float("nan"), float("inf"), "9" * 400],
)  # fmt: skip
def test_a_cell_that_is_not_a_number_is_absent(value):
    assert tool_number(value, "w") is None


@settings(max_examples=examples(60), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["gpu_data", "gpu", "usage", "gfx_activity", "card0", "value"]), inner, max_size=4
            )
        ),
    )
)
def test_json_of_any_shape_is_refused_or_parsed(value):
    for parse in (amd_smi, rocm_smi):
        with suppress(QueryFailed):
            assert parse(json.dumps(value).encode()) is not None


def test_an_answer_is_reported_once_and_the_next_one_after_the_interval(machine, read, until):
    machine.tool("amd-smi", f"echo run >> {machine.root}/runs; cat {FIXTURES}/amdsmi_metric_rocm7_two_radeon.json")
    collector = machine.collector(tool_interval=60)
    collector._clock = lambda: time.monotonic_ns() + machine.now
    collector.open(Given())
    values, problems = read(collector)
    assert not problems
    assert values["gpu.memory.utilization", "0"] == pytest.approx(100 * 20450 / 30576)
    assert ("gpu.energy", "0") not in values, "a card that counts no energy reports 0.0 J"
    assert ("gpu.power.utilization", "0") not in values
    assert read(collector) == ({}, [])
    machine.now += 61 * 10**9
    until(lambda: read(collector)[0])
    assert (machine.root / "runs").read_text() == "run\nrun\n"
    collector.close()


def test_the_next_program_is_used_if_one_ends_with_0_and_prints_no_json(machine, read):
    machine.tool("amd-smi", "echo Invalid platform")
    machine.tool("rocm-smi", f"cat {FIXTURES}/wandb_mi210_rocm5.json")
    collector = machine.collector()
    collector.open(Given())
    assert "rocm-smi" in collector.describe()
    assert read(collector)[0]["gpu.temperature", "0"] == 33
    collector.close()


def test_a_program_whose_answer_has_no_gpu_is_refused(machine):
    machine.tool("amd-smi", "echo '{}'")
    with pytest.raises(Unavailable, match=r"amd-smi reported no GPU: '{}'"):
        machine.collector().open(Given())


def test_the_message_lists_the_programs_that_failed_and_their_output(machine):
    machine.tool("amd-smi", "echo Invalid platform")
    machine.tool("rocm-smi", "echo No AMD GPUs specified; exit 2")
    with pytest.raises(
        Unavailable, match=r"amd-smi printed no JSON: 'Invalid platform'.*rocm-smi printed no JSON.*ended with 2"
    ):
        machine.collector().open(Given())


def test_a_program_that_hangs_delays_no_tick_and_is_reported_once(machine, read):
    machine.tool(
        "amd-smi", f"[ -e {machine.root}/hang ] && exec sleep 60; cat {FIXTURES}/amdsmi_metric_rocm7_two_radeon.json"
    )
    collector = machine.collector(tool_interval=1, tool_timeout=5)
    collector._clock = lambda: time.monotonic_ns() + machine.now
    collector.open(Given())
    assert read(collector)[0]
    (machine.root / "hang").touch()
    machine.now += 2 * 10**9
    begun = time.monotonic()
    assert read(collector) == ({}, [])
    assert seconds_since(begun) < 1
    machine.now += 6 * 10**9
    assert read(collector) == ({}, ["amd-smi gave no answer in 5 s"])
    collector.close()


def test_a_program_that_hangs_at_the_start_is_unavailable(machine):
    machine.tool("amd-smi", "exec sleep 60")
    with pytest.raises(Unavailable, match="gave no answer in"):
        machine.collector(tool_timeout=0.2).open(Given())


def test_without_a_program_the_message_names_both(machine):
    machine.put("module/amdgpu/version", "6")
    with pytest.raises(Unavailable, match="neither amd-smi nor rocm-smi is installed"):
        machine.collector().open(Given())


numbers = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.integers(-300, 300))
PATHS = [path for path, *_ in AMD_SMI]


@given(st.dictionaries(st.sampled_from(PATHS), numbers))
def test_no_output_of_a_tool_makes_a_share_above_100_or_a_negative_value(values):
    row: dict = {"gpu": 0, "marker": 1}
    for path, value in values.items():
        keys = path.split(".")
        inner = row
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value
    with suppress(QueryFailed):
        for readings in amd_smi(json.dumps([row]).encode()).values():
            for point in GpuPoints(Dimensions(gpu="0")).make(7, dict(readings)):
                assert 0 <= point.value <= (100 if point.metric.unit == "%" else 2**90), point
