"""
The collector on a real GPU, beside nvidia-smi.

The collector runs in a separate process: another test of this process may have loaded the fake driver.
"""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def _why_not():
    if not Path("/dev/nvidiactl").exists():
        return "there is no /dev/nvidiactl"
    if not shutil.which("nvidia-smi"):
        return "there is no nvidia-smi to compare with"
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    return None if "GPU 0" in done.stdout else f"nvidia-smi lists no GPU: {(done.stdout + done.stderr).strip()}"


WHY_NOT = _why_not()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]

COLLECT = """
    import json, os, sys, time
    from pathlib import Path
    from chipwatch.collectors.nvidia import NvidiaCollector
    from chipwatch.contract.datapoint import Level
    from chipwatch.contract.errors import PartlyCollected
    from chipwatch.contract.plugin import Given

    pid, ticks, interval = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    collector = NvidiaCollector(NvidiaCollector.Config(pid=pid or None, root=Path(os.environ.get("CHIPWATCH_ROOT", "/"))))
    collector.open(Given(level=Level.ALL))
    told = []
    for tick in range(ticks):
        if tick:
            time.sleep(interval)
        rows, problems = [], []
        try:
            for p in collector.collect(time.time_ns()):
                rows.append([p.metric.name, dict(p.dims), p.value])
        except PartlyCollected as partly:
            problems = list(partly.problems)
        told.append([rows, problems])
    print(json.dumps({"ticks": told, "described": collector.describe()}))
    collector.close()
"""
LOAD = """
    import sys, time
    torch_or_cupy, seconds = sys.argv[1], float(sys.argv[2])
    if torch_or_cupy == "torch":
        import torch
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
        step, wait = lambda: a @ a, torch.cuda.synchronize
    else:
        import cupy
        a = cupy.random.rand(8192, 8192, dtype=cupy.float32)
        step, wait = lambda: a @ a, cupy.cuda.Device().synchronize
    step(); wait()
    print("ready", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(10):
            step()
        wait()
"""


