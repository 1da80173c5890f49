"""Each function that reads a number, beside the one of nvidia-ml-py: the same values, and the same errors."""

import ctypes

import pynvml
import pytest
from tests.doubles.nvml.driver import HERE, sizes

from chipwatch.collectors.nvidia.activity import SAMPLES_OF, _samples
from chipwatch.collectors.nvidia.query import MOST_ROWS, ROOM, Rows
from chipwatch.host import nvml

PROFILES = ("gb10", "gb300", "h100", "h100_mig", "rtx4080s", "t4")
ARGUMENTS = {
    "Temperature": [(0,)],
    "ClockInfo": [(0,), (1,), (2,), (3,)],
    "NvLinkState": [(0,), (17,), (99,)],
    "MemoryErrorCounter": [(1, 0, 2), (0, 1, 2)],
}
"""The arguments after the device."""
ALIKE = (
    "UUID", "Name", "MinorNumber", "UtilizationRates", "MemoryInfo", "Temperature", "PowerUsage", "EnforcedPowerLimit",
    "FanSpeed", "ClockInfo", "EncoderUtilization", "DecoderUtilization", "CurrentClocksThrottleReasons",
    "CurrPcieLinkWidth", "MaxPcieLinkWidth", "CurrPcieLinkGeneration", "MaxPcieLinkGeneration", "NvLinkState",
    "EccMode", "DefaultEccMode", "MemoryErrorCounter", "RowRemapperHistogram", "VirtualizationMode",
    "MaxMigDeviceCount", "GpuInstanceId", "SupportedEventTypes", "NumaNodeId",
)  # fmt: skip
"""Functions nvmlDeviceGet... of both."""
FAILING = {"PowerUsage": "power", "FanSpeed": "fan", "EnforcedPowerLimit": "limit", "Temperature": "temperature"}
"""A function, and the key of its answer in the table of the fake driver."""


def answer_of(module, word, device, args):
    try:
        answer = getattr(module, f"nvmlDeviceGet{word}")(device, *args)
    except module.NVMLError as error:
        return f"error {error.value}"
    if isinstance(answer, ctypes.Structure):
        return tuple(getattr(answer, field[0]) for field in answer._fields_)
    return answer[0] if isinstance(answer, list) else answer  # of two outputs ours is the first


@pytest.fixture
def opened(driver):
    def begin(name, **answers):
        fake = driver(name)
        fake.gpus[0] |= answers
        fake.tell()
        nvml.nvmlInit()
        pynvml.nvmlInit()
        return fake

    yield begin
    nvml.nvmlShutdown()
    pynvml._nvmlLib_refcount = 0  # the fake driver is closed by one call


def both(word):
    """Return what ours and the binding's function answer for each argument."""
    devices = nvml.nvmlDeviceGetHandleByIndex(0), pynvml.nvmlDeviceGetHandleByIndex(0)
    each = ARGUMENTS.get(word, [()])
    return tuple(
        [answer_of(module, word, device, args) for args in each]
        for module, device in zip((nvml, pynvml), devices, strict=True)
    )


@pytest.mark.parametrize("name", PROFILES)
def test_a_function_answers_as_the_binding_does(opened, name):
    opened(name)
    answers = {word: both(word) for word in ALIKE}
    assert {word: ours for word, (ours, _) in answers.items()} == {
        word: theirs for word, (_, theirs) in answers.items()
    }
    assert sum("error" not in str(ours) for ours, _ in answers.values()) > 5
    assert nvml.nvmlSystemGetDriverVersion() == pynvml.nvmlSystemGetDriverVersion()
    assert nvml.nvmlDeviceGetCount() == pynvml.nvmlDeviceGetCount()


def test_an_error_is_the_one_of_the_binding(opened):
    fake = opened("h100")
    for code in (*range(1, 31), 999, 12345):
        fake.gpus[0] |= dict.fromkeys(FAILING.values(), f"!{code}")
        fake.tell()
        for word in FAILING:
            ours, theirs = both(word)
            assert ours == theirs == [f"error {code}"]


class Odd:
    """A library with functions of a test."""

    def __init__(self, **functions):
        vars(self).update(functions)


@pytest.fixture
def odd(monkeypatch):
    def load(**functions):
        monkeypatch.setattr(nvml, "functions", nvml.Functions())
        monkeypatch.setattr(nvml, "library", Odd(**functions))

    return load


@pytest.mark.parametrize("functions", [{}, {"nvmlErrorString": lambda _: None}], ids=["missing", "null"])
def test_an_error_that_the_driver_does_not_explain_has_its_number(odd, functions):
    odd(**functions)
    assert str(nvml.NVMLError(15)) == "error 15"


def test_a_text_without_an_end_is_as_long_as_its_buffer(odd):
    def fill(_, text, size):
        ctypes.memset(text, ord("x"), size)
        return 0

    odd(nvmlDeviceGetName=fill)
    assert nvml.nvmlDeviceGetName(None) == 96 * "x"


def test_a_count_that_cannot_be_true_takes_no_memory(odd):
    sizes = []

    def fill(_, kind, since, value_type, count, array):
        sizes.append(count._obj.value)
        count._obj.value = 0xFFFFFFF0
        return 0 if len(sizes) == 1 else nvml.NVML_ERROR_UNKNOWN

    odd(nvmlDeviceGetSamples=fill)
    with pytest.raises(nvml.NVMLError):
        _samples(Rows(SAMPLES_OF[0]), None, 0)
    assert sizes == [ROOM, MOST_ROWS]


def test_samples_of_an_unknown_type_are_absent(odd):
    def fill(_, kind, since, value_type, count, array):
        value_type._obj.value, count._obj.value = 99, 1
        return 0

    odd(nvmlDeviceGetSamples=fill)
    assert _samples(Rows(SAMPLES_OF[0]), None, 0) == []


def test_the_fake_driver_has_the_sizes_of_nvidias_structs():
    assert (HERE / "nvml_sizes.h").read_text() == sizes()
