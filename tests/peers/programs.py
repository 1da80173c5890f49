"""The programs that `make peers` measures: the agent with each sink, the least that one can pay, and other monitors."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.child import ROOT, environment, plain_environment
from tests.bench.command import agent_command
from tests.bench.figure import CannotMeasure
from tests.doubles.cloudwatch import environment as aws

FOLDER = ROOT / ".peers"
"""The programs of others, as `make peers` installs them."""
LOOPS = Path(__file__).with_name("loops.py")
SADC = ("/usr/lib/sysstat/sadc", "/usr/lib64/sa/sadc", "/usr/lib/sa/sadc")


@dataclass
class Place:
    """Where one program runs in one round."""

    folder: Path
    address: str = ""
    """Of the receiver, or host and port to listen on for one that is scraped."""
    env: dict[str, str] = field(default_factory=environment)


@dataclass(frozen=True)
class Program:
    """A program with its options; `command` raises CannotMeasure where this machine lacks it."""

    name: str
    title: str
    command: Callable[[Place], list[str]]
    receiver: str = ""
    """Kind of server that it sends to, `scraped`, or nothing."""
    ours: bool = False
    gpus: bool = False
    """Sees the fake driver."""
    every: float = 1.0
    """Seconds between two scrapes."""
    is_installed: bool = False
    """Comes with the Python packages in .peers."""


def agent(name: str, title: str, options: str, receiver: str = "", *, gpus: bool = False, **env: str) -> Program:
    """Return the agent at 1 s with more options; `{}` in values is the address of its receiver."""

    def command(place: Place) -> list[str]:
        if receiver != "grpc":
            place.env["PYTHONPATH"] = plain_environment()["PYTHONPATH"]
        place.env |= aws() | {key: value.format(place.address) for key, value in env.items()}
        place.env["NO_GCE_CHECK"] = "true"
        if "CHIPWATCH_COLLECTORS__NVIDIA__PROC" in env:
            place.env["CHIPWATCH_COLLECTORS__NVIDIA__PROC"] = place.env["FAKE_PROC"]
        words = [word.format(place.address) for word in options.split()]
        spool = [] if receiver in ("", "scraped") else ["--spool", str(place.folder)]
        interval = [] if "--interval" in words else ["--interval", "1"]
        return [agent_command(), *interval, *words, *spool]

    return Program(name, f"chipwatch: {title}", command, receiver, ours=True, gpus=gpus)


def loop(name: str, title: str, *words: str, receiver: str = "", gpus: bool = False, **env: str) -> Program:
    """Return a program of loops.py; psutil's runs in this environment, all others in that of `make peers`."""

    def command(place: Place) -> list[str]:
        python = sys.executable if words[0] == "psutil" else installed("python")
        place.env |= aws() | {key: value.format(place.address) for key, value in env.items()}
        return [python, str(LOOPS), *(word.format(place.address, place.folder) for word in words)]

    return Program(name, title, command, receiver, gpus=gpus, is_installed=words[0] != "psutil")


def installed(name: str) -> str:
    """Return the path of a program in .peers."""
    if not (FOLDER / "python.stamp").exists():
        raise CannotMeasure("its Python packages are not installed: see .peers/python.log")
    return str(FOLDER / "python/bin" / name)


def system(package: str, *paths: str) -> str:
    """Return the path of a program of the system."""
    if found := next(filter(None, map(shutil.which, paths)), None):
        return found
    raise CannotMeasure(f"`{package}` is not installed")


def floor(place: Place) -> list[str]:
    """Compile the loop in C."""
    compiler, program = system("cc", "cc", "gcc", "clang"), place.folder / "floor"
    subprocess.run([compiler, "-O2", "-o", program, Path(__file__).with_name("floor.c")], check=True)
    return [str(program)]


def fluent_bit(place: Place) -> list[str]:
    """Read the host with the plugin that stands for node_exporter."""
    path = system("fluent-bit", "fluent-bit", "/opt/fluent-bit/bin/fluent-bit")
    return [path, "-q", "-f", "1", "-i", "node_exporter_metrics", "-p", "scrape_interval=1", "-o", "null", "-m", "*"]


def telegraf(place: Place) -> list[str]:
    """Read the host with the inputs of Telegraf's own first configuration."""
    path, config = system("telegraf", "telegraf"), place.folder / "telegraf.conf"
    inputs = "".join(f"[[inputs.{name}]]\n" for name in ("cpu", "mem", "disk", "diskio", "net", "system", "swap"))
    config.write_text(
        f'[agent]\ninterval = "1s"\nflush_interval = "1s"\n[[outputs.file]]\nfiles = ["/dev/null"]\n{inputs}'
    )
    return [path, "--config", str(config)]


