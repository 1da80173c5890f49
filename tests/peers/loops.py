"""
Plain programs that read this machine once a second in the way that people write them: `python loops.py NAME [WORD ...]`.

They run in the environment of `make peers` and import nothing of the project.
"""

import datetime as dt
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

INTERVAL = 1.0


def every_second() -> Iterator[None]:
    """Yield once a second, without a drift."""
    due = time.monotonic()
    while True:
        yield
        due += INTERVAL
        time.sleep(max(0.0, due - time.monotonic()))


def reader() -> Callable[[], dict[str, float]]:
    """Return a function that reads 64 values with psutil, where there are two CPUs, a disk and two interfaces."""
    import psutil

    own, last = psutil.Process(), {}
    disk = next(iter(psutil.disk_io_counters(perdisk=True) or {}), None)
    nics = sorted(psutil.net_io_counters(pernic=True))[-2:]

    def busy(key: object, times: tuple[float, ...]) -> float:
        total, idle = sum(times[:8]), times[3] + times[4]
        before, last[key] = last.get(key, (0.0, 0.0)), (total, idle)
        return 100 * (1 - (idle - before[1]) / (total - before[0])) if total > before[0] else 0.0

    def read() -> dict[str, float]:
        values: dict[str, float] = {}

        def add(prefix: str, source: object, names: str) -> None:
            values.update({f"{prefix}.{name}": getattr(source, name) for name in names.split()})

        total = psutil.cpu_times()
        add("cpu", total, "user nice system idle iowait irq softirq steal")
        values["cpu.busy"] = busy(None, total)
        for number, times in enumerate(psutil.cpu_times(percpu=True)[:2]):
            add(f"cpu{number}", times, "user system idle iowait")
            values[f"cpu{number}.busy"] = busy(number, times)
        add("kernel", psutil.cpu_stats(), "ctx_switches interrupts soft_interrupts")
        values["processes"], values["boot_time"] = len(psutil.pids()), psutil.boot_time()
        values["load1"], values["load5"], values["load15"] = psutil.getloadavg()
        add("memory", psutil.virtual_memory(), "total free available buffers cached used")
        add("swap", psutil.swap_memory(), "total free")
        if disk and (counts := psutil.disk_io_counters(perdisk=True)):
            add("disk", counts[disk], "read_count write_count read_bytes write_bytes read_time write_time busy_time")
        interfaces = psutil.net_io_counters(pernic=True)
        for nic in nics:
            add(nic, interfaces[nic], "bytes_sent bytes_recv packets_sent packets_recv errin errout")
        add("root", psutil.disk_usage("/"), "total used free percent")
        with own.oneshot():
            add("own", own.cpu_times(), "user system")
            add("own", own.memory_info(), "rss vms")
            values["own.threads"], values["own.files"] = own.num_threads(), own.num_fds()
        return values

    return read


def psutil_loop() -> None:
    """Read and forget."""
    read = reader()
    for _ in every_second():
        read()


def boto3_loop(url: str, chunk: str) -> None:
    """Send each reading with boto3's put_metric_data, so many datums a request, as neuron-monitor-cloudwatch.py does."""
    import boto3

    read, size = reader(), int(chunk)
    client = boto3.client("cloudwatch", "us-east-1", endpoint_url=url)
    dims = [{"Name": "InstanceId", "Value": "i-0123456789abcdef0"}]
    for _ in every_second():
        at = dt.datetime.now(dt.UTC)
        datums = [
            {"MetricName": name, "Dimensions": dims, "Timestamp": at, "Value": float(value), "Unit": "None"}
            for name, value in read().items()
        ]
        for begin in range(0, len(datums), size):
            client.put_metric_data(Namespace="loop", MetricData=datums[begin : begin + size])


def otel(url: str) -> None:
    """Export the host metrics of OpenTelemetry's instrumentation, at its defaults."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.instrumentation.system_metrics import SystemMetricsInstrumentor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporter = OTLPMetricExporter(endpoint=f"{url}/v1/metrics")
    readers = [PeriodicExportingMetricReader(exporter, export_interval_millis=1000 * INTERVAL)]
    SystemMetricsInstrumentor().instrument(meter_provider=MeterProvider(metric_readers=readers))
    signal.pause()


def mlflow() -> None:
    """Run the monitor that log_system_metrics=True starts."""
    import mlflow
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    mlflow.set_system_metrics_sampling_interval(INTERVAL)
    mlflow.set_system_metrics_samples_before_logging(1)
    SystemMetricsMonitor("r1").start()
    signal.pause()


def wandb(folder: str) -> None:
    """Run the monitor of an offline run."""
    import wandb

    settings = wandb.Settings(
        mode="offline", x_stats_sampling_interval=INTERVAL, console="off", silent=True, root_dir=folder
    )
    wandb.init(settings=settings)
    signal.pause()


def pynvml_loop() -> None:
    """Read ten values of each GPU through NVML."""
    import pynvml

    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    for _ in every_second():
        for gpu in gpus:
            pynvml.nvmlDeviceGetUtilizationRates(gpu)
            pynvml.nvmlDeviceGetMemoryInfo(gpu)
            pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)
            pynvml.nvmlDeviceGetPowerUsage(gpu)
            pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu)
            pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)
            pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM)
            pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)


def nvitop_loop() -> None:
    """Collect nvitop's metrics of all devices."""
    from nvitop import Device, ResourceMetricCollector

    devices = Device.all()
    if not devices:
        sys.exit("nvitop finds no device")
    collector = ResourceMetricCollector(devices=devices, root_pids={os.getpid()}, interval=INTERVAL)
    for _ in itertools.count():
        with collector(tag="loop"):
            time.sleep(30)


LOOPS: dict[str, Callable[..., None]] = {
    "psutil": psutil_loop, "boto3": boto3_loop, "otel": otel, "mlflow": mlflow, "wandb": wandb,
    "pynvml": pynvml_loop, "nvitop": nvitop_loop,
}  # fmt: skip

if __name__ == "__main__":
    LOOPS[sys.argv[1]](*sys.argv[2:])
