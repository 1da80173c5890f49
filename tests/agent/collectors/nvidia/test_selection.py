"""Which GPUs are read."""

import pytest

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.config.load import plugin_config
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import Unavailable


def indexes(watched):
    watched.read()
    return sorted({point.dims["gpu"] for point in watched.points})


def test_gpus_are_selected_by_index_or_uuid(driver, watch):
    fake = driver("h100", 4)
    assert indexes(watch(Level.BASIC, devices=(1, fake.gpus[3]["uuid"]))) == ["1", "3"]
    assert indexes(watch(Level.BASIC, devices=("0", "2"))) == ["0", "2"]


def test_cuda_visible_devices_selects_gpus_only_if_configured(driver, watch, monkeypatch):
    driver("h100", 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 0,-1,3")
    assert indexes(watch(Level.BASIC)) == ["0", "1", "2", "3"]
    assert indexes(watch(Level.BASIC, cuda_visible_devices=True)) == ["0", "2"]
    assert indexes(watch(Level.BASIC, cuda_visible_devices=True, devices=(1,))) == ["1"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert indexes(watch(Level.BASIC, cuda_visible_devices=True)) == ["0", "1", "2", "3"]


def test_an_empty_cuda_visible_devices_makes_the_collector_unavailable(driver, watch, monkeypatch):
    driver("h100", 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(Unavailable, match="NVML lists no GPU of none"):
        watch(cuda_visible_devices=True)


def test_selected_gpus_that_do_not_exist_are_named_in_the_reason(driver, watch):
    driver("h100", 2)
    with pytest.raises(Unavailable, match="NVML lists no GPU of 7, GPU-none"):
        watch(devices=(7, "GPU-none"))


def test_the_options_can_be_written_in_toml_and_in_the_environment():
    table = {"devices": [0, "GPU-1"], "dimensions": ["uuid"], "cuda_visible_devices": True}
    made = plugin_config(NvidiaCollector, "collectors", "nvidia", Config(collectors={"nvidia": table}), env={})
    assert (made.devices, made.dimensions, made.cuda_visible_devices) == ((0, "GPU-1"), ("uuid",), True)
    env = {"CHIPWATCH_COLLECTORS__NVIDIA__DEVICES": "1,GPU-2", "CHIPWATCH_COLLECTORS__NVIDIA__DIMENSIONS": "model"}
    made = plugin_config(NvidiaCollector, "collectors", "nvidia", Config(pid=7), env=env)
    assert (made.devices, made.dimensions, made.pid) == (("1", "GPU-2"), ("model",), 7)


def test_the_gpu_whose_answer_is_awaited_is_known(driver, watch):
    driver("h100", 2)
    collector = watch(Level.BASIC).collector
    reading = iter(collector.collect(1))
    next(reading)
    assert collector.asking() == "GPU 0: NVML"
    assert [*reading]
    assert collector.asking() == ""
