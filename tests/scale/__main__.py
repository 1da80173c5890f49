"""
`make scale`: what many series, a large machine and the recorder cost; a whole run writes its table in docs/benchmarks.md.

Agents run side by side at 1 s: with pages of 1,000 to 20,000 series that are scraped each 10 s, on a machine of files
with 192 CPUs, and on this host with and without the recorder. One more starts against 50,000 series.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.bench.child import ROOT, environment
from tests.bench.command import agent_command
from tests.doubles.web import WebDouble, give
from tests.peers import page
from tests.peers.programs import Place, Program, agent
from tests.peers.running import Results, rounds
from tests.scale.machine import large_machine

PAGE = ROOT / "docs/benchmarks.md"
SIZES = (1_000, 10_000, 20_000)
TOO_MANY = 50_000
EVERY = 10
"""Seconds between two scrapes, of a page by the agent and of the agent by Prometheus."""
SECONDS, WARM = 60.0, 75.0  # by then a minute's window was sent, and each series has had five readings
SINKS = {
    "CloudWatch": ("--sink cloudwatch --window 60s -r us-east-1 -d hostname --endpoint-url {}", "http"),
    "Prometheus": ("--sink prometheus", "scraped"),
}
ASKED = {
    "CloudWatch, 10,000 series": (2.5, 50), "Prometheus, 10,000 series": (4.0, 45),
    "large machine, basic": (4.0, None), "large machine, all": (8.0, None),
}  # fmt: skip
"""CPU (ms/s) and memory (MB) that are asked."""
HEAD = "| agent, each second | CPU, ms/s | asked | RSS, MB | asked | threads | context switches/s |"


def series(size: int, at: float) -> str:
    """Return a page of so many series, half of them counters, all of which move."""
    lines = []
    for family in range(size // 10):
        lines.append(f"# HELP made_{family} A family.\n# TYPE made_{family} {'counter' if family % 2 else 'gauge'}")
        lines += [f'made_{family}{{device="device-{n}",pod="trainer-{n}"}} {at + family + n}' for n in range(10)]
    return "\n".join(lines) + "\n"


class Pages(WebDouble):
    """Serves a page of N series at /N."""

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        body = series(int(http.path.strip("/")), time.time() // 1).encode()
        give(http, 200, body, Content_Type="text/plain; version=0.0.4")


def with_file(program: Program, text: str, env: Mapping[str, str] | None = None) -> Program:
    """Return the program with a configuration file, and with more environment."""

    def command(place: Place) -> list[str]:
        (place.folder / "chipwatch.toml").write_text(text)
        listen = {"CHIPWATCH_SINKS__PROMETHEUS__LISTEN": place.address} if program.receiver == "scraped" else {}
        words = program.command(place)
        place.env |= {**(env or {}), **listen}
        return [*words, "--config", str(place.folder / "chipwatch.toml")]

    return replace(program, command=command, every=EVERY)


def programs(address: str, root: Path, env: Mapping[str, str]) -> list[Program]:
    """Return all agents."""
    made = []
    for sink, (words, receiver) in SINKS.items():
        for size in (0, *SIZES):
            title = f"{sink}, {size:,} series" if size else f"{sink}, no page"
            table = f'[collectors.openmetrics.endpoints.page]\nurl = "{address}/{size}"\ninterval = {EVERY}\n'
            text = f"{table}max_series = {max(SIZES)}\n[sinks.cloudwatch]\nmax_series = 0\n" if size else ""
            made.append(with_file(agent(title, title, words, receiver), text))
    files = f'proc = "{root}/proc"\nsys = "{root}/sys"\nroot = "{root}"\n'
    for level in ("basic", "all"):
        title = f"large machine, {level}"
        made.append(with_file(agent(title, title, f"--format json --level {level}"), files, env))
    for title, text in (("this host, standard output", ""), ("the same without the recorder", "recorder = false\n")):
        made.append(with_file(agent(title, title, "--format json"), text))
    return made


def table(results: Results) -> str:
    """Return the medians of the rounds beside what is asked."""
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    for name, runs in results.items():
        cpu, memory, threads, switches = (
            statistics.median(getattr(run, key) for run in runs) for key in ("cpu", "rss", "threads", "switches")
        )
        most, size = ("" if one is None else f"{one:g}" for one in ASKED.get(name, (None, None)))
        lines.append(f"| {name} | {cpu:.2f} | {most} | {memory:.1f} | {size} | {threads:.0f} | {switches:.1f} |")

    def ratio(name: str, less: str, other: str, least: str) -> float:
        cpu = ([run.cpu for run in results[of]] for of in (name, less, other, least))
        return statistics.median((a - b) / (c - d) for a, b, c, d in zip(*cpu, strict=True))

    for sink in SINKS:
        alone = f"{sink}, no page"
        if {f"{sink}, 20,000 series", f"{sink}, 10,000 series", alone} <= results.keys():
            many = ratio(f"{sink}, 20,000 series", alone, f"{sink}, 10,000 series", alone)
            lines.append(f"\n{sink}: 20,000 series cost {many:.2f} times what 10,000 cost; at most 2 is asked.")
    return "\n".join(lines)


def first_words(address: str) -> str:
    """Return what an agent says of too many series, and after how many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "chipwatch.toml")
        config.write_text(f'[collectors.openmetrics.endpoints.page]\nurl = "{address}/{TOO_MANY}"\n')
        words = [agent_command(), "--config", str(config), "--sink", "prometheus", "--duration", "30"]
        env = environment() | {"HOME": folder, "CHIPWATCH_SINKS__PROMETHEUS__LISTEN": "127.0.0.1:0"}
        begun = time.monotonic()
        with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as run:
            assert run.stderr
            said = next((line for line in run.stderr if "left out" in line), "nothing")
            spent = time.monotonic() - begun
            run.kill()
    return (
        f"A page of {TOO_MANY:,} series, {spent:.1f} s after the start: `{said.partition('): ')[2].strip() or said}`."
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print; a whole run writes the page, too."""
    parser = argparse.ArgumentParser(prog="make scale", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="rounds (2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of a round (60)")
    parser.add_argument("--only", default="", metavar="WORD", help="agents whose name has WORD; writes nothing")
    options = parser.parse_args(argv)
    with Pages() as served, large_machine() as (root, env):
        chosen = [one for one in programs(served.url, root, env) if options.only in one.name]
        results, absent = rounds(chosen, options.rounds, options.seconds, WARM)
        measured = table({one.name: results[one.name] for one in chosen if one.name in results})
        measured += "\n\n" + first_words(served.url)
    sys.stdout.write("\n".join([measured, *(f"{name}: {reason}" for name, reason in absent.items())]) + "\n")
    if not (options.only or absent):
        PAGE.write_text(page.replaced(PAGE.read_text(), "scale of agents", measured, "make scale"))


if __name__ == "__main__":
    main()
