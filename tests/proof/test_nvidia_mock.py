"""
The collector reads from NVIDIA's own stand-in for NVML what its profiles say.

With MOCK_NVML_SOURCE=FOLDER, a clone of NVIDIA/k8s-test-infra, `make proof` builds it with a compiler of the index.
"""

import json
import os
import subprocess
import sys
from functools import cache

import pytest
import yaml
from tests.proof import parts
from tools import hardware

pytestmark = pytest.mark.proof

PROFILES = ("t4", "a100", "l40s", "h100", "b200", "gb200", "gb300")


@pytest.fixture
def mock():
    """The folder of the stand-in, which has been built."""
    return parts.mock()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the runs of the agent, one a profile."""
    return tmp_path_factory.mktemp("runs")


def expected(config):
    """Return the values of a GPU by name and further dimensions, from a profile."""
    gpu = config["device_defaults"]
    memory, thermal, power, clocks, pcie = (gpu[key] for key in ("memory", "thermal", "power", "clocks", "pcie"))
    nvlink = config.get("nvlink", {})
    links = nvlink.get("links_per_gpu", 0) if nvlink.get("switches") else 0  # else NVML counts none
    return {
        "gpu.utilization": gpu["utilization"]["gpu"],
        "gpu.memory.total": memory["total_bytes"],
        "gpu.memory.used": memory["used_bytes"],
        "gpu.memory.reserved": memory["reserved_bytes"],
        "gpu.temperature": thermal["temperature_gpu_c"],
        "gpu.power": power["current_draw_mw"] / 1e3,
        "gpu.power.limit": power["enforced_limit_mw"] / 1e3,
        "gpu.clock.sm": clocks["sm_current"],
        "gpu.clock.memory": clocks["memory_current"],
        "gpu.clock.graphics": clocks["graphics_current"],
        "gpu.pcie.width": pcie["current_link_width"],
        "gpu.pcie.generation": pcie["current_link_gen"],
        "gpu.state": 1,
        "gpu.ecc.uncorrected": gpu["ecc"]["errors"]["volatile"]["double_bit"]["total"],
        "gpu.ecc.lifetime kind=uncorrected": gpu["ecc"]["errors"]["aggregate"]["double_bit"]["total"],
        "gpu.rows.failed": int(gpu["remapped_rows"]["failure_occurred"]),
        "gpu.fault fault=rows_pending": int(gpu["remapped_rows"]["pending"]),
        "gpu.clock.reduced reason=idle": int(gpu["clocks_throttle_reasons"]["gpu_idle"]),
        **({"gpu.links kind=nvlink state=up": links, "gpu.links kind=nvlink state=down": 0} if links else {}),
    }


@cache
def read(mock, tmp_path, profile):
    """Return the agent's values by GPU, then by name and further dimensions."""
    tmp_path = tmp_path / profile
    tmp_path.mkdir()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    env = environment(mock, profile) | {"CHIPWATCH_SINKS__STDOUT__ZEROS": "true"}
    words = ["--once", "--collector", "nvidia", "--level", "all", "--format", "json", "--root", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "chipwatch", *words, "--spool", tmp_path / "spool"],
        env=env, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    gpus: dict[str, dict[str, float]] = {}
    for point in map(json.loads, done.stdout.splitlines()):
        if gpu := point["dims"].pop("gpu", None):
            further = [f"{key}={value}" for key, value in sorted(point["dims"].items())]
            gpus.setdefault(gpu, {})[" ".join([point["name"], *further])] = point["value"]
    return gpus


def config_of(mock, profile):
    return mock / f"configs/mock-nvml-config-{profile}.yaml"


def environment(mock, profile):
    return os.environ | {"LD_LIBRARY_PATH": str(mock), "MOCK_NVML_CONFIG": str(config_of(mock, profile))}


