"""Cost of eight GPUs, on a driver that costs almost nothing: tests/doubles/nvml."""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pynvml
from tests.bench.child import ROOT, command, environment
from tests.bench.figure import MB, Effort, Figure, cpu_ms, rss
from tests.bench.figure import CannotMeasure as NotHere

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.collectors.nvidia.gpm import HEAD, METRIC
from chipwatch.collectors.nvidia.processes import LISTS
from chipwatch.collectors.nvidia.query import FIELD
from chipwatch.config.instances import build_collectors
from chipwatch.config.load import load
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given

GPUS = 8
TICKS = 40
PAUSE = 0.025
"""Seconds between two ticks."""
WARM = 30


def eight_gpus(effort: Effort) -> list[Figure]:
    """Read eight GPUs at two levels; take off what the bare calls of the driver cost, which take turns with it."""
    figures = []
    for level, asked, multiple in (("basic", 0.5, 1.5), ("detailed", None, 2.0), ("all", 2.0, None)):
        told = ask("cpu", level, str(effort.rounds))
        how = (
            f"CPU of NvidiaCollector.collect at level {level}, {told['points']} points a tick at most, less that of the same "
            f"{told['calls']} calls of nvidia-ml-py alone; mean of {TICKS} ticks as at 5 s, half of them with expensive queries"
        )
        figures.append(Figure(f"{GPUS} GPUs, {level}, one tick, own code", "ms", asked, told["own"], how))
        how = "the same with the calls of nvidia-ml-py and of a fake driver in C"
        figures.append(Figure(f"{GPUS} GPUs, {level}, one tick", "ms", None, told["whole"], how))
        how = "the same, as a multiple of a loop of nvidia-ml-py that makes the same calls and reads the fields' values"
        multiples = [whole / (whole - own) for whole, own in zip(told["whole"], told["own"], strict=True)]
        figures.append(Figure(f"{GPUS} GPUs, {level}, against a loop", "x", multiple, multiples, how))
    return figures


def gpu_memory(effort: Effort) -> list[Figure]:
    """Compare the host's collectors alone with the same and the GPUs, each in a separate process."""
    grown = [
        (ask("memory", "all", "with")["rss"] - ask("memory", "all", "without")["rss"]) / MB
        for _ in range(effort.rounds)
    ]
    how = f"RSS after {WARM} ticks at level all with the host's collectors and {GPUS} GPUs, less RSS with the host's alone"
    return [Figure("GPUs, memory", "MB", 4.0, grown, how)]


@contextmanager
def fake_driver(gpus: int = GPUS, tell: Callable[[Any], None] | None = None) -> Iterator[tuple[str, dict[str, str]]]:
    """
    Make a driver of so many GPUs, of which `tell` may say more.

    Yield a folder for --proc, and the environment of a child that finds the driver.
    """
    from tests.doubles.nvml.driver import VARIABLE, CannotBuild, Driver, build  # the child is to be without it

    with tempfile.TemporaryDirectory() as folder:
        try:
            library = build(Path(folder))
        except CannotBuild as reason:
            raise NotHere(str(reason)) from reason
        told = Driver(Path(folder), "h100", gpus)
        for gpu in told.gpus:
            gpu["field"]["83"] = "1000000@650000"
        if tell:
            tell(told)
        told.write()
        (Path(folder) / "driver/nvidia").mkdir(parents=True)
        (Path(folder) / "driver/nvidia/version").touch()
        yield folder, environment() | {"LD_LIBRARY_PATH": str(library.parent), VARIABLE: str(told.path)}


def ask(*words: str, gpus: int = GPUS) -> dict[str, object]:
    """Measure in a child that finds the fake driver; return what it says."""
    with fake_driver(gpus) as (folder, env):
        done = subprocess.run(
            command("nvidia", folder, *words), cwd=ROOT, env=env, stdout=subprocess.PIPE, timeout=120, check=True
        )
    return json.loads(done.stdout)


def child(folder: str, what: str, level: str, word: str) -> None:
    """Measure in this process."""
    collector = NvidiaCollector(NvidiaCollector.Config(proc=Path(folder), pid=os.getppid()))
    given = Given(level=Level[level.upper()])
    told = cpu(collector, given, int(word)) if what == "cpu" else memory(collector if word == "with" else None, given)
    json.dump(told, sys.stdout)