def collect(pid=0, ticks=2, interval=1.5):
    """Run the collector in a separate process; return its ticks and its description of what it found."""
    words = [sys.executable, "-c", textwrap.dedent(COLLECT), str(pid), str(ticks), str(interval)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def values(tick, gpu="0"):
    return {name: value for name, dims, value in tick[0] if dims == {"gpu": gpu}}


def smi(*fields):
    """Return what nvidia-smi says of GPU 0 by field, None where it has no number."""
    done = subprocess.run(
        ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = {}
    for field, word in zip(fields, done.stdout.strip().split(", "), strict=True):
        try:
            found[field] = float(word)
        except ValueError:
            found[field] = None
    return found


@pytest.fixture
def load():
    """Start a matrix product that goes on for some seconds; return its process."""
    framework = None
    for name in ("torch", "cupy"):
        probe = "import torch; assert torch.cuda.is_available()" if name == "torch" else "import cupy; cupy.zeros(1)"
        if subprocess.run([sys.executable, "-c", probe], capture_output=True, timeout=180, check=False).returncode == 0:
            framework = name
            break
    if framework is None:
        pytest.skip("neither torch nor cupy can use the GPU from this Python")
    words = [sys.executable, "-c", textwrap.dedent(LOAD), framework, "60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "ready\n"
        yield running
        running.kill()


def test_the_values_equal_those_that_nvidia_smi_prints_at_the_same_moment():
    fields = {
        "gpu.memory.total": ("memory.total", MIB, 0.001, 2 * MIB),
        "gpu.memory.used": ("memory.used", MIB, 0.05, 64 * MIB),
        "gpu.temperature": ("temperature.gpu", 1, 0, 3),
        "gpu.memory.temperature": ("temperature.memory", 1, 0, 3),
        "gpu.power": ("power.draw", 1, 0.2, 15),
        "gpu.power.limit": ("enforced.power.limit", 1, 0.001, 0),
        "gpu.clock.memory": ("clocks.current.memory", 1, 0.05, 0),
        "gpu.utilization": ("utilization.gpu", 1, 0, 15),
        "gpu.ecc.uncorrected": ("ecc.errors.uncorrected.volatile.total", 1, 0, 0),
    }
    told = collect()
    read, said = values(told["ticks"][-1]), smi(*(field for field, *_ in fields.values()))
    print(told["described"], json.dumps(read, indent=1))  # noqa: T201  # for the record: pytest -s
    compared = 0
    for name, (field, unit, relative, absolute) in fields.items():
        if said[field] is not None and name in read:
            compared += 1
            assert read[name] == pytest.approx(said[field] * unit, rel=relative, abs=absolute), name
        if said[field] is None and name != "gpu.memory.temperature":
            assert name not in read, f"{name} is {read[name]}, where nvidia-smi has none"
    assert compared >= 5
    assert read["gpu.state"] == 1
    assert told["ticks"][-1][1] == []


def test_reading_puts_no_load_on_the_gpu_and_makes_no_context():
    listing = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    script = textwrap.dedent(COLLECT)
    before = smi("memory.used")["memory.used"]
    with subprocess.Popen(
        [sys.executable, "-c", script, "0", "20", "0.2"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as running:
        apps = subprocess.run(listing, capture_output=True, text=True, timeout=60, check=True).stdout.split()
        during = smi("memory.used")["memory.used"]
        told = json.loads(running.communicate(timeout=120)[0])
    assert str(running.pid) not in apps
    assert during - before < 4
    assert all(values(tick)["gpu.state"] == 1 for tick in told["ticks"])


def test_a_matrix_product_raises_utilization_power_and_memory_and_is_found_in_its_process(load):
    told = collect(pid=load.pid, ticks=4, interval=3)
    read = values(told["ticks"][-1])
    print(told["described"], json.dumps(read, indent=1))  # noqa: T201  # for the record: pytest -s
    idle = smi("power.min_limit", "power.max_limit")
    assert read["gpu.utilization"] > 80
    assert read["gpu.memory.used"] > 128 * MIB
    if idle["power.max_limit"]:
        assert read["gpu.power"] > 0.25 * idle["power.max_limit"]
    if "gpu.tensor.active" in read:
        assert read["gpu.sm.active"] > 50
        assert max(read["gpu.tensor.active"], read["gpu.fp32.active"]) > 10
    shares = [values(tick) for tick in told["ticks"]]
    memory = [tick["gpu.process.memory.used"] for tick in shares if "gpu.process.memory.used" in tick]
    assert memory, told["described"]
    assert 128 * MIB < memory[-1] <= read["gpu.memory.used"] * 1.05
    busy = [tick["gpu.process.utilization"] for tick in shares if "gpu.process.utilization" in tick]
    assert not busy or busy[-1] > 50


def test_the_memory_of_a_process_is_what_nvidia_smi_says_of_it(load):
    told = collect(pid=load.pid)
    words = ["nvidia-smi", "--id=0", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    apps = dict(line.split(", ") for line in done.stdout.splitlines() if line)
    if not apps.get(str(load.pid), "").isdigit():
        pytest.skip(f"nvidia-smi does not tell the memory of process {load.pid} here: {apps}")
    read = values(told["ticks"][-1])
    assert read["gpu.process.memory.used"] == pytest.approx(int(apps[str(load.pid)]) * MIB, rel=0.02, abs=4 * MIB)


def test_a_training_feels_little_of_the_agent(load):
    load.kill()
    words = [sys.executable, "-m", "tests.perturb", "--training", "1000", "--rounds", "3"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    print(done.stdout)  # noqa: T201  # for the record: pytest -s
    assert done.returncode == 0, done.stderr
    *_, (_, ours, *_, rate, _) = (line.split("|") for line in done.stdout.splitlines() if line.startswith("|"))
    assert "chipwatch" in ours
    assert float(rate.strip(" %")) > 97