@pytest.mark.parametrize("profile", PROFILES)
def test_each_gpu_of_a_profile_has_the_values_of_the_profile(mock, folder, profile):
    config = yaml.safe_load(config_of(mock, profile).read_text())
    gpus = read(mock, folder, profile)
    assert len(gpus) == len(config["devices"])
    wanted = expected(config)
    for gpu, values in gpus.items():
        ours = {name: values[name] for name in wanted if name in values}
        assert {name: value for name, value in ours.items() if value != wanted[name]} == {}, gpu
        assert wanted.keys() == ours.keys(), gpu
        faults = {
            name: value for name, value in values.items() if value and name.startswith(("gpu.fault", "gpu.link.e"))
        }
        assert faults == {}, gpu


def of_one(name, /, **values):
    """Return a change of the profile: of GPU 3 alone where the mock can do that."""

    def change(config):
        config["devices"][3][name] = {**config["device_defaults"].get(name, {}), **values}

    return change


def of_all(name, **values):
    def change(config):
        config["device_defaults"][name] = {**config["device_defaults"].get(name, {}), **values}

    return change


def links_down(config):
    config["nvlink"]["defaults"] = {"state": "down"}


HOT = of_one("thermal", temperature_gpu_c=120)
SICK = [  # profile, change, verdict, words
    *((profile, HOT, "NOT FIT", "is hotter than the temperature at which it shuts down") for profile in PROFILES),
    *((profile, links_down, "NOT FIT", "has NVLinks that are down") for profile in ("a100", "h100", "gb200", "gb300")),
    *(
        (profile, of_one("clocks_throttle_reasons", **{"hw_slowdown": True, reason: True}), "DEGRADED", f"is slowed down by {says}")
        for profile in ("t4", "h100")
        for reason, says in (
            ("hw_slowdown", "its hardware"), ("hw_thermal_slowdown", "heat"), ("hw_power_brake_slowdown", "the power brake"),
        )
    ),
    ("h100", of_one("nvlink_error", rate=250), "NOT FIT", "has an NVLink that did not recover"),
    ("a100", of_one("nvlink_error", rate=250), "NOT FIT", "has an NVLink that"),
    *((profile, of_one("failure", mode=mode), "NOT FIT", "is lost")
      for profile in ("h100", "t4") for mode in ("lost", "fallen_off_bus")),
    ("h100", of_one("failure", mode="ecc_uncorrectable", xid={"code": 64}), "NOT FIT", "had memory errors that were not corrected"),
    *(("h100", of_all("remapped_rows", **{kind: value}), verdict, says) for kind, value, verdict, says in (
        ("uncorrectable", 9, "DEGRADED", "has replaced more than 8 rows"), ("pending", True, "DEGRADED", "replaces a faulty row"),
        ("failure_occurred", True, "NOT FIT", "could not replace a faulty row"),
    )),
    ("h100", of_all("pcie", current_link_width=8), "DEGRADED", "has a PCIe link narrower"),
    ("h100", of_all("ecc", mode_current="disabled"), "DEGRADED", "has ECC switched off"),
]  # fmt: skip


def verdict(mock, folder, profile, change):
    """Return what the command says of the profile, changed."""
    config = yaml.safe_load(config_of(mock, profile).read_text())
    change(config)
    (folder / "config.yaml").write_text(json.dumps(config))
    (folder / "root/dev").mkdir(parents=True)
    (folder / "root/dev/nvidiactl").touch()
    env = environment(mock, profile) | {"MOCK_NVML_CONFIG": str(folder / "config.yaml")}
    words = ["verdict", "--spool", folder / "spool", "--root", folder / "root", "--timeout", "8s"]
    done = subprocess.run(
        [sys.executable, "-m", "chipwatch", *words], env=env, capture_output=True, text=True, check=False
    )
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("profile", PROFILES)
def test_a_healthy_profile_has_no_fault_and_a_card_without_links_no_word_about_them(mock, tmp_path, profile):
    text = verdict(mock, tmp_path, profile, lambda _: None)
    assert text.startswith("FIT FINE ")
    assert ("NVLinks," in text) == (profile in ("a100", "h100", "gb200", "gb300"))
    assert "nvlink" not in text or profile not in ("t4", "l40s")


