"""`chipwatch top --once` and `chipwatch jobs` ask a real Prometheus that scrapes nodes, and three real agents by their pages."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.doubles.fleet import FINE, PAGE, FleetDouble, answer
from tests.ports import free_port
from tests.proof.scraping import LONG, Prometheus, start

from chipwatch.show.fleet.poll import Access
from chipwatch.show.fleet.store import PromStore

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(sys.platform != "linux", reason="every address of 127.0.0.0/8 is this machine's on Linux"),
]
BORN = time.monotonic()


def page(address, past=None):
    """Return the page of a node whose job keeps six accelerators busy and waits with one for data."""
    past = time.monotonic() - BORN if past is None else past
    body = PAGE if address.endswith(".3") else FINE
    for name, rate in (('job_gpu_time_seconds_total{job="41337",user="ada",state="busy"}', 6),
                       ('job_gpu_time_seconds_total{job="41337",user="ada",state="stalled"}', 1)):  # fmt: skip
        body = re.sub(re.escape(name).encode() + rb" .*", f"{name} {1000 + rate * past}".encode(), body)
    stalled = b'gpu_count{state="busy"} 6.0\ngpu_count{cause="data",state="stalled"} 1.0'
    return answer(body.replace(b'gpu_count{state="busy"} 7.0', stalled))


def nodes_of(agent, *words):
    done = agent.run("top", "--json", *words)
    nodes = {node["node"]: node for node in json.loads(done.stdout)["nodes"]}
    is_silent, is_unfit = (
        {word in node.values() or word in node for node in nodes.values()} for word in ("error", "not fit")
    )
    assert done.returncode == (1 if True in is_silent else 3 if True in is_unfit else 0), done.stderr
    return nodes


def test_a_prometheus_shows_the_fleet_and_its_jobs(programs, agent, until, tmp_path):
    port, gone = free_port(), []
    running = start(agent, port, "--interval", "1", "--collector", "cpu")
    with FleetDouble(lambda address: answer(b"", "503 x") if address in gone else page(address)) as double:
        targets = [f"127.0.0.{n}:{double.port}" for n in (2, 3, 4)] + [f"localhost:{port}"]
        with Prometheus(programs, tmp_path, "", static_configs=[{"targets": targets}]) as server:
            url = f"http://127.0.0.1:{server.port}"
            until(lambda: server.value("count(up == 1)") == 4, LONG)
            until(lambda: nodes_of(agent, "--prometheus", url).get("127.0.0.2", {}).get("idle"), LONG)
            nodes = nodes_of(agent, "--prometheus", url)
            assert {name: node.get("verdict") for name, node in nodes.items()} == {
                "127.0.0.2": None, "127.0.0.3": "not fit", "127.0.0.4": None, "localhost": None,
            }  # fmt: skip
            fine = nodes["127.0.0.2"]
            assert (fine["gpus"], fine["busy"], fine["jobs"], fine["users"]) == (8, 6, ["41337"], ["ada"])
            assert fine["idle"] == {"data": 1, "free": 1}
            assert fine["delivery"] == "ok"
            assert 0 < nodes["localhost"]["cpu"] <= 100
            gone.append("127.0.0.4")
            until(lambda: nodes_of(agent, "--prometheus", url)["127.0.0.4"].get("error"), LONG)
            (job,) = json.loads(agent.run("jobs", "--prometheus", url, "--json").stdout)["jobs"]
            assert (job["job"], job["user"]) == ("41337", "ada")
            assert 4 < job["seconds"]["busy"] / job["seconds"]["stalled"] < 8
            assert time.time() - 120 < job["since"] <= job["until"] <= time.time()
    assert running.stop()[0] == 0


def test_a_fleet_of_fifty_that_is_scraped_twice_counts_once(programs, agent, until, tmp_path):
    twins = ("127.0.0.61", "127.0.0.62")  # their counters differ by a day

    def served(address):
        body = page(address, 86_400 * (address == twins[1]) + time.monotonic() - BORN)
        return body.replace(b'"41337"', b'"99999"') if address in twins else body

    with FleetDouble(served) as double:
        targets = [f"127.0.0.{number}:{double.port}" for number in range(1, 51)]
        groups = [
            {"targets": targets},
            {"targets": targets, "labels": {"job": "again"}},
            {"targets": [f"{address}:{double.port}" for address in twins], "labels": {"instance": "twins"}},
        ]
        with Prometheus(programs, tmp_path, "", static_configs=groups) as server:
            url = f"http://127.0.0.1:{server.port}"
            until(lambda: (server.value("min(count_over_time(up[1m]))") or 0) > 5, LONG)
            nodes = nodes_of(agent, "--prometheus", url)
            twin = nodes.pop("twins")
            assert len(nodes) == 50
            assert sum(node["gpus"] for node in nodes.values()) == 400
            for node in (twin, *nodes.values()):  # the store mixes the twins, whose states are numbers of a moment
                assert node["busy"] == 6
                assert node["busy"] + node.get("lost", 0) + sum(node["idle"].values()) == node["gpus"] == 8
            records = json.loads(agent.run("jobs", "--prometheus", url, "--json").stdout)["jobs"]
            (job,) = (record for record in records if record["job"] == "41337")
            assert 50 * 6 * 5 < job["seconds"]["busy"] < 50 * 7 * (time.monotonic() - BORN)


HOUR = 3600
"""Seconds for which the job of 32 nodes runs; it has a page each 15 s."""


def series_of(number):
    """Yield name, labels and the value after a time (s) of each series of a job on a node; of a counter the file has the rate."""
    text = (Path(__file__).parents[1] / "fixtures/fleet/job.txt").read_text()
    late, cause = (3.0, "data") if number == 7 else (0.1 * number / 32, "other")
    for line in text.replace("BUSY", f"{7.5 - late}").replace("LATE", f"{late}").replace("CAUSE", cause).splitlines():
        name, labels, rate = re.fullmatch(r"(\w+)\{(.*)\} (.*)", line).groups()
        yield name, labels, lambda past, rate=float(rate), name=name: rate * past if name.endswith("_total") else rate


def test_the_record_of_a_job_of_32_nodes_in_a_prometheus_is_the_sum_of_what_the_nodes_tell(
    programs, agent, tmp_path, until
):
    begun, families = time.time() - HOUR - 120, {}
    for number in range(2, 34):
        for name, labels, value in series_of(number):
            series = f'{name}{{instance="127.0.0.{number}:9465",{labels.replace("job=", "exported_job=")}}}'
            lines = (f"{series} {value(past)} {begun + past:.3f}\n" for past in range(0, HOUR + 1, 15))
            families.setdefault(name, []).extend(lines)
    kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in families}
    texts = (
        f"# TYPE {name.removesuffix('_total')} {kinds[name]}\n{''.join(lines)}" for name, lines in families.items()
    )
    (tmp_path / "pages.txt").write_text(f"{''.join(texts)}# EOF\n")
    words = ("tsdb", "create-blocks-from", "openmetrics", tmp_path / "pages.txt", tmp_path / "data")
    subprocess.run([programs / "promtool", *words], check=True, capture_output=True)

    def served(address):
        rows = series_of(int(address.split(".")[-1]))
        return answer("".join(f"{name}{{{labels}}} {value(HOUR)}\n" for name, labels, value in rows).encode())

    with FleetDouble(served) as double, Prometheus(programs, tmp_path, "", static_configs=[]) as server:
        until(lambda: server.value("vector(1)") == 1, LONG)
        store = ("--prometheus", f"http://127.0.0.1:{server.port}", "--since", "2h")
        source = PromStore(store[1], Access(), LONG, lambda: None)
        source.start()
        source.recall()
        source.close()
        asked = [
            json.loads(agent.run("jobs", "--json", *words).stdout)["jobs"]
            for words in ((f"127.0.0.[2-33]:{double.port}",), store)
        ]
    loads = [load for _, node, load in source.hour if node == "127.0.0.7"]
    assert (set(loads), len(loads) > 20) == ({56.25}, True), "its last hour"
    (own,), (stored,) = asked
    for field in ("seconds", "idle", "energy", "cost"):
        assert stored[field] == pytest.approx(own[field], rel=0.005)
    assert sum(own["seconds"].values()) == pytest.approx(32 * 8 * HOUR)
    assert (len(own["nodes"]), len(stored["nodes"]), own["missing"], stored["missing"]) == (32, 32, {}, {})
    assert stored["until"] - stored["since"] == pytest.approx(HOUR, abs=120)
    assert stored["worst"] == {"node": "127.0.0.7", "cause": "data", "gpu": "5", "lost": "44 %"}
    assert own["worst"] == {"node": f"127.0.0.7:{double.port}", "cause": "data", "lost": "44 %"}
    assert stored["advice"].endswith("30.0 GiB of 80.0 GiB in use")


def test_a_prometheus_shows_the_utilization_of_dcgm_4_6_and_of_4_7(programs, agent, until, tmp_path):
    folder = Path(__file__).parents[1] / "fixtures/openmetrics"
    pages = {"127.0.0.2": "dcgm_exporter_4.9_dcgm_4.7", "127.0.0.3": "dcgm_exporter_names_of_4.6"}

    def served(address):
        return answer((folder / f"{pages[address]}.prom").read_bytes().replace(b"gpu-17", address.encode()))

    with FleetDouble(served) as double:
        targets = [f"{address}:{double.port}" for address in pages]
        with Prometheus(programs, tmp_path, "", static_configs=[{"targets": targets}]) as server:
            url = f"http://127.0.0.1:{server.port}"
            until(lambda: server.value("count(up == 1)") == 2, LONG)
            nodes = nodes_of(agent, "--prometheus", url)
    assert {name: node["utilization"] for name, node in nodes.items()} == dict.fromkeys(pages, 43.5)
    assert {node["reason"] for node in nodes.values()} == {"gpu 1 had Xid 79; its page does not say when"}


def test_real_agents_are_lines_by_their_pages(agent, until):
    ports = [free_port() for _ in range(3)]
    words = ["--interval", "1", "--level", "detailed", "--collector", "cpu"]
    running = [start(agent, port, *words, STATE_DIRECTORY=agent.folder / f"{port}") for port in ports]
    hosts = [f"localhost:{port}" for port in ports]
    until(lambda: all("cpu" in node for node in nodes_of(agent, *hosts).values()), LONG)
    nodes = nodes_of(agent, *hosts, "localhost:1")
    assert {node.get("delivery") for node in nodes.values()} == {"ok", None}
    assert "nothing listens there" in nodes["localhost:1"]["error"]
    assert {each.stop()[0] for each in running} == {0}
