"""The page of `chipwatch report`: its words, tables, events and data, and what hostile recordings do to it."""

import gzip
import json
import re
from base64 import b64encode
from hashlib import sha256

import pytest
from tests.agent.show.report.page.worlds import SECOND, START, counter, data_of, decoded, node, recorded, series, sums

from chipwatch.contract.errors import ConfigError
from chipwatch.history.columns import Event
from chipwatch.show.report.page.build import page
from chipwatch.show.report.page.marks import marks
from chipwatch.show.report.page.usage import ReportedRun, ReportTerms, emissions

SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def text_of(html):
    """Return the words of the page, without tags, styles, data and scripts."""
    body = re.sub(r"(?s)<(style|script)\b.*?</\1>", "", html)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


def events(*columns, **more):
    return [(mark.kind, mark.text, (mark.at - START) // SECOND, (mark.until - START) // SECOND)
            for mark in marks(ReportedRun(recorded(*columns, **more), "a"))]  # fmt: skip


def test_the_headline_says_how_long_how_busy_and_what_it_cost_and_then_the_largest_losses_and_what_to_do():
    words = text_of(page([node()], ReportTerms(3.0, 100.0, "as given")))
    assert "2 GPUs (H100) on node-7 for 2 min: 45 % of 4.0 GPU minutes busy, for $0.20." in words
    assert re.search(r"idle 55 % 2.2 GPU minutes cost \$0.20 \$0.11 idle, at \$3.00 an hour energy [\d.]+ Wh", words)
    assert "no process 50.0 %: 2.0 GPU minutes, $0.10, most on GPU 1 no process was on it" in words
    assert "data 5.0 %: 12.0 GPU seconds, $0.01, most on GPU 0 it waited for data: try more loader workers" in words


@pytest.mark.parametrize(
    ("column", "price", "said"),
    [
        (series("gpu.utilization", [25.0] * 61, gpu="0"), None, "1 GPU on node-7 for 1 min: 25 % of 1.0 GPU minutes busy."),
        (series("gpu.utilization", [25.0] * 61, gpu="0"), None, "unknown 75.0 %"),
        (series("gpu.utilization", [50.0], gpu="0"), 1.0, "for 1.0 s: 50 % of 1.0 GPU seconds busy, for $0.00."),
        (series("cpu.utilization", [10.0, 30.0]), 2.0, "node-7 for 1.0 s; no accelerator was recorded, so --price gives no cost."),
        (series("cpu.utilization", [10.0, 30.0]), 2.0, "CPUs busy 20 %"),
        (series("cpu.utilization", [10.0, 30.0]), None, "CO2 - not counted: no energy of an accelerator was recorded"),
        (series("gpu.utilization", [9.0] * 31 + [None] * 600 + [9.0] * 31, gpu="0"), 2.0, "9 % of 1.0 GPU minutes busy, for $0.37."),
        (series("gpu.utilization", [25.0] * 61, gpu="0"), None, "CO2 - not counted: no energy of an accelerator was recorded"),
    ],
)  # fmt: skip
def test_without_idle_time_the_utilization_says_how_busy_it_was_and_a_host_has_its_own_headline(column, price, said):
    assert said in text_of(page([recorded(column)], ReportTerms(price, 500.0, "as given")))


def test_kernels_that_only_waited_are_busy_time_and_a_loss():
    kinds = [counter("gpu.busy.time", sums([share] * 60), dims={"kind": kind}, gpu="0")
             for kind, share in (("waiting", 0.6), ("compute", 0.2))]  # fmt: skip
    idle = counter("gpu.idle.time", sums([0.2] * 60), cause="data", gpu="0")
    words = text_of(page([recorded(*kinds, idle, series("gpu.utilization", [86.0] * 61, gpu="0"))], ReportTerms()))
    assert "1 GPU on node-7 for 1 min: 80 % of 1.0 GPU minutes busy." in words
    assert "waiting 60.0 %" in words
    assert "data 0:00:12" in words  # idle, by cause: kernels that wait are not idle


def test_energy_has_its_emissions_and_says_if_it_is_by_power():
    busy, power = series("gpu.utilization", [50.0] * 61, gpu="0"), series("gpu.power", [690.0] * 61, gpu="0", unit="W")
    for values, said, grams in ((sums([720.0] * 60), "energy 12.00 Wh", 6), ([7.0] * 61, "11.50 Wh by power", 5.75)):
        columns = busy, power, counter("gpu.energy", values, unit="J", gpu="0")
        words = text_of(page([recorded(*columns)], ReportTerms(None, 500.0, "as given")))
        assert said in words
        assert f"CO2 {grams / 1000} kg 500 g/kWh (as given)" in words


def test_the_parts_of_a_gpu_stand_for_it():
    parts = [series("gpu.utilization", [40.0] * 61, gpu="0", mig=str(n)) for n in range(2)]
    whole = series("gpu.power", [300.0] * 61, gpu="0", unit="W")
    words = text_of(page([recorded(*parts, whole)], ReportTerms(6.0)))
    assert "2 GPUs on node-7 for 1 min: 40 % of 2.0 GPU minutes busy, for $0.10." in words
    assert "cost $0.10 $0.06 idle, at $6.00 an hour" in words


def test_the_cores_of_a_neuron_device_are_one_device_and_several_makers_are_accelerators():
    loads = {"0": 20.0, "1": 60.0}
    cores = [series("neuron.core.utilization", [loads[n]] * 61, neuron_device="0", neuron_core=n) for n in loads]
    alone = text_of(page([recorded(*cores)], ReportTerms()))
    mixed = text_of(page([recorded(*cores, series("tpu.duty_cycle", [80.0] * 61, tpu="0"))], ReportTerms()))
    assert "1 Neuron on node-7 for 1 min: 40 % of 1.0 Neuron minutes busy." in alone
    assert "2 accelerators on node-7 for 1 min: 60 % of 2.0 accelerator minutes busy." in mixed


def test_jobs_of_one_name_in_two_namespaces_have_a_row_each():
    columns = [
        counter("job.gpu.time", sums([1] * 60), state="busy", job="train", namespace=name, part=part)
        for name in ("a", "b") for part in ("x", "y")
    ]  # fmt: skip
    assert "train a 2 min 100 % train b 2 min 100 %" in text_of(page([recorded(*columns)], ReportTerms()))


def test_jobs_have_a_row_with_the_states_of_their_time():
    job = {"job": "41337", "user": "ada"}
    columns = [
        series("job.gpus", [2.0] * 61, **job, source="slurm"),
        counter("job.gpu.time", sums([1.5] * 60), state="busy", **job),
        counter("job.gpu.time", sums([0.5] * 60), state="stalled", **job),
        counter("job.gpu.idle.time", sums([0.5] * 60), cause="data", **job),
        counter("job.cost", sums([0.001] * 60), unit="{USD}", **job),
    ]
    assert "41337 ada 2 min 75 % 25 % data 30 s 2 $0.06" in text_of(page([recorded(*columns)], ReportTerms()))


def test_the_watched_command_has_a_row_of_its_processes():
    columns = [series("process.cpu.utilization", [50.0, 70.0]), series("process.memory.rss", [2.0**30] * 2, unit="By")]
    assert "CPU mean CPU peak memory peak 60 % 70 % 1.0 GiB" in text_of(page([recorded(*columns)], ReportTerms()))


def test_events_are_rises_of_counters_of_trouble_with_their_gpus():
    clock = series("cpu.utilization", [1.0] * 200)
    slow = [0.0] * 50 + [0.5] * 20 + [0.0] * 100 + [0.5] * 3
    assert events(
        clock,
        counter("gpu.xid", [1] * 9, unit="{error}", start=START + 60 * SECOND, gpu="3", xid="79", action="reset_gpu"),
        counter("gpu.throttled", sums(slow), gpu="2", reason="thermal"),
        counter("gpu.throttled", sums(slow[:100]), gpu="11", reason="thermal"),
        counter("gpu.throttled", sums([1] * 9), gpu="1", reason="low_utilization"),
        counter("gpu.throttled", sums([1] * 9), gpu="1", reason="power"),
        counter("rdma.link.downed", [4, 4, 5], unit="{event}", device="mlx5_3", port="1"),
        series("gpu.state", [1.0] * 5 + [0.0] * 3 + [1.0], gpu="5", unit="1"),
    ) == [
        ("quiet", "clocks reduced: power on GPU 1", 1, 9),
        ("bad", "link down: mlx5_3 port 1", 2, 2),
        ("bad", "lost or failing on GPU 5", 5, 7),
        ("odd", "clocks reduced: thermal on GPU 2, 11", 51, 70),
        ("bad", "Xid 79 (reset_gpu) on GPU 3", 60, 60),
        ("odd", "clocks reduced: thermal on GPU 2", 171, 173),
    ]


def test_a_burst_of_writes_while_busy_gpus_stand_still_is_perhaps_a_checkpoint():
    load = [95.0] * 60 + [5.0] * 10 + [95.0] * 60
    writes = counter("disk.written", sums([1e6] * 60 + [9e9] * 10 + [1e6] * 59), unit="By")
    mark = ("info", "writes while the GPUs stand still: a checkpoint?", 61, 69)
    assert events(series("gpu.utilization", load, gpu="0"), writes) == [mark]
    assert events(series("gpu.utilization", [95.0] * 130, gpu="0"), writes) == []


def test_events_that_the_recording_has_stand_in_the_page():
    column = series("cpu.utilization", [1.0] * 9)
    html = page([recorded(column, events=[Event(START + 2 * SECOND, "seal", "asked for by a person")])], ReportTerms())
    assert "2026-11-23 10:42:15 asked for by a person" in text_of(html)
    assert data_of(html)["events"][0]["from"] == 2


def test_a_script_in_a_dimension_is_text():
    hostile = {"gpu": SCRIPT, "model": SCRIPT, "hostname": SCRIPT}
    columns = [
        series("gpu.utilization", [50.0, 60.0], **hostile),
        counter("job.gpu.time", [0, 5], job=SCRIPT, user=SCRIPT, state=SCRIPT),
        counter("gpu.xid", [0, 5], unit="{error}", gpu=SCRIPT, xid=SCRIPT, action="{0.__class__}"),
        series(SCRIPT, [1.0, 2.0], unit=SCRIPT, **{SCRIPT: SCRIPT}),
    ]
    html = page([recorded(*columns, host=SCRIPT, path="x.chipwatch")], ReportTerms(None, 1.0, SCRIPT))
    assert html.count("<script") == html.count("</script") == 2
    assert "<img" not in html
    assert "@@" not in html
    assert "{0.__class__}" in text_of(html)


def test_the_page_allows_its_own_style_and_script_and_nothing_else():
    html = page([node()], ReportTerms())
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    style, script = (re.search(rf"(?s)<{tag}>(.*?)</{tag}>", html)[1] for tag in ("style", "script"))
    hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in (style, script)]
    assert policy.split("; ") == [
        "default-src 'none'", f"style-src {hashes[0]}", f"script-src {hashes[1]}", "img-src data:", "base-uri 'none'",
        "form-action 'none'",
    ]  # fmt: skip
    assert set(re.findall(r'\b(?:src|href)="?([^" >]*)', html)) == {"data:,"}
    assert "url(" not in style
    assert "@import" not in style