@pytest.mark.parametrize("row", SICK, ids=lambda row: f"{row[0]} {row[3]}")
def test_a_sick_gpu_of_the_mock_is_named_without_an_agent(mock, tmp_path, row):
    profile, change, word, says = row
    text = verdict(mock, tmp_path, profile, change)
    assert text.startswith(f"{word} ")
    assert f"gpu 3 {says}" in text


UNITS = {"MiB": 1 << 20, "kW": 1000}
"""Units of nvidia-smi that differ from the metrics'."""
NOT_OF_THE_MOCK = "GPU T.Limit Temp"
"""nvidia-smi 550 prints 0, since it asks by a function that the mock lacks; ours is slowdown_threshold_c less the temperature."""
WORDS = {"Active": 1, "Not Active": 0, "Yes": 1, "No": 0, "None": None}
SECTIONS = (
    "MEMORY", "UTILIZATION", "ECC", "TEMPERATURE", "POWER", "CLOCK", "COMPUTE", "PIDS", "PERFORMANCE",
    "SUPPORTED_CLOCKS", "PAGE_RETIREMENT", "ACCOUNTING", "ENCODER_STATS", "ROW_REMAPPER", "VOLTAGE", "FBC_STATS",
)  # fmt: skip
"""Parts of `nvidia-smi -q`: without one, it ends on the mock after the first lines with a fault of memory."""


def of_nvidia_smi(program, mock, profile, gpus):
    """Return what nvidia-smi prints of so many GPUs, by group and name, without names that have no value."""
    printed: list[dict[tuple[str, str], str]] = [{} for _ in range(gpus)]
    asked = [*(["-d", section] for section in SECTIONS), *(["-i", str(number)] for number in range(gpus))]
    for words in asked:
        done = subprocess.run(
            [program, "-q", *words], env=environment(mock, profile), capture_output=True, text=True, check=False
        )
        numbers, number, groups = iter([int(words[1])] if words[0] == "-i" else range(gpus)), None, []
        for line in done.stdout.splitlines():
            if line.startswith("GPU "):
                number, groups = next(numbers), []
            elif number is not None and line.strip():
                indent = len(line) - len(line.lstrip())
                groups = [(width, group) for width, group in groups if width < indent]
                name, colon, value = line.strip().partition(" : ")
                if not colon:
                    groups.append((indent, name.strip()))
                elif value.strip() not in ("N/A", ""):
                    printed[number]["/".join(group for _, group in groups), name.strip()] = value.strip()
    return printed


def as_number(text):
    """Return a value of nvidia-smi in the metrics' unit; None for a word without a number."""
    number, _, unit = text.partition(" ")
    return WORDS[text] if text in WORDS else float(number) * UNITS.get(unit, 1)


def test_what_nvidia_smi_prints_is_in_the_table_and_the_values_with_a_metric_are_equal(mock, folder, tmp_path):
    rows = hardware.printed()
    program = parts.debian("nvidia-smi", tmp_path)
    version = subprocess.run(
        [program, "--version"], env=environment(mock, "t4"), capture_output=True, text=True, check=False
    ).stdout
    counts: dict[tuple[str, str], int] = {}
    for profile in PROFILES:
        ours = read(mock, folder, profile)
        printed = of_nvidia_smi(program, mock, profile, len(ours))
        for name in (name for gpu in printed for name in gpu):
            counts[name] = counts.get(name, 0) + 1
        for number, gpu in enumerate(printed):
            pairs = {
                row[:2]: (as_number(gpu[row.group, row.names[0]]), ours[str(number)].get(f"{row.metric} {row.further}".strip()))
                for row in rows if row.metric and (row.group, row.names[0]) in gpu and row.names[0] != NOT_OF_THE_MOCK
            }  # fmt: skip
            differ = {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and (pair[0] or pair[1])}
            assert differ == {}, f"{profile} {number}"
    if "NVIDIA-SMI version  : 550.163.01" in version:  # another version prints other names
        assert counts.keys() == {(row.group, name) for row in rows for name in row.names}
        for row in rows:
            assert row.values == sum(counts[row.group, name] for name in row.names), row
