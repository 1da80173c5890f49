"""The collector in the program, with the driver's library found as a real one would be."""

import json
import subprocess
import sys
import textwrap
import time

import pytest
from tests.agent.collectors.nvidia.conftest import HEALTH, SELDOM
from tests.conftest import ROOT
from tests.doubles.nvml.driver import VARIABLE, Driver
from tests.load import seconds_since


@pytest.fixture
def gpu_agent(agent, plugins_folder, library, proc, tmp_path):
    """Return what starts the command with the collector under the name `gpus`, and a driver that it will find."""
    plugins_folder.add(
        "gpus", "from chipwatch.collectors.nvidia import NvidiaCollector as Gpus", collectors=[("gpus", "Gpus")]
    )
    fake = Driver(tmp_path, "h100", 2)
    env = {
        "PYTHONPATH": plugins_folder.folder,
        "LD_LIBRARY_PATH": library.parent,
        VARIABLE: fake.path,
        "CHIPWATCH_COLLECTORS__GPUS__PROC": proc,
        "CHIPWATCH_COLLECTORS__GPUS__ROOT": tmp_path,  # without a driver, whatever this machine has
    }

    def call(how, *words, **more):
        return how("--collector", "gpus", "--format", "json", *words, env=env | more)

    call.driver = fake
    return call


@pytest.mark.parametrize(
    ("broken", "code", "line"),
    [
        ({"lost": 1}, 1, "device     gpu 1        FAILED   is lost, fails most queries or needs a reset. Drain"),
        ({"field": {"230": "3u"}}, 0, "device     gpu 1        DEGRADED asks to end its traffic with other GPUs."),
    ],
)
def test_check_ends_with_1_for_a_gpu_that_is_lost_or_asks_to_be_reset(agent, gpu_agent, broken, code, line):
    gpu_agent.driver.gpus[1] |= broken
    gpu_agent.driver.write()
    done = agent.run("check", "--collector", "gpus", env=gpu_agent(lambda *words, env: env))
    (device,) = [one for one in done.stdout.splitlines() if one.startswith("device ")]
    assert (done.returncode, device[: len(line)]) == (code, line)
    assert (f"{1 if code else 2} x NVIDIA H100 80GB HBM3, ") in done.stdout
    assert "driver 590.48.01" in done.stdout


def test_a_run_logs_a_loss_a_recovery_and_an_xid_once_each(agent, gpu_agent):
    gpu_agent.driver.gpus[0]["field"]["230"] = "3u"
    gpu_agent.driver.gpus[1]["lost"] = 1
    gpu_agent.driver.machine["events"] = "0:79"
    gpu_agent.driver.write()
    done = gpu_agent(agent.run, "--duration", "3", "--interval", "1")
    said = [line.partition("gpu ")[2] for line in done.stderr.splitlines() if "gpu " in line]
    assert sorted(line[:20] for line in said) == [
        "0: asks to end its t",
        "0: had Xid 79. Drain",
        "1: is lost, fails mo",
    ]


def test_a_query_that_hangs_blocks_only_this_collector(agent, gpu_agent, until):
    gpu_agent.driver.gpus[1]["temperature"] = "hang"
    gpu_agent.driver.write()
    running = gpu_agent(agent.start, "--collector", "cpu", "--interval", "0.1")
    until(lambda: sum(point["name"] == "cpu.utilization" for point in running.points()) > 10)
    assert not [point for point in running.points() if point["name"].startswith("gpu.")]
    code, seconds = running.stop()
    assert code == 0
    assert seconds < 5
    assert "the last reading has not returned" in running.errors()


def test_a_driver_that_hangs_in_open_blocks_only_this_collector(agent, gpu_agent, until):
    gpu_agent.driver.machine["init"] = "hang"
    gpu_agent.driver.write()
    running = gpu_agent(agent.start, "--collector", "cpu", "--interval", "0.1")
    until(lambda: sum(point["name"] == "cpu.utilization" for point in running.points()) > 5)
    begun = time.monotonic()
    assert running.stop()[0] == 0
    assert seconds_since(begun) < 5