def cpu(collector: NvidiaCollector, given: Given, rounds: int) -> dict[str, object]:
    now, seen = [time.monotonic_ns()], []
    collector._clock = lambda: now[0]
    collector.open(given)
    pynvml.nvmlInit()

    def tick(at: int) -> None:
        now[0] += 5_000_000_000
        seen.append(len(list(collector.collect(at))))

    cpu_ms(tick, 5, PAUSE)
    calls = recorded(tick, 2)

    def bare(at: int) -> None:
        for call, args in calls[at % 2]:
            with suppress(pynvml.NVMLError):
                call(*args)

    whole, own = [], []
    turn = count()
    for _ in range(rounds):
        whole.append(cpu_ms(tick, TICKS, PAUSE))
        own.append(whole[-1] - cpu_ms(lambda at: bare(next(turn)), TICKS, PAUSE))
    collector.close()
    return {"whole": whole, "own": own, "points": max(seen), "calls": sum(map(len, calls)) // 2}


def recorded(tick: Callable[[int], None], ticks: int) -> list[list[tuple[Callable[..., object], tuple[object, ...]]]]:
    """Return the calls of each of some ticks, as nvidia-ml-py has them."""
    from chipwatch.host import nvml

    made: list[list[tuple[Callable[..., object], tuple[object, ...]]]] = []
    originals = {name: call for name, call in vars(nvml).items() if callable(call) and name in LOOP}

    def recorder(name, call):
        def record(*args):
            made[-1].append((LOOP[name], tuple(map(kept, args))))
            return call(*args)

        return record

    def recorder_of_rows(name, call):
        def record(handle, *args):
            since = [args[1].value] if name == SAMPLES else []
            made[-1].append((LOOP[name], (handle, *since)))
            return call(handle, *args)

        return record

    rows = {name: nvml.functions[name] for name in (*LISTS.values(), "nvmlDeviceGetProcessUtilization", SAMPLES)}
    nvml.functions.update({name: recorder_of_rows(name, call) for name, call in rows.items()})
    for name, call in originals.items():
        setattr(nvml, name, recorder(name, call))
    for n in range(ticks):
        made.append([])
        tick(n)
    for name, call in originals.items():
        setattr(nvml, name, call)
    nvml.functions.update(rows)
    return made


def kept(argument: object) -> object:
    """Return an argument; of an array, which the collector uses again, a copy."""
    return bytes(argument) if isinstance(argument, ctypes.Array) else argument


def read_fields(handle, _count, fields):
    """Read fields as nvidia-ml-py has it."""
    numbers = [(number, scope) for number, scope, *_ in FIELD.iter_unpack(fields)]
    answers = pynvml.nvmlDeviceGetFieldValues(handle, numbers)
    return [field.value.ullVal for field in answers if not field.nvmlReturn]


def read_metrics(request):
    """Read metrics of GPM as nvidia-ml-py has it, with a struct that is made once."""
    _, count, earlier, later = HEAD.unpack_from(request)
    metrics = metrics_of(tuple(number for number, *_ in METRIC.iter_unpack(request[HEAD.size :])))
    metrics.sample1, metrics.sample2 = (ctypes.cast(sample, pynvml.c_nvmlGpmSample_t) for sample in (earlier, later))
    pynvml.nvmlGpmMetricsGet(metrics)
    return [metric.value for metric in metrics.metrics[:count] if not metric.nvmlReturn]


@cache
def metrics_of(numbers):
    metrics = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(numbers))
    for n, number in enumerate(numbers):
        metrics.metrics[n].metricId = number
    return metrics


def read_struct(call: Callable[..., object], struct: str) -> Callable[..., object]:
    return lambda handle: call(handle, ctypes.byref(getattr(pynvml, struct)()))


SAMPLES = "nvmlDeviceGetSamples"
LOOP = {name: call for name, call in vars(pynvml).items() if name.startswith("nvmlDeviceGet") and callable(call)} | {
    "nvmlDeviceGetMemoryInfo_v2": lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2),
    "nvmlDeviceGetTemperatureV": lambda handle: pynvml.nvmlDeviceGetTemperatureV(handle, 0),
    "nvmlDeviceGetSramEccErrorStatus": read_struct(
        pynvml.nvmlDeviceGetSramEccErrorStatus, "c_nvmlEccSramErrorStatus_v1_t"
    ),
    "fabric_v3": read_struct(pynvml.nvmlDeviceGetGpuFabricInfoV, "c_nvmlGpuFabricInfo_v3_t"),
    "nvmlDeviceGetFieldValues": read_fields,
    "nvmlDeviceGetProcessUtilization": lambda handle: pynvml.nvmlDeviceGetProcessUtilization(handle, 0),
    SAMPLES: lambda handle, since: pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, since),
    "nvmlGpmSampleGet": pynvml.nvmlGpmSampleGet,
    "nvmlGpmMetricsGet": read_metrics,
    "nvmlEventSetWait_v2": lambda events: pynvml.nvmlEventSetWait_v2(events, 1),
}
"""The calls of the collector, as a loop of nvidia-ml-py makes them."""


def memory(collector: NvidiaCollector | None, given: Given) -> dict[str, object]:
    collectors: list[Collector] = [one for name, one in build_collectors(load(None, {})).items() if name != "nvidia"]
    opened = []
    for one in [*collectors, collector] if collector else collectors:
        with suppress(Unavailable):
            one.open(given if one is collector else Given())
            opened.append(one)
    for tick in range(WARM):
        for one in opened:
            with suppress(PartlyCollected):
                list(one.collect(tick))
        time.sleep(0.005)
    return {"rss": rss()}
