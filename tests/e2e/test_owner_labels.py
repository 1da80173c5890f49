"""The page of a real agent with a driver and a kubelet: who holds a GPU, as dcgm-exporter says it, through each change."""

import re
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.doubles.kubelet import Server, pod
from tests.doubles.nvml.driver import machine_with
from tests.ports import free_port

EXPECTED = {"namespace", "container", "pod"}
"""The labels that tests/e2e of dcgm-exporter 4.8.2 expects on each metric (expectedLabels of its e2e_suite_test.go)."""
DASHBOARD = (
    'DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}',
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})',
    'DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}',
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})',
    'DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000',
    'DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}',
)
"""The queries of its official dashboard, grafana/dcgm-exporter-dashboard.json, which is 12239 of Grafana's."""
FREE = ""


class Node:
    """An agent on a machine with two H100, and the kubelet's pods."""

    def __init__(self, agent, folder, until, names="dcgm"):
        self.driver, env = machine_with(folder, 2)
        self.until, self.names, self.uuids = until, names, [gpu["uuid"] for gpu in self.driver.gpus]
        self.kubelet = Server(folder / "kubelet.sock", b"")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/metrics"
        env |= {
            "CHIPWATCH_SINKS__PROMETHEUS__LISTEN": f"127.0.0.1:{port}",
            "CHIPWATCH_COLLECTORS__JOBS__KUBELET": folder / "kubelet.sock",
        }
        words = ("--sink", "prometheus", "--names", names, "--level", "all", "--interval", "0.2")
        self.agent = agent.start(*words, "--collector", "nvidia", "--collector", "jobs", env=env)

    def scrape(self):
        """Return the samples of the page: the name and the labels."""
        try:
            with urllib.request.urlopen(self.url, timeout=30) as answer:
                text = answer.read().decode()
        except OSError:  # it starts
            return []
        return [each for family in text_string_to_metric_families(text) for each in family.samples]

    def pods(self, gpu="0"):
        """Return who holds a GPU by each of its series, which all say the same."""
        named = {}
        for sample in self.scrape():
            if sample.name.startswith("DCGM_FI_DEV") and sample.labels["gpu"] == gpu:
                labels = {key: word for key, word in sample.labels.items() if key not in {"cause", "link"}}
                named.setdefault(sample.name, set()).add(labels.get("pod", FREE))
        assert len({*map(frozenset, named.values())}) <= 1, named
        return next(iter(named.values()), set())

    def hold(self, *names):
        """Give GPU 0 to pods; scrape until the page says so, and look that nothing else is on it meanwhile."""
        before, after = self.pods(), {*names} or {FREE}
        self.kubelet.answer = b"".join(pod("team", name, "main", "nvidia.com/gpu", self.uuids[0]) for name in names)

        def has_come():
            now = self.pods()
            assert now in (before, after)
            return now == after

        self.until(has_come)


@pytest.fixture(params=["dcgm", "dcgm,dcgm4.7"])
def node(agent, tmp_path, until, request):
    made = Node(agent, tmp_path, until, request.param)
    until(lambda: made.pods("1") == {FREE})
    yield made
    made.kubelet.stop()


def test_the_page_follows_the_pods_of_a_gpu_without_overlap_or_gap(node):
    for names in ("a",), ("b",), (), ("a", "b"), ("b",), ("c",):
        node.hold(*names)
        assert node.pods("1") == {FREE}
    held = [sample for sample in node.scrape() if sample.name.startswith("DCGM_") and sample.labels["gpu"] == "0"]
    assert all(sample.labels.keys() >= EXPECTED and all(sample.labels.values()) for sample in held)
    (power,) = (sample.labels for sample in held if sample.name == "DCGM_FI_DEV_POWER_USAGE")
    assert power == {
        "gpu": "0", "device": "nvidia0", "UUID": node.uuids[0], "modelName": node.driver.gpus[0]["name"],
        "DCGM_FI_DRIVER_VERSION": node.driver.machine["driver"], "pod": "c", "namespace": "team", "container": "main",
    }  # fmt: skip
    names = {sample.name for sample in held}
    assert ("DCGM_FI_DEV_BOARD_POWER_WATTS" in names) == (node.names != "dcgm")
    assert {name for query in DASHBOARD for name in re.findall(r"DCGM_\w+", query)} <= names