def test_odd_numbers_neither_fail_nor_spoil_the_page():
    columns = [
        series("gpu.power", [1e308, -1e308], unit="W"),
        counter("network.sent", [1e308, 0, 1e308], unit="By"),
        series("gpu.temperature", [5e-324, 0.0], unit="Cel"),
        series("gpu.clock.sm", [1.0, 1.0 + 2e-16], unit="MHz"),
        series("cpu.utilization", [-0.0, 3e99, 1.0]),
        series("memory.used", [7.0], unit="By", start=START - 10**18),
        series("", [1.0, 2.0], unit="", **{str(n): "x" * 5000 for n in range(500)}),
    ]
    html = page([recorded(*columns)], ReportTerms())
    assert len(html) < 200_000
    finite = {"gpu.temperature", "gpu.clock.sm", "cpu.utilization", "memory.used", ""}
    assert {chart["metric"] for chart in data_of(html)["charts"]} == finite


def test_nodes_of_one_time_share_the_clock_and_runs_of_several_times_their_start():
    late = START + 50_000 * SECOND
    nodes = data_of(page([node(), node(host="node-8", start=START + 30 * SECOND)], ReportTerms()))
    runs = data_of(page([node(), node(seed=2, start=late)], ReportTerms()))
    assert (nodes["runs"], nodes["start"]) == (["node-7", "node-8"], START / 1e9)
    assert (runs["runs"], runs["start"]) == (["1: node-7.chipwatch", "2: node-7.chipwatch"], None)
    chart = next(chart for chart in nodes["charts"] if chart["metric"] == "gpu.utilization")
    shown = [decoded(one, chart, nodes["count"]) for one in chart["series"]]
    assert [line.index(next(filter(None, line), None)) for line in shown if any(line)] == [0, 30]
    chart = next(chart for chart in runs["charts"] if chart["metric"] == "gpu.utilization")
    assert all(decoded(one, chart, runs["count"])[0] is not None for one in chart["series"])


