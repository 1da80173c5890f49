"""Debian's Prometheus scrapes the agent, over TLS with a password, and knows what standard output printed."""

import http.client
import os
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import bcrypt
import pytest
import yaml
from tests.certificates import Authority
from tests.ports import free_port
from tests.proof.scraping import LONG, Prometheus, start

from chipwatch_sinks.prometheus import TEXT

pytestmark = pytest.mark.proof
SECONDS = float(os.environ.get("PROOF_SECONDS", "20"))
"""Run time of the counter with resets, in seconds."""


def test_values_over_tls_with_a_password_equal_the_values_on_standard_output(programs, agent, until, tmp_path):
    authority, port = Authority(tmp_path), free_port()
    certificate, key = authority.sign("server")
    users = {"prom": bcrypt.hashpw(b"sesame", bcrypt.gensalt(10)).decode()}
    web = tmp_path / "web.yml"
    web.write_text(
        yaml.safe_dump(
            {"tls_server_config": {"cert_file": str(certificate), "key_file": str(key)}, "basic_auth_users": users}
        )
    )
    web.chmod(0o600)
    running = start(
        agent, port, "--interval", "5", "--level", "all", "--dim", 'site=a"b\\c',
        CHIPWATCH_SINKS__PROMETHEUS__WEB_CONFIG_FILE=str(web),
    )  # fmt: skip
    scrape = {
        "scheme": "https",
        "tls_config": {"ca_file": str(authority.file)},
        "basic_auth": {"username": "prom", "password": "sesame"},
    }
    with Prometheus(programs, tmp_path, f"127.0.0.1:{port}", **scrape) as server:
        until(lambda: server.value("up") == 1, LONG)
        assert server.ask("series", **{"match[]": "target_info"})[0]["site"] == 'a"b\\c'

        def equal():
            """Tell whether all values of one tick, as printed, equal the values of one scrape."""
            printed = {}
            for point in running.points():
                printed.setdefault(point["time"], {})[point["name"], *point["dims"].values()] = point["value"]
            disk = {
                tick["disk.used", "/", 'a"b\\c'] for tick in printed.values() if ("disk.used", "/", 'a"b\\c') in tick
            }
            used = {tick["memory.used", 'a"b\\c'] for tick in printed.values() if ("memory.used", 'a"b\\c') in tick}
            return server.value('disk_used_bytes{path="/"}') in disk and server.value("memory_used_bytes") in used

        until(equal, LONG)
        told = {of["metric"]: of for of in server.ask("targets/metadata")}
        assert (told["memory_used_bytes"]["type"], told["memory_used_bytes"]["unit"]) == ("gauge", "bytes")
    assert running.stop()[0] == 0


@pytest.mark.parametrize("names", ["native", "dcgm", "node"])
def test_promtool_has_nothing_to_say_of_the_page(programs, agent, until, names):
    port = free_port()
    running = start(agent, port, "--interval", "0.5", "--level", "all", "--names", names)

    def scraped(accept):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
        try:
            connection.request("GET", "/metrics", headers={"Accept": accept})
            answer = connection.getresponse()
            return answer.status == 200 and answer.read()
        except ConnectionRefusedError:
            return None
        finally:
            connection.close()

    page = until(lambda: (body := scraped(TEXT)) and b"cpu" in body and body)
    done = subprocess.run([programs / "promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    lint = [line for line in done.stderr.decode().splitlines() if not line.startswith("node_")]  # names of theirs
    assert (done.returncode in (0, 3), lint) == (True, [])
    assert running.stop()[0] == 0


RESETS = Path(__file__).with_name("resets.txt").read_text()


def test_the_increase_of_a_counter_that_resets_is_the_same(programs, agent, until, tmp_path, plugins_folder):
    plugins_folder.add("proof_steps", RESETS, collectors=[("steps", "StepsCollector")])
    port = free_port()
    running = start(agent, port, "--interval", "2", "--collector", "steps", PYTHONPATH=str(plugins_folder.folder))
    with Prometheus(programs, tmp_path, f"127.0.0.1:{port}") as server:
        until(lambda: server.value("proof_steps_total") is not None, LONG)
        time.sleep(SECONDS)  # that long the counter runs
        found = server.ask("query", query=f"proof_steps_total[{int(SECONDS)}s]")["result"][0]["values"]
        ticks = [float(value) for n, (_, value) in enumerate(found) if n == 0 or value != found[n - 1][1]]

        def printed():
            """Return the points of those ticks; None while the last is not printed."""
            points = [point for point in running.points() if point["name"] == "proof.steps"]
            parts = (points[n : n + len(ticks)] for n in range(len(points)))
            return next((part for part in parts if [point["value"] for point in part] == ticks), None)

        points = until(printed, LONG)
        rises = sum(after - before if after >= before else after for before, after in pairwise(ticks))
        assert len(ticks) > SECONDS / 2 - 3
        assert sum(point["increase"] for point in points[1:]) == rises
        first, last = found[0][0], found[-1][0]
        span = int(last - first) + 1
        theirs = server.value(f"increase(proof_steps_total[{span}s])", at=last)
        assert theirs == pytest.approx(rises, rel=3 / len(ticks))  # Prometheus extrapolates to the ends of the range
    assert running.stop()[0] == 0
