"""Readers of what tools, runtimes and pages tell."""

import argparse
import json
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.doubles.fake_neuron_monitor import record
from tests.search.corruptions import COMMON, POINTS, window

from chipwatch.collectors import apple, gaudi, intel, ipu
from chipwatch.collectors.intel import xpu_smi
from chipwatch.collectors.jobs import allocations as kubelet
from chipwatch.collectors.neuron import NeuronCollector
from chipwatch.collectors.neuron.monitor import RecordSplitter
from chipwatch.collectors.neuron.records import NeuronRecords
from chipwatch.collectors.openmetrics.endpoint import Endpoint, PageReader
from chipwatch.collectors.tpu import metrics
from chipwatch.collectors.tpu import readings as tpu_readings
from chipwatch.commands import health
from chipwatch.commands.sample import sample_config
from chipwatch.config import load as config
from chipwatch.config.convert import ConfigError
from chipwatch.config.identity.local import Kubernetes
from chipwatch.contract.datapoint import Level
from chipwatch.engine.spool.sqlite import decode_points, encode_points
from chipwatch.host.exposition import ScrapeResponse
from chipwatch.host.gpu_metrics import plausible
from chipwatch.host.last_values import LastValues
from chipwatch.host.mounts import mount_of, mounts
from chipwatch.host.owners import parse as parse_path
from chipwatch.host.process_tree import parse_stat
from chipwatch.service import heartbeat
from chipwatch_sinks.google.history import SentHistory

FIXTURES = Path(__file__).parents[1] / "fixtures"
AT = 1_800_000_000_000_000_000


def seeds(pattern: str, most: int = 20_000) -> list[bytes]:
    """Return the captures of that name, none longer than it need be."""
    found = [path.read_bytes()[:most] for path in sorted(FIXTURES.glob(pattern)) if path.is_file()]
    assert found, pattern
    return found


def targets(_stack: ExitStack, folder: Path) -> Iterator[tuple]:
    """Yield name, captures, reader and documented errors of each."""
    lines = [json.dumps(record(runtimes=2, cores=2, models=1)).encode()]
    lines += [line for data in seeds("neuron/*.json*", 60_000) for line in RecordSplitter([].append).split(data)][:20]
    yield "neuron records", lines, neuron
    yield "intel dump", seeds("intel/*.csv"), lambda data: [*xpu_smi.parse_dump(data)]
    discovery = b'warning\n{"device_list": [{"device_id": 0, "pci_bdf_address": "0000:4D:00.0", "uuid": "x"}]}'
    yield "intel discovery", [discovery], lambda data: [*xpu_smi.parse_discovery(data)]
    fdinfo = b"drm-driver:\ti915\ndrm-pdev:\t0000:00:02.0\ndrm-client-id:\t7\ndrm-engine-render:\t25662044495 ns\n"
    fdinfo += b"drm-total-cycles-ccs:\t99\ndrm-cycles-ccs:\t9\ndrm-resident-vram0:\t12 KiB\n"
    # The caller of `client` skips a file that shows no use of a card.
    yield "intel fdinfo", [fdinfo], intel_fdinfo, (KeyError, ValueError, IndexError)
    yield "apple macmon", seeds("apple/*.json"), apple.parse, (ValueError,)
    entry = b'"PerformanceStatistics" = {"Device Utilization %"=16,"In use system memory"=2363801600}'
    yield "apple ioreg", [entry], lambda data: [*apple.statistics(data)], (ValueError,)
    yield "ipu gcipuinfo", seeds("ipu/*.json"), gcipuinfo, (ValueError, RecursionError)
    yield "gaudi hl-smi", seeds("gaudi/*"), hl_smi
    yield "tpu message", [tpu_message(7.5), tpu_message(2**34)], tpu, (ValueError,)
    yield "kubelet answer", [kubelet_answer()], lambda data: [*kubelet.pod_devices(data)], (ValueError,)
    paths = [case["cgroup"].encode() for case in json.loads((FIXTURES / "owners.json").read_text())]
    yield "cgroup path", paths, lambda data: parse_path(os.fsdecode(data))
    pages = [page[:4000] for page in seeds("openmetrics/*")]
    yield "openmetrics page", [*pages, *(page + b"\n# EOF\n" for page in pages)], openmetrics()
    yield "proc mountinfo", seeds("**/*mountinfo", 4000), lambda data: [mount_of("/var/lib", mounts(data))]
    yield "proc stat", seeds("process/*.stat"), lambda data: [parse_stat(data)], (ValueError,)
    yield "kubernetes namespace", [b"default", b"kube-system\n"], kubernetes(folder)
    body = encode_points(window(0), COMMON)
    yield "chunk decode", [body, encode_points(window(50), None)], chunk_of, (LookupError,)
    yield "memo google", [_history()], lambda data: SentHistory().load(data)
    yield "memo heartbeat", [json.dumps({"at": 5.5, "late": 3.0, "why": "no", "pid": 7}).encode()], heart(folder)
    toml = [sample_config().encode(), _uncommented(sample_config())]
    yield "config toml", toml, toml_file(folder), (ConfigError,)


