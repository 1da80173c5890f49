"""The script of the tests on a real GPU, run on the fake driver, so that it works on the day there is one."""

from tests.doubles.nvml.driver import machine_with
from tests.gpu.test_nvidia_gpu import collect, values


def test_the_script_of_the_tests_on_a_gpu_reads_the_fake_driver(tmp_path, monkeypatch):
    _, env = machine_with(tmp_path, 1)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    rows, problems = collect(interval=0.1)["ticks"][-1]
    assert (values((rows, problems))["gpu.state"], problems) == (1, [])
