"""Real and modelled records, mutated: nothing crashes, what comes out is in order, and the next record counts."""

import json
import math
from collections import Counter
from copy import deepcopy
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.doubles.fake_neuron_monitor import record
from tests.examples import examples

from chipwatch.collectors.neuron import NeuronCollector, metrics
from chipwatch.collectors.neuron.monitor import RecordSplitter
from chipwatch.collectors.neuron.records import NeuronRecords
from chipwatch.contract.datapoint import Kind, Level
from chipwatch.host.last_values import LastValues

NEURON = Path(__file__).parents[3] / "fixtures/neuron"
AT = 1_800_000_000_000_000_000
K8S = {"k8s_pod", "k8s_namespace", "k8s_container"}


def seeds():
    yield json.loads((NEURON / "inf1_2022_article.json").read_bytes())
    for path in sorted(NEURON.glob("synthetic_*.jsonl")):
        for line in RecordSplitter([].append).split(path.read_bytes()):
            try:
                yield json.loads(line)
            except ValueError:
                continue
    yield record(runtimes=2, cores=4, models=1) | {
        "neuron_k8s_info": {"neuroncores_k8s_info": {"0": {"pod_name": "p", "namespace": "n", "container_name": ["c"]}}}
    }


SEEDS = [*seeds()]
GOOD = json.dumps(record(runtimes=2, cores=2)).encode()
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=300)
    | st.sampled_from([-1, 0, 101.5, 2**53, 10**400, "", "0", "failed", "p50", "nc_v3.0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def paths(tree, so_far=()):
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner:
        yield (*so_far, key)
        yield from paths(value, (*so_far, key))


@st.composite
def trees(draw):
    """A record in which some parts are replaced, removed, doubled or renamed."""
    tree = deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 5))):
        places = [*paths(tree)]
        if not places:
            break
        *way, last = draw(st.sampled_from(places))
        place = tree
        for key in way:
            place = place[key]
        what = draw(st.sampled_from(["replace", "remove", "double", "rename"]))
        if what == "remove":
            del place[last]
        elif what == "double" and isinstance(place, list):
            place.append(deepcopy(place[last]))
        elif what == "rename" and isinstance(place, dict):
            place[draw(st.text(max_size=20))] = place.pop(last)
        else:
            place[last] = draw(values)
    return json.dumps(tree, ensure_ascii=draw(st.booleans())).encode(errors="replace")


@st.composite
def bytes_(draw):
    """A record in which bytes are replaced, removed or inserted, or that is cut."""
    data = bytearray(json.dumps(draw(st.sampled_from(SEEDS))).encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 20))] = draw(st.binary(max_size=10))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def check(points, tagged):
    known = {(m.name, m.level, frozenset(m.dims)) for m in metrics.declared(tagged=tagged)}
    assert set(Counter((p.metric.name, p.dims) for p in points).values()) <= {1}
    for point in points:
        assert set(point.metric.dims) == set(point.dims)
        assert (point.metric.name, point.metric.level, frozenset(point.dims) - K8S) in known
        assert all(0 < len(value) <= 255 and value.isprintable() for value in point.dims.values())
        assert math.isfinite(point.value)
        assert point.value >= 0
        assert point.metric.unit != "%" or point.value <= 100
        assert (point.start_time is not None) == (point.metric.kind is Kind.COUNTER)
    msgspec.msgpack.encode(
        [(float(p.value), p.at, p.start_time, p.dims.items_sorted) for p in points]
    )  # as the spool does


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    given=st.lists(trees() | bytes_(), min_size=1, max_size=4),
    tagged=st.booleans(),
    ecc=st.sampled_from(["cumulative", "per_period"]),
    level=st.sampled_from(Level),
)
def test_mutated_records_never_raise_and_the_next_record_counts(given, tagged, ecc, level):
    config = NeuronCollector.Config(interval=1.0, neuron_runtime_tag=tagged, ecc=ecc)
    records = NeuronRecords(config, level, LastValues(None, "neuron", Path("/nowhere")))
    counters = {}
    for n, data in enumerate([*given, GOOD], start=1):
        at = AT + n * 10**9
        for line in RecordSplitter(records.reader.report).split(data + b"\n"):
            records.take(line, float(n), at, at - 10**9)
        points = [*records.points(at, float(n))]
        check(points, tagged)
        for point in points:
            if point.metric in (metrics.OUTCOMES, metrics.ERRORS):
                assert point.value >= counters.get((point.metric.name, point.dims), 0), "a count went back"
                counters[point.metric.name, point.dims] = point.value
    whole = {p.dims["neuron_core"]: p.value for p in points if p.metric.name == "neuron.core.utilization"}
    assert whole == {"0": 31.25, "1": 32.25}
    assert all(text.isprintable() and len(text) < 300 for text in records.reader.take_problems())


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_records_are_the_same_however_the_pipe_cuts_them(data):
    pretty = json.dumps(record(), indent=1)
    parts = data.draw(st.lists(st.sampled_from(["{}", "text", "", "  ", '{"a": 1}', "{", "}", pretty]), max_size=6))
    whole = "\n".join(parts).encode()
    one = RecordSplitter([].append)
    expected = [*one.split(whole), one.take_rest()]
    other, found, left = RecordSplitter([].append), [], whole
    while left:
        size = data.draw(st.integers(1, 400))
        found += other.split(left[:size])
        left = left[size:]
    assert [*found, other.take_rest()] == expected
