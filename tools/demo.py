"""
Shows a fleet in a browser without containers: `make demo`. Agents of invented nodes, and a Prometheus with a page of them.

A Prometheus comes from PATH or from Debian's package, and serves a small page that draws the dashboards. Where `grafana-server` or
`grafana` is on PATH, it draws them too. All listen on loopback, and Ctrl-C stops all. `--agents` starts the agents alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import chipwatch
from tools.nodes import Node, nodes, stop

ROOT: Final = Path(__file__).parents[1]
STACK: Final = ROOT / "deploy/stack"
BOARDS: Final = ROOT / "dashboards/grafana/native"
RULES: Final = ROOT / "dashboards/prometheus/native"
KEPT: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chipwatch-demo"
"""Folder of the unpacked package of Prometheus."""
NO_PROMETHEUS: Final = (
    "demo: there is no prometheus on PATH, and no package of Debian to be had: install Prometheus 2.42 or later"
)
PACKAGE_LIMIT: Final = 90
"""Seconds for the download of a package."""


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def prometheus() -> Path | None:
    """Return the program prometheus: of this machine, or unpacked from Debian's package; None if there is neither."""
    kept = KEPT / "usr/bin/prometheus"
    if installed := shutil.which("prometheus") or (kept.exists() and str(kept)):
        return Path(installed)
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return None
    say("demo: downloads Debian's package of Prometheus, 40 MB")
    KEPT.mkdir(parents=True, exist_ok=True)
    quiet: dict[str, Any] = {"cwd": KEPT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        subprocess.run(["apt-get", "download", "prometheus"], timeout=PACKAGE_LIMIT, check=False, **quiet)
    except subprocess.TimeoutExpired:
        return None
    packages = sorted(KEPT.glob("prometheus_*.deb"))
    if packages:
        subprocess.run(["dpkg", "-x", packages[-1], KEPT], check=False, **quiet)
    return kept if kept.exists() else None


def free_port() -> int:
    """Return a port of loopback that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def at_end(action: Any) -> None:
    """Set what happens at Ctrl-C, at a signal to end, and when the terminal is closed."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, action)


def taken_port(host: str, ports: Iterable[int]) -> str:
    """Return why a port cannot be listened on; empty if all can."""
    for port in ports:
        try:
            socket.create_server((host, port)).close()
        except OSError as problem:
            return f"{host}:{port}: {os.strerror(problem.errno or 0)}"
    return ""


def start_agents(made: list[Node], host: str, first: int, running: list[subprocess.Popen[bytes]]) -> dict[str, int]:
    """Start an agent for each node, and add it to `running`; return the ports by name: from `first` on, or any if 0."""
    ports = {node.name: first + number if first else free_port() for number, node in enumerate(made)}
    words = ("--sink", "prometheus", "--interval", "5")
    listen = "CHIPWATCH_SINKS__PROMETHEUS__LISTEN"
    running.extend(node.start(*words, **{listen: f"{host}:{ports[node.name]}"}) for node in made)
    return ports


def settings(folder: Path, host: str, ports: dict[str, int]) -> None:
    """Write Prometheus' configuration, its targets, its rules and the page that draws the dashboards into `folder`."""
    shutil.copy(STACK / "prometheus.yml", folder)
    targets = [{"targets": [f"{host}:{port}"], "labels": {"instance": name}} for name, port in ports.items()]
    (folder / "targets.json").write_text(json.dumps(targets))
    (folder / "rules").mkdir()
    for name in ("alerts.json", "records.json"):
        shutil.copy(RULES / name, folder / "rules")
    (page := folder / "page").mkdir()
    shutil.copy(STACK / "page.html", page / "index.html")
    drawing = Path(chipwatch.__file__).parent / "show/report/page/uplot"
    for file in (*drawing.glob("uPlot*"), *BOARDS.glob("*.json")):
        shutil.copy(file, page)


def start_prometheus(program: Path, folder: Path, listen: str) -> subprocess.Popen[bytes]:
    """Start Prometheus with its data in `folder`; it serves the page of the dashboards at /user/."""
    words = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={listen}", f"--web.user-assets={folder}/page"]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def start_grafana(folder: Path, port: int, store: str) -> subprocess.Popen[bytes] | None:
    """Start a Grafana of this machine with the dashboards; None if there is none."""
    program = shutil.which("grafana-server") or shutil.which("grafana")
    if not program:
        return None
    home = os.environ.get("GF_PATHS_HOME", "/usr/share/grafana")
    sources, boards = folder / "grafana/datasources", folder / "grafana/dashboards"
    sources.mkdir(parents=True)
    boards.mkdir()
    text = (STACK / "grafana/datasources/prometheus.yml").read_text().replace("http://prometheus:9090", store)
    (sources / "prometheus.yml").write_text(text)
    text = (STACK / "grafana/dashboards/chipwatch.yml").read_text().replace("/dashboards", str(BOARDS))
    (boards / "chipwatch.yml").write_text(text)
    env = {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1", "GF_SERVER_HTTP_PORT": str(port), "GF_PATHS_DATA": str(folder / "grafana"),
        "GF_PATHS_PROVISIONING": str(folder / "grafana"), "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(BOARDS / "fleet.json"), "GF_ANALYTICS_REPORTING_ENABLED": "false",
    }  # fmt: skip
    words = [program, *(["server"] if program.endswith("grafana") else []), "--homepath", home]
    with (folder / "grafana.log").open("wb") as log:
        return subprocess.Popen(words, env={**os.environ, **env}, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def answers(store: str, query: str) -> bool:
    """Return whether Prometheus has a value for a query."""
    address = f"{store}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(json.load(answer)["data"]["result"])
    except (OSError, ValueError, KeyError):
        return False


def run(folder: Path, given: argparse.Namespace) -> int:
    """Start all, say where it is, and stop all at Ctrl-C or after `--seconds`."""
    begun, program = time.monotonic(), None if given.agents else prometheus()
    if not (given.agents or program):
        say(NO_PROMETHEUS)
        return 1
    wanted = [*range(given.port, given.port + given.nodes)] if given.port else []
    if why := taken_port(given.listen, [*wanted, *([given.prometheus] if given.prometheus else [])]):
        say(f"demo: {why}; end the program that listens there, or choose others with --port, or any without it")
        return 1
    end = begun + given.seconds if given.seconds else float("inf")
    host = given.listen.replace("0.0.0.0", "127.0.0.1")  # what to open where all addresses are listened on
    running: list[subprocess.Popen[bytes]] = []
    try:
        made = nodes(folder, given.nodes)
        if not made[0].has_gpus:
            say("demo: no C compiler (cc), so no fake driver: the nodes have no GPUs")
        ports = start_agents(made, given.listen, given.port, running)
        pages = ", ".join(f"http://{host}:{port}/metrics" for port in ports.values())
        say(f"demo: {len(made)} agents serve {pages}")
        if program:
            port, face = given.prometheus or free_port(), free_port()
            store = f"http://{host}:{port}"
            settings(folder, host, ports)
            running.append(start_prometheus(program, folder, f"{given.listen}:{port}"))
            say(f"demo: Prometheus at {store}, rules at {store}/alerts")
            if grafana := start_grafana(folder, face, store):
                running.append(grafana)
                say(f"demo: Grafana starts at http://127.0.0.1:{face}")
            query = (
                "count(gpu_utilization_ratio or cpu_utilization_ratio) and count(rate(network_sent_bytes_total[20s]))"
            )
            while not (ready := answers(store, query)) and time.monotonic() < end:
                keep_up(made, running, folder)
            if ready:
                say(f"demo: ready after {time.monotonic() - begun:.0f} s: open {store}/user/ ; Ctrl-C stops all")
                say("demo: that page draws the dashboards from the files for Grafana; it is not Grafana")
        while time.monotonic() < end:
            keep_up(made, running, folder)
    except KeyboardInterrupt:
        pass
    finally:
        at_end(signal.SIG_IGN)  # another one must not leave programs or files
        stop(running)
        say("demo: all is stopped")
    return 0


def look(folder: Path) -> int:
    """Start one node and its agent, and a shell whose chipwatch reads that node; stop all when the shell ends."""
    (node,) = nodes(folder, 1)
    if not node.has_gpus:
        say("demo-node: no C compiler (cc), so no fake driver: the node has no GPUs")
    agent = node.start(
        "--sink", "prometheus", "--interval", "2", CHIPWATCH_SINKS__PROMETHEUS__LISTEN=f"127.0.0.1:{free_port()}"
    )
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(1):
            node.load()

    threading.Thread(target=follow, daemon=True).start()
    env = {**os.environ, **node.environment()}
    env["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    say("demo-node: this shell sees a node with 8 H100 of a fake driver and three jobs; exit ends it. Try:")
    say("  chipwatch, chipwatch jobs, chipwatch top, chipwatch verdict, chipwatch status")
    try:
        signal.signal(signal.SIGINT, lambda *_: None)  # for the programs in the shell, which would inherit SIG_IGN
        return subprocess.run([os.environ.get("SHELL", "/bin/sh")], env=env, check=False).returncode
    finally:
        at_end(signal.SIG_IGN)  # another one must not leave the agent
        ended.set()
        stop([agent])


def keep_up(made: list[Node], running: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Let the nodes follow the time for a second; exit where a program has ended."""
    for process in running:
        if (code := process.poll()) is not None:
            log = max(folder.rglob("*.log"), key=lambda file: file.stat().st_mtime)
            raise SystemExit(f"demo: a program ended with {code}: {log.read_text()[-500:]}")
    for node in made:
        node.load()
    time.sleep(1)


def main() -> int:
    """Run the demo in a folder that is removed at the end."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.partition("\n\n")[0].strip())
    parser.add_argument("--nodes", type=int, default=3, help="nodes of 8 GPUs (3)")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long (never)")
    parser.add_argument("--shell", action="store_true", help="start one node, and a shell whose chipwatch reads it")
    parser.add_argument("--agents", action="store_true", help="start the agents alone")
    parser.add_argument("--prometheus", type=int, default=0, help="port of Prometheus (any)")
    parser.add_argument("--listen", default="127.0.0.1", help="address that all listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port of the first agent (any)")
    given = parser.parse_args()
    at_end(signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="chipwatch-demo-", ignore_cleanup_errors=True) as folder:
        return look(Path(folder)) if given.shell else run(Path(folder), given)


if __name__ == "__main__":
    sys.exit(main())
