"""Debian's node_exporter and the agent read the same files, and this machine at the same moment: the same values."""

import json
import re
import shutil
import subprocess
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.agent.collectors.test_storage import MOUNTSTATS
from tests.doubles import sysfs
from tests.ports import free_port
from tests.proof import parts

pytestmark = pytest.mark.proof
LONG = 60.0
CAPTURES = ("rdma_mlx5", "rdma_hfi1", "hwmon", "edac")
"""Without drivers that lack the folder `counters`: with one, node_exporter 1.5 reads no port at all."""
SHARED = ("chip", "ieee80211_phy0")
"""The name of three chips at once, which node_exporter 1.5 refuses; ours differ."""
PORTS = re.compile(r"node_infiniband_(port_(data|packets|errors|discards|constraint)_\w+|link_downed_total|rate_\w+)")


@pytest.fixture(scope="module")
def exporter(tmp_path_factory):
    return parts.debian("prometheus-node-exporter", tmp_path_factory.mktemp("debian"))


@pytest.fixture
def theirs(exporter):
    """Start node_exporter with these collectors and paths; return what scrapes it."""
    started = []

    def start(*collectors, **paths):
        port = free_port()
        words = [f"--collector.{name}" for name in collectors] + [f"--path.{key}={path}" for key, path in paths.items()]
        listen = f"--web.listen-address=127.0.0.1:{port}"
        command = [exporter, "--collector.disable-defaults", listen, *words]
        started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))

        def scrape():
            for _ in range(600):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LONG) as page:
                        return values(page.read().decode())
                except OSError:
                    time.sleep(0.1)
            raise TimeoutError("node_exporter does not answer")

        return scrape

    yield start
    for process in started:
        process.terminate()
        process.wait(LONG)


def values(page):
    """Return the values by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@pytest.fixture
def tree(tmp_path):
    sysfs.build(tmp_path / "sys", *CAPTURES)
    process = tmp_path / "proc/1"
    process.mkdir(parents=True)
    (tmp_path / "proc/self").symlink_to("1")
    shutil.copy(MOUNTSTATS, process / "mountstats")
    (process / "mountinfo").write_text("40 21 0:50 / /A rw - nfs 1.2.3.4:/storage/NFS rw\n")
    return tmp_path


@pytest.fixture
def ours(agent):
    env = {"CHIPWATCH_SINKS__STDOUT__ZEROS": "true"}  # node_exporter has events that have not happened, too

    def run(names, *collectors, **paths):
        words = [word for key, path in paths.items() for word in (f"--{key}", path)]
        done = agent.run(
            "--once", "--level", "all", "--names", names, "--collector", ",".join(collectors), *words, env=env
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def by_label(points, *drop):
    return {
        (point["name"], *sorted(pair for pair in point["dims"].items() if pair[0] not in drop)): point["value"]
        for point in points
    }


def test_ports_of_the_fabric_sensors_and_memory_have_the_same_values(theirs, ours, tree):
    scraped = theirs("infiniband", "hwmon", "edac", sysfs=tree / "sys", procfs=tree / "proc")()
    found = by_label(ours("node", "rdma", "hardware", proc=tree / "proc", sys=tree / "sys"), "label")
    sensors = {"node_hwmon_temp_celsius", "node_hwmon_fan_rpm"}
    same = {key: value for key, value in scraped.items() if key[0] in sensors and SHARED not in key}
    same |= {key: value for key, value in scraped.items() if PORTS.fullmatch(key[0])}
    assert len(same) > 30
    assert {key: found.get(key) for key in same} == same
    kinds = {"corrected": "node_edac_correctable_errors_total", "uncorrected": "node_edac_uncorrectable_errors_total"}
    for kind, name in kinds.items():
        total = sum(value for key, value in scraped.items() if key[0] == name)
        assert found["memory.errors", ("kind", kind)] == 0 < total  # our sum over controllers begins with the agent


def test_mounts_of_nfs_have_the_same_values(theirs, ours, tree):
    scraped = theirs("mountstats", sysfs=tree / "sys", procfs=tree / "proc")()
    found = by_label(ours("native", "storage", proc=tree / "proc", sys=tree / "sys"))
    for source in ("1.2.3.4:/storage/NFS", "2.2.2.2:/nfsdata/"):
        mount = {key: value for key, value in scraped.items() if ("export", source) in key}

        def total(name, mount=mount):
            return sum(value for key, value in mount.items() if key[0] == f"node_mountstats_nfs_{name}")

        reads = [
            v for k, v in mount.items() if k[0].endswith("operations_requests_total") and ("operation", "READ") in k
        ]
        assert [found["nfs.operations", ("operation", "read"), ("source", source)]] == reads
        assert found["nfs.timeouts", ("source", source)] == total("operations_major_timeouts_total")
        assert found["nfs.read", ("source", source)] == total("total_read_bytes_total")
        assert found["nfs.written", ("source", source)] == total("total_write_bytes_total")
        again = total("operations_transmissions_total") - total("operations_requests_total")
        assert found["nfs.retransmits", ("source", source)] == again


def test_tcp_of_this_machine_is_between_two_scrapes(theirs, ours):
    scrape = theirs("netstat")
    before = scrape()
    found = by_label(ours("node", "network"))
    after = scrape()
    for name in ("Tcp_RetransSegs", "TcpExt_TCPTimeouts", "TcpExt_ListenDrops"):
        key = (f"node_netstat_{name}",)
        assert before[key] <= found[key] <= after[key]


def test_what_this_machine_has_of_the_same_hardware_is_the_same(theirs, ours):
    """On a virtual machine without sensors both are silent."""
    names = ("node_hwmon_temp_celsius", "node_hwmon_fan_rpm", "node_infiniband_link_downed_total")
    scraped = {key for key in theirs("edac", "hwmon", "infiniband")() if key[0] in names}
    assert scraped == {key for key in by_label(ours("node", "rdma", "hardware"), "label") if key[0] in names}