def node_exporter(place: Place) -> list[str]:
    """Serve node_exporter's page at its defaults."""
    path = system("prometheus-node-exporter", "prometheus-node-exporter", "node_exporter")
    return [path, f"--web.listen-address={place.address}"]


# fmt: off
PROGRAMS = (
    agent("stdout", "JSON lines, basic", "--format json"),
    agent("stdout-all", "JSON lines, level all", "--format json --level all"),
    agent("prometheus", "Prometheus, scraped each second", "--sink prometheus", "scraped", CHIPWATCH_SINKS__PROMETHEUS__LISTEN="{}"),
    agent("cloudwatch-minute", "CloudWatch, a point a minute", "--sink cloudwatch --window 60s -r us-east-1 -d hostname --endpoint-url {}", "http"),
    agent("cloudwatch-second", "CloudWatch, a point a second",
          "--sink cloudwatch --high-resolution-metrics -r us-east-1 -d hostname --endpoint-url {}", "http"),
    agent("cloudwatch-defaults", "CloudWatch, defaults (each 5 s)",
          "--sink cloudwatch --interval 5 -r us-east-1 -d hostname --endpoint-url {}", "http"),
    agent("otlp", "OTLP, a point a second", "--sink otlp --window 1s --flush 1s --endpoint-url {}", "http"),
    agent("mlflow", "MLflow, a point a second", "--sink mlflow --window 1s --flush 1s", "mlflow",
          MLFLOW_TRACKING_URI="{}", MLFLOW_RUN_ID="r1"),
    agent("google", "Google, a point a minute", "--sink google --project bench-project -d hostname", "grpc",
          CHIPWATCH_SINKS__GOOGLE__ENDPOINT="{}", CHIPWATCH_SINKS__GOOGLE__INSECURE="true"),
    agent("gpus", "GPUs, JSON lines", "--collector nvidia --format json", gpus=True,
          CHIPWATCH_COLLECTORS__NVIDIA__PROC=""),
    Program("c", "loop in C, open files of /proc", floor),
    loop("psutil", "loop with psutil, 64 values", "psutil"),
    Program("sadc", "sysstat's sadc", lambda place: [system("sysstat", *SADC), "1", str(place.folder / "sadc")]),
    Program("node_exporter", "node_exporter, scraped each second", node_exporter, "scraped"),
    Program("telegraf", "Telegraf, seven inputs", telegraf),
    Program("fluent-bit", "fluent-bit, node_exporter_metrics", fluent_bit),
    Program("glances", "glances, to CSV",
            lambda place: [installed("glances"), "-q", "-t", "1", "--disable-check-update", "--export", "csv",
                           "--export-csv-file", str(place.folder / "glances.csv")], is_installed=True),
    loop("otel", "OpenTelemetry's host metrics in Python", "otel", "{}", receiver="http"),
    loop("mlflow-monitor", "MLflow's system metrics", "mlflow", receiver="mlflow",
         MLFLOW_TRACKING_URI="{}", MLFLOW_RUN_ID="r1", MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true"),
    loop("wandb-monitor", "W&B's system metrics, offline", "wandb", "{1}", WANDB_ERROR_REPORTING="false", DO_NOT_TRACK="true"),
    loop("boto3-20", "loop with psutil and boto3, 20 datums a request", "boto3", "{}", "20", receiver="http"),
    loop("boto3", "loop with psutil and boto3, one request", "boto3", "{}", "1000", receiver="http"),
    loop("pynvml", "loop with pynvml, eight values", "pynvml", gpus=True),
    loop("nvitop", "nvitop's collector", "nvitop", gpus=True),
)
# fmt: on
BY_NAME = {program.name: program for program in PROGRAMS}


def install() -> list[str]:
    """Install what is missing, and say so; return what could not be installed."""
    from tests.deploy.tools import environment as part
    from tests.deploy.tools import install_parts

    pins = ROOT / "requirements/constraints-peers.txt"
    names = ", ".join(line for line in pins.with_name("peers.in").read_text().split("\n") if line and line[0] != "#")
    sys.stdout.write(f"peers: installs into .peers, as pinned in {pins.relative_to(ROOT)}: {names}\n")
    sys.stdout.flush()
    return install_parts(FOLDER, [part("python", FOLDER, pins)])


PACKAGES = ("sysstat", "prometheus-node-exporter", "telegraf", "fluent-bit")


def install_system() -> None:
    """Install the programs of the system with apt, where one is root; say which, and what could not be."""
    if not shutil.which("apt-get") or os.geteuid():
        sys.stdout.write("peers: programs of the system are left out: apt-get and root are needed to install them\n")
        return
    for package in PACKAGES:
        sys.stdout.write(f"peers: apt-get install {package}\n")
        sys.stdout.flush()
        words = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            sys.stdout.write(f"peers: {package} is left out: {done.stderr.strip().rpartition(chr(10))[2]}\n")