def test_several_recordings_have_a_table_and_a_sum():
    words = text_of(page([node(), node(host="node-8")], ReportTerms(3.0)))
    assert "4 GPUs (H100) on node-7 and node-8 for 2 min: 45 % of 8.0 GPU minutes busy, for $0.40." in words
    row = r"node-8 node-8.chipwatch 2026-11-23 10:42:13 2 min 2 45 % no process 50 % [\d.]+ Wh \$0.20"
    assert re.search(row, words)
    assert "Processes" not in words  # none was recorded


@pytest.mark.parametrize(
    ("word", "grams", "source"),
    [
        ("380.5", 380.5, "as given"),
        ("de", 381, "DE, mean of 2023, Ember by Our World in Data"),
        ("eu-central-1", 381, "DE, mean of 2023, Ember by Our World in Data"),
        ("europe-west9", 34, "europe-west9, mean of 2023, Google"),
    ],
)
def test_a_grid_is_a_number_a_country_or_a_region(word, grams, source):
    assert emissions(word) == (grams, source)


@pytest.mark.parametrize("word", ["", "atlantis", "-3", "nan", "inf", "1e3", "1.2.3"])
def test_an_unknown_grid_is_refused(word):
    with pytest.raises(ConfigError, match="--grid"):
        emissions(word)


