"""A real Prometheus scrapes who holds a GPU: dcgm-exporter's dashboard finds its series, and no second counts twice."""

import time

import pytest
from tests.e2e.test_owner_labels import DASHBOARD, FREE, Node
from tests.proof.scraping import LONG, Prometheus

pytestmark = pytest.mark.proof
HELD = 4.0
"""Seconds for which each pod holds the GPU: some scrapes."""
TIMES = '{__name__=~"gpu_(idle|busy)_time_seconds_total", gpu="0"}'


def rises(prometheus):
    """Return the pods of GPU 0 with the seconds that its idle and busy times rose while each held it."""
    found = {}
    for series in prometheus.ask("query", query=f"{TIMES}[10m]")["result"]:
        values = [float(value) for _, value in series["values"]]
        assert values == sorted(values), "it never falls"
        pod = series["metric"].get("pod", FREE)
        found[pod] = found.get(pod, 0.0) + values[-1] - values[0]
    return found


def test_the_dashboard_of_dcgm_exporter_and_the_increases_by_pod(agent, tmp_path, until, programs):
    node = Node(agent, tmp_path, until)
    until(lambda: node.pods("1") == {FREE})
    target = node.url.split("/")[2]
    with Prometheus(programs, tmp_path, target) as prometheus:
        until(lambda: prometheus.value(f"{TIMES.replace('idle|busy', 'idle')}"), LONG)
        begun = time.monotonic()
        for names in ("a",), (), ("b",), ("a",), ():
            node.hold(*names)
            time.sleep(HELD)
        took, rose = time.monotonic() - begun, rises(prometheus)
        assert {*rose} == {"a", "b", FREE}
        assert 0.5 * took < sum(rose.values()) < took + 2.0, "each second is of one of them"
        assert rose["a"] > rose["b"] > 0
        node.hold("a")
        instance = f'instance=~"{target}"'
        for query in DASHBOARD:
            asked = query.replace('instance=~"$instance"', instance).replace('gpu=~"$gpu"', 'gpu=~"0|1"')
            found = until(lambda asked=asked: prometheus.ask("query", query=asked)["result"], LONG)
            pods = {series["metric"].get("pod", FREE) for series in found}
            assert "(" in query or pods >= {FREE}
        names = "container", "pod", "namespace", "device", "modelName", "UUID"
        query = f'avg(avg_over_time(DCGM_FI_DEV_DEC_UTIL{{container!=""}}[1m])) by ({", ".join(names)})'  # OpenCost's
        found = until(lambda: prometheus.ask("query", query=query)["result"], LONG)
        assert {series["metric"]["pod"] for series in found} >= {"a"}
        assert all(len(series["metric"]) == len(names) for series in found)
        assert until(lambda: prometheus.value('DCGM_FI_DEV_GPU_UTIL{pod="a",namespace="team"}') is not None, LONG)
        (one,) = prometheus.ask("query", query='count by (gpu) (DCGM_FI_DEV_POWER_USAGE{gpu="0"})')["result"]
        assert one["value"][1] == "1"
    node.kubelet.stop()