def test_a_missing_library_is_named_as_the_reason(agent, gpu_agent, tmp_path):
    if subprocess.run(["sh", "-c", "ldconfig -p | grep -q libnvidia-ml"], check=False).returncode == 0:
        pytest.skip("this machine has the real library")
    env = gpu_agent(lambda *words, env: env) | {"LD_LIBRARY_PATH": tmp_path / "empty"}
    done = agent.run("check", "--collector", "gpus", env=env)
    assert "MISSING  NVML: NVML Shared Library Not Found (NVML 12): libnvidia-ml.so.1 cannot be loaded" in done.stdout


def run(library, tmp_path, proc, source, **env):
    """Run a program of the fake driver's in a separate process; return its output."""
    fake = Driver(tmp_path, "h100", 2)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), str(proc)],
        cwd=ROOT,
        env={"LD_LIBRARY_PATH": str(library.parent), VARIABLE: str(fake.path), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_forked_process_opens_its_own_nvml(library, tmp_path, proc):
    fake = run(
        library,
        tmp_path,
        proc,
        """
        import json, os, sys
        from pathlib import Path
        from chipwatch.collectors.nvidia import NvidiaCollector
        from chipwatch.contract.plugin import Given

        collector = NvidiaCollector(NvidiaCollector.Config(proc=Path(sys.argv[1])))
        collector.open(Given())
        first = [point.metric.name for point in collector.collect(1)]
        out, into = os.pipe()
        if os.fork() == 0:
            from chipwatch.host import nvml
            calls = []
            shutdown, init = nvml.nvmlShutdown, nvml.nvmlInit
            nvml.nvmlShutdown = lambda: calls.append("shutdown") or shutdown()
            nvml.nvmlInit = lambda: calls.append("init") or init()
            points = [point.metric.name for point in collector.collect(2)]
            collector.close()
            os.write(into, json.dumps([points, calls]).encode())
            os._exit(0)
        os.wait()
        child, calls = json.loads(os.read(out, 1 << 16))
        after = [point.metric.name for point in collector.collect(2)]
        collector.close()
        print(json.dumps({"first": first, "child": child, "calls": calls, "after": after}))
        """,
    )
    assert fake["child"] == fake["first"]
    assert fake["calls"] == ["init", "shutdown"]  # it shut down what it had opened
    every_30_s = {name[:-1] for name in HEALTH + SELDOM}
    assert set(fake["first"]) - every_30_s <= set(fake["after"])


def test_the_library_is_not_loaded_where_there_is_no_driver(library, tmp_path, proc):
    fake = run(
        library,
        tmp_path,
        tmp_path / "nothing",
        """
        import json, sys
        from pathlib import Path
        from chipwatch.collectors.nvidia import NvidiaCollector
        from chipwatch.contract.plugin import Given
        from chipwatch.contract.errors import Unavailable

        nowhere = Path(sys.argv[1])
        collector = NvidiaCollector(NvidiaCollector.Config(proc=nowhere, root=nowhere))
        try:
            collector.open(Given())
        except Unavailable:
            print(json.dumps(["chipwatch.host.nvml" in sys.modules, "ctypes" in sys.modules]))
        """,
    )
    assert fake == [False, False]


def test_a_driver_that_comes_later_is_found_after_one_warning(agent, gpu_agent, proc, until):
    version = proc / "driver/nvidia/version"
    text = version.read_text()
    version.unlink()
    run = gpu_agent(agent.start, "--interval", "0.2", CHIPWATCH_COLLECTORS__GPUS__RETRY="1")
    until(lambda: "tried again every 1 s" in run.errors())
    version.write_text(text)
    until(lambda: any(point["name"] == "gpu.utilization" for point in run.points()))
    assert run.errors().count("nothing to read") == 1