def json_lines(count=60):
    for at in range(count):
        time = f"2026-11-20T10:{at // 60:02}:{at % 60:02}Z"
        yield json.dumps({"time": time, "name": "gpu.utilization", "kind": "gauge", "unit": "%", "value": 50 + at % 2,
                          "dims": {"gpu": "0", "hostname": "trn-7"}})  # fmt: skip


def test_the_command_writes_the_page_of_json_lines(here, tmp_path):
    (tmp_path / "run.jsonl.gz").write_bytes(gzip.compress("\n".join(["{", *json_lines()]).encode()))
    output = tmp_path / "out\033.html"
    done = here("report", tmp_path / "run.jsonl.gz", "-o", output, "--price", "2", "--grid", "FR")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path}/out\\x1b.html: 0.1 MB; open it in a browser\n"
    assert "1 GPU on trn-7 for 59 s: 51 % of 59.0 GPU seconds busy, for $0.03." in text_of(output.read_text())
    assert "lines not read" in text_of(output.read_text())


@pytest.mark.parametrize(
    "mistake",
    [
        (["report"], 2, "FILE is missing"),
        (["report", "none.chipwatch"], 1, "none.chipwatch: No such file or directory"),
        (["report", "run.jsonl", "--grid", "atlantis"], 2, "--grid atlantis: expected grams of CO2 a kWh"),
        (["report", "run.jsonl", "--price", "cheap"], 2, "--price cheap"),
        (["report", "run.jsonl", "-o", "run.jsonl"], 2, "--output run.jsonl: this is a recording"),
        (["report", "run.jsonl", "-o", "no/folder.html"], 1, "--output no/folder.html: No such file or directory"),
        (["report", "empty"], 1, "empty: "),
        (["report", "bomb"], 1, "bomb: it holds no sample"),
        (["report", *[f"{n}.jsonl" for n in range(65)]], 2, "65 recordings; a page shows at most 64"),
    ],
)
def test_a_mistake_is_one_clear_line(here, tmp_path, monkeypatch, mistake):
    words, code, message = mistake
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.jsonl").write_text("\n".join(json_lines(3)))
    (tmp_path / "empty").touch()
    if "bomb" in words:
        (tmp_path / "bomb").write_bytes(gzip.compress(b'{"chipwatch":1,"started":1}\n' + b"\0" * 100_000_000, 1))
    if "64.jsonl" in words:
        for name in words[1:]:
            (tmp_path / name).symlink_to("run.jsonl")
    done = here(*words)
    assert done.returncode == code
    assert done.stderr.startswith("chipwatch: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "report.html").exists()
