#!/usr/bin/env python3
"""
Behaves as neuron-monitor: `fake_neuron_monitor.py -c CONFIG` prints a record at once and then one a period.

It is invented after the user guide and public captures; no line of it comes from the real program. What it does is
scripted by the environment:

    FAKE_NEURON_STEPS   words, one a period, the last one for ever: record (unless set), cut, blank, text, json, huge,
                        chatter (200 kB on stderr, then a record), flood (stderr for ever), words (a line on stderr),
                        silent, exit0, exit3, kill
    FAKE_NEURON_SPEED   how much faster time goes (1)
    FAKE_NEURON_LOG     a file that gets a JSON line at each start: pid, configuration, GOMEMLIMIT
    FAKE_NEURON_RECORDS a file of records, one a line, instead of those that are made here
"""

import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path

USAGE = """Usage of neuron-monitor:
  -c, --config-file string   path to a configuration file
      --verbose int          verbosity of standard error
"""
OUTCOMES = (
    "completed",
    "completed_with_err",
    "completed_with_num_err",
    "timed_out",
    "incorrect_input",
    "failed_to_queue",
)
ERRORS = ("generic", "numerical", "transient", "model", "runtime", "hardware")
PERCENTILES = ("p0", "p1", "p100", "p25", "p50", "p75", "p99")
CATEGORIES = ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")


def model(number):
    """Return a loaded model, as long as a real one."""
    parts = {"constants": 163840, "model_code": 60999232, "runtime_memory": 0, "tensors": 0}
    host = {"application_memory": 20480, "constants": 0, "dma_buffers": 524288, "tensors": 0}
    used = {"host": 544768, "neuron_device": 61163072, "usage_breakdown": {"host": host, "neuron_device": parts}}
    return {
        "name": f"/var/tmp/compiled/00000000-0000-4000-8000-{number:012d}/model.MODULE_{number:018d}+0123abcd.neff",
        "uuid": f"{number:032x}",
        "model_id": 10000 + number,
        "is_running": False,
        "subgraphs": {"sg_00": {"memory_used_bytes": used, "neuroncore_index": 0, "neuron_device_index": 0}},
    }


def runtime(n, cores, period, models):
    """Return the application on core `n`, which lists all cores and reads 0 for the cores of others."""
    in_use = {
        str(core): {"neuroncore_utilization": 31.25 + n if core == n else 0, "flops": 10**12 * (core == n)}
        for core in sorted(range(cores), key=str)
    }
    pair = (n - n % 2, n - n % 2 + 1)
    of_cores = {str(core): dict.fromkeys(CATEGORIES, 1000 * (core == n)) for core in pair}
    host = {"application_memory": 4000, "constants": 0, "dma_buffers": 96, "tensors": 0}
    breakdown = {"host": host, "neuroncore_memory_usage": of_cores}
    latency = dict.fromkeys(PERCENTILES, (n + 1) / 1000)
    report = {
        "execution_stats": {
            "period": period,
            "error_summary": dict.fromkeys(ERRORS, 0) | {"transient": 1},
            "execution_summary": dict.fromkeys(OUTCOMES, 0) | {"completed": 10},
            "latency_stats": {"total_latency": latency, "device_latency": dict(latency)},
            "error": "",
        },
        "memory_used": {
            "period": period,
            "neuron_runtime_used_bytes": {"host": 4096, "neuron_device": 5000, "usage_breakdown": breakdown},
            "loaded_models": [model(100 * n + number) for number in range(models)],
            "error": "",
        },
        "neuron_runtime_vcpu_usage": {"period": period, "vcpu_usage": {"user": 12.5 + n, "system": 0}, "error": ""},
        "neuroncore_counters": {"period": period, "neuroncores_in_use": in_use, "error": ""},
    }
    return {"pid": 4000 + n, "neuron_runtime_tag": str(4000 + n), "error": "", "report": report}