def neuron(data: bytes) -> Iterator[object]:
    records = NeuronRecords(
        NeuronCollector.Config(neuron_runtime_tag=True), Level.ALL, LastValues(None, "neuron", Path("/nowhere"))
    )
    for line in RecordSplitter(records.reader.report).split(data + b"\n"):
        records.take(line, 1.0, AT, AT - 10**9)
    yield from records.points(AT, 1.0)
    assert all(text.isprintable() for text in records.reader.take_problems())


def intel_fdinfo(data: bytes) -> list[object]:
    lines = data.decode(errors="replace").splitlines()
    return [intel.parse_client(1, {key: value.strip() for key, _, value in (line.partition(":") for line in lines)})]


def gcipuinfo(data: bytes) -> Iterator[object]:
    problems: list[str] = []
    devices = json.loads(data.decode(errors="replace"))
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict):
            yield from ipu.values(device, problems)
    assert all(text.isprintable() for text in problems), problems


def hl_smi(data: bytes) -> Iterator[object]:
    source = gaudi.HlSmi(Path("hl-smi"), 5.0, lambda: 1.0)
    problems: list[str] = []
    source._take_lines(data.splitlines(), 1.0, problems)
    assert all(text.isprintable() for text in problems), problems
    for _, _, row in source._values.values():
        yield from plausible(row).items()


def kubelet_answer() -> bytes:
    """Return an answer about a pod with two GPUs, as the kubelet encodes it."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    devices = field(1, b"nvidia.com/gpu") + field(2, b"GPU-1") + field(2, b"GPU-2")
    return field(1, field(1, b"train-0") + field(2, b"team") + field(3, field(1, b"main") + field(2, devices)))


def tpu_message(value: float) -> bytes:
    """Return a response about two devices, as the runtime encodes it."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    gauges = b"\x09" + struct.pack("<d", value)
    metrics = [field(1, field(2, b"\x18" + bytes([n]))) + field(3, gauges) for n in range(2)]
    return field(1, b"".join(field(3, metric) for metric in metrics))


def tpu(data: bytes) -> Iterator[object]:
    values = metrics.gauges(data)
    problems: list[str] = []
    names = (metrics.MEMORY_USED, metrics.MEMORY_TOTAL, metrics.DUTY_CYCLE, metrics.TENSORCORE)
    for metric, _, value in tpu_readings(dict.fromkeys(names, values), 1, problems):
        yield metric, value


def openmetrics():
    reader = PageReader("test", Endpoint("http://127.0.0.1/"))

    def read(data: bytes) -> Iterator[object]:
        for is_open in (True, False):
            points, problems = reader.read(ScrapeResponse(data, is_open, whole=True), AT)
            assert all(text.isprintable() for text in problems), problems
            yield from (point for point in points if point.metric.unit != "%")

    return read


def kubernetes(folder: Path):
    path = folder / "namespace"

    def ask(data: bytes) -> Iterator[object]:
        path.write_bytes(data)
        return iter(Kubernetes({"HOSTNAME": "pod"}, folder).ask(["k8s_namespace", "k8s_pod"]).words)

    return ask


def _history() -> bytes:
    history = SentHistory()
    for n, point in enumerate(window(0)):
        history.keep(bytes([n]), history.follow(bytes([n]), point))
    return history.dump()


def chunk_of(data: bytes) -> None:
    decode_points(data, 2 * POINTS)


def heart(folder: Path):
    beat = heartbeat.Heartbeat(folder / heartbeat.NAME, 1.0)
    given = argparse.Namespace(url=None, config=None, spool=folder, health=None, ready=True)

    def ask(data: bytes) -> Iterator[object]:
        assert beat
        (folder / heartbeat.NAME).write_bytes(data)
        return iter(health.probe(given, {}))

    return ask


def _uncommented(text: str) -> bytes:
    """Return a configuration file in which every option that is shown stands."""
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    return "\n".join(line for line in lines if line.startswith("[") or " = " in line).encode()


def toml_file(folder: Path):
    path = folder / "config.toml"

    def load(data: bytes) -> None:
        path.write_bytes(data)
        config.load(path, {}, {})

    return load
