"""The metrics of the processor `jobs`: of jobs, and of the time of accelerators."""

from __future__ import annotations

from typing import Final

from chipwatch.contract.datapoint import Level, counter, gauge

DETAILED: Final = Level.DETAILED
# fmt: off
GPUS: Final = gauge("job.gpus", "{gpu}",
    "Accelerators that the job holds; a MIG instance counts by its slices.", dims=("job", "source"))
GPU_TIME: Final = counter(
    "job.gpu.time", "s", "Time of the accelerators that the job holds, by what they did in it.", dims=("job", "state"))
JOB_IDLE: Final = counter("job.gpu.idle.time", "s",
    "Experimental: time of these accelerators in which no kernel ran, by its likely cause.", DETAILED, ("job", "cause"))
MEMORY: Final = gauge(
    "job.gpu.memory.max", "By", "The most memory of one accelerator that the job has used.", dims=("job",))
ENERGY: Final = counter("job.energy", "J", "Energy of the accelerators that the job holds.", DETAILED, ("job",))
COST: Final = counter(
    "job.cost", "{USD}", "Price of the accelerators that the job holds, where dollars_per_hour is set.", dims=("job",))
IMBALANCE: Final = gauge("job.gpu.imbalance", "%",
    "Difference between the accelerators of the job that worked most and least in the last minutes.",
    DETAILED, ("job",))
HELD: Final = gauge("job.gpu.held", "1",
    "Part of the accelerator's work that is the job's: 1, or less where several jobs hold it.",
    DETAILED, ("job", "gpu"))
JOBS: Final = gauge("gpu.jobs", "{job}",
    "Jobs that hold the accelerator, where there are several, by how their parts are known.",
    DETAILED, ("gpu", "basis"))
COUNT: Final = gauge("gpu.count", "{gpu}",
    "Accelerators by what they did since the last reading: a state of jobs, free, or unknown.",
    DETAILED, ("state", "cause"))
IDLE: Final = counter(
    "gpu.idle.time", "s", "Experimental: time in which no kernel ran, by its likely cause.", DETAILED, ("gpu", "cause"))
BUSY: Final = counter("gpu.busy.time", "s",
    "Experimental: time in which kernels ran, by whether they computed or waited, if that is known.",
    DETAILED, ("gpu", "kind"))
SPENT: Final = counter("gpu.energy.by_state", "J",
    "Energy of the accelerator by what it did: a state of jobs, free, or unknown.", Level.ALL, ("gpu", "state"))
ALL: Final = (GPUS, GPU_TIME, JOB_IDLE, MEMORY, ENERGY, COST, IMBALANCE, HELD, JOBS, COUNT, IDLE, BUSY, SPENT)
# fmt: on
TIMES: Final = {"state": GPU_TIME, "cause": JOB_IDLE}
"""First word of a key of `Account.sums` -> the metric of that time."""