def record(runtimes=1, cores=2, period=1.0, models=0, groups=None):
    """Return a record of a machine with two cores a device; of the `groups` alone, if they are given."""
    usage = {"user": 10.5, "nice": 0, "system": 2, "idle": 87.5, "io_wait": 0, "irq": 0, "soft_irq": 0}
    ecc = ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_corrected", "sram_ecc_uncorrected")
    devices = [{"neuron_device_index": n} | dict.fromkeys(ecc, 0) for n in range(cores // 2)]
    host = {"memory_total_bytes": 8 << 30, "memory_used_bytes": 1 << 30, "swap_total_bytes": 0, "swap_used_bytes": 0}
    system = {
        "memory_info": {"period": period, **host, "error": ""},
        "neuron_hw_counters": {"period": period, "neuron_devices": devices, "error": ""},
        "vcpu_usage": {
            "period": period,
            "average_usage": usage,
            "usage_data": {str(n): usage for n in range(4)},
            "context_switch_count": 1234,
            "error": "",
        },
    }
    made = [runtime(n, cores, period, models) for n in range(runtimes)]
    if groups is not None:
        system = {name: group for name, group in system.items() if name in groups}
        for one in made:
            one["report"] = {name: group for name, group in one["report"].items() if name in groups}
    return {
        "neuron_runtime_data": made,
        "system_data": system,
        "instance_info": {
            "instance_name": "",
            "instance_id": "i-0aaaabbbbccccdddd",
            "instance_type": "trn1.2xlarge",
            "instance_availability_zone": "xx-test-1a",
            "instance_availability_zone_id": "xxt1-az1",
            "instance_region": "xx-test-1",
            "ami_id": "ami-0test",
            "subnet_id": "subnet-0test",
            "error": "",
        },
        "neuron_hardware_info": {
            "neuron_device_type": "trainium",
            "neuron_device_version": "v2",
            "neuroncore_version": "v2",
            "neuron_device_count": cores // 2,
            "neuron_device_memory_size": 32 << 30,
            "neuroncore_per_device_count": 2,
            "logical_neuroncore_config": 1,
            "error": "",
        },
    }


def line(**options):
    """Return a record as neuron-monitor prints it."""
    return json.dumps(record(**options), separators=(",", ":")).encode() + b"\n"


def usage():
    """Do what a Go program does with flags that it does not know: the text goes to standard output, too."""
    sys.stdout.write(USAGE)
    sys.exit(1)


def configuration(words):
    """Return the configuration that the command line names."""
    if len(words) == 2 and words[0] in ("-c", "--config-file"):
        return json.loads(Path(words[1]).read_text())
    return usage()


def act(step, made):
    """Do one step; `made` is the record that is due."""
    out, err = sys.stdout.buffer, sys.stderr.buffer
    if step == "chatter":
        err.write(b"something is odd\n" * (200_000 // 17))
        err.flush()
    if step == "flood":
        while True:
            err.write(b"something is odd\n" * 1000)
    if step == "words":
        err.write(b"cannot open /dev/neuron0: permission denied\n")
        err.flush()
    if step == "silent":
        signal.pause()
    if step.startswith("exit"):
        sys.exit(int(step.removeprefix("exit")))
    if step == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    text = {
        "record": made,
        "chatter": made,
        "cut": made[: len(made) // 2],
        "blank": b"\n  \n",
        "text": USAGE.encode(),
        "json": b'{"level":"info","msg":"hello"}\n[1]\n"x"\n',
        "huge": b'{"neuron_runtime_data":"' + b"x" * (17 << 20) + b'"}\n',
    }.get(step, b"")
    out.write(text)
    out.flush()


def main():
    config = configuration(sys.argv[1:])
    if log := os.environ.get("FAKE_NEURON_LOG"):
        started = {"pid": os.getpid(), "config": config, "memory": os.environ.get("GOMEMLIMIT")}
        with Path(log).open("a") as file:
            file.write(json.dumps(started) + "\n")
    period = float(config.get("period", "5s").removesuffix("s"))
    speed = float(os.environ.get("FAKE_NEURON_SPEED", "1"))
    groups = {
        metric["type"]
        for entry in [*config.get("neuron_runtimes", []), {"metrics": config.get("system_metrics", [])}]
        for metric in entry.get("metrics", [])
    }
    kept = None
    if path := os.environ.get("FAKE_NEURON_RECORDS"):
        kept = itertools.cycle(Path(path).read_bytes().splitlines(keepends=True))
    steps = (os.environ.get("FAKE_NEURON_STEPS") or "record").split(",")
    for n in itertools.count():
        act(steps[min(n, len(steps) - 1)], next(kept) if kept else line(period=period if n else 0.001, groups=groups))
        time.sleep(period / speed)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
