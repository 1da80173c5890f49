"""The collector and its scrapes, against real servers on loopback."""

import gzip
import threading
import time
from pathlib import Path

import pytest
from tests.doubles.exporter import OPENMETRICS, Exporter
from tests.load import seconds_since
from tests.told import reading as tick

from chipwatch.collectors.openmetrics import OpenmetricsCollector
from chipwatch.collectors.openmetrics.endpoint import Endpoint
from chipwatch.config.load import ConfigError, convert
from chipwatch.contract.datapoint import Kind
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given

LONG = 60.0
T4 = Path(__file__).parents[3] / "fixtures/openmetrics/dcgm_exporter_t4_gke.prom"
SECRET = "s3cr3t-value"


@pytest.fixture
def exporter():
    with Exporter() as running:
        yield running


@pytest.fixture
def opened(begun):
    def make(**endpoints):
        made = {name: of if isinstance(of, Endpoint) else Endpoint(url=of) for name, of in endpoints.items()}
        return begun(OpenmetricsCollector(OpenmetricsCollector.Config(endpoints=made)))

    return make


def until(collector, *, points=False, problems=False):
    """Collect until there are points (or problems); return both."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        found = tick(collector)
        if (points and found[0]) or (problems and found[1]):
            return found
    raise AssertionError("neither came")


def test_without_an_endpoint_the_collector_is_unavailable():
    with pytest.raises(Unavailable, match=r"\[collectors\.openmetrics\.endpoints\.NAME\]"):
        OpenmetricsCollector(OpenmetricsCollector.Config()).open(Given())


def test_names_and_labels_are_kept_and_empty_labels_are_absent(exporter, opened):
    exporter.page = T4.read_text()
    points, problems = until(opened(dcgm=exporter.url), points=True)
    assert problems == []
    power = [p for p in points if p.metric.name == "DCGM_FI_DEV_POWER_USAGE"]
    assert power[0].value == 30.137
    assert dict(power[0].dims) == {
        "endpoint": "dcgm", "gpu": "0", "UUID": "GPU-c601d117-58ff-cd30-ae20-529ab192ba51", "device": "nvidia0",
        "modelName": "Tesla T4", "Hostname": "gke-gke-dcgm-default-pool-eb7746d2-6vkd",
    }  # fmt: skip
    assert tuple(power[0].dims) == power[0].metric.dims
    assert power[0].metric.help == "Power draw (in W)."
    assert {p.at for p in points} == {7}


def test_the_format_is_negotiated(exporter, opened):
    exporter.page, exporter.kind, exporter.zipped = (
        "# TYPE a counter\na_total 5\na_created 2\n# EOF\n",
        OPENMETRICS,
        True,
    )
    points, problems = until(opened(e=exporter.url), points=True)
    assert (problems, [(p.metric.kind, p.value, p.start_time) for p in points]) == ([], [(Kind.COUNTER, 5, 7)])
    asked = exporter.requests[0]
    assert asked["accept"].startswith("application/openmetrics-text;version=1.0.0")
    assert "text/plain;version=0.0.4" in asked["accept"]
    assert (asked["accept-encoding"], asked["path"]) == ("gzip", "/metrics")


TROUBLES = {
    "hang": "no complete answer in 0.3 s",
    "trickle_head": "no complete answer in 0.3 s",
    "trickle_body": "no complete answer in 0.3 s",
    "promise_more": "the answer is incomplete",
    "promise_huge": "the answer has more than 100000 bytes (max_bytes)",
    "huge": "the answer has more than 100000 bytes (max_bytes)",
    "bomb": "the answer has more than 100000 bytes (max_bytes)",
    "cut_gzip": "the answer is incomplete",
    "no_gzip": "the answer is not gzip, though its Content-Encoding says so",
    "fail": "the answer has the status 500",
    "html": "the answer is text/html, not metrics",
    "redirect": "the answer is a redirect, which is not followed",
    "no_http": "the answer is not valid HTTP (BadStatusLine)",
}


@pytest.mark.parametrize(("how", "why"), TROUBLES.items())
def test_a_failing_endpoint_is_reported_and_the_others_are_read(exporter, opened, how, why):
    exporter.answer = getattr(exporter, how)
    timeout = 0.3 if why.startswith("no complete") else LONG
    with Exporter("fine 1\n") as other:
        collector = opened(bad=Endpoint(exporter.url, timeout=timeout, max_bytes=100_000), good=other.url)
        points = until(collector, points=True)[0]
        problems = until(collector, problems=True)[1]
    assert [p.metric.name for p in points] == ["fine"]
    assert problems == [f"endpoint bad ({exporter.url}): {why}"]
    assert exporter.sent < 50_000_000


def zipped(exporter, body):
    def send(http):
        exporter.head(http, Content_Encoding="gzip", Content_Length=str(len(body)))
        http.wfile.write(body)

    exporter.answer = send


def test_a_page_may_have_several_gzip_members(exporter, opened):
    zipped(exporter, gzip.compress(b"a 1\n") + gzip.compress(b"b 2\n") + gzip.compress(b""))
    assert [p.metric.name for p in until(opened(e=exporter.url), points=True)[0]] == ["a", "b"]


@pytest.mark.parametrize("more", [b"\0" * 5_000_000, b"\x1f\x8b\x08\0\0", b"more"], ids=["zeros", "cut", "text"])
def test_bytes_after_a_gzip_page_are_refused(exporter, opened, more):
    zipped(exporter, gzip.compress(b"a 1\n") + more)
    assert until(opened(e=exporter.url), problems=True)[1] in (
        [f"endpoint e ({exporter.url}): the answer is not gzip, though its Content-Encoding says so"],
        [f"endpoint e ({exporter.url}): the answer is incomplete"],
    )


def test_a_refused_connection_is_reported(opened):
    with Exporter() as gone:
        url = gone.url
    assert until(opened(e=url), problems=True)[1] == [f"endpoint e ({url}): nothing listens there (Connection refused)"]


def test_a_late_page_is_yielded_by_a_later_reading_and_one_scrape_runs_at_a_time(exporter, opened):
    exporter.answer = exporter.hang
    collector = opened(slow=Endpoint(exporter.url, timeout=LONG))
    for _ in range(3):
        assert tick(collector) == ([], [])
    exporter.gate.set()
    assert [p.value for p in until(collector, points=True)[0]] == [1.0]
    assert exporter.most_at_once == 1


def test_a_reading_waits_for_all_endpoints_at_once(exporter, opened):
    exporter.answer = exporter.hang
    collector = opened(**{f"e{n}": Endpoint(exporter.url, timeout=LONG) for n in range(12)})
    begun = time.monotonic()
    tick(collector)
    assert seconds_since(begun) < 4


def test_a_scrape_that_exceeds_its_timeout_is_reported(exporter, opened, monkeypatch):
    collector = opened(e=Endpoint(exporter.url, timeout=0.01))
    gate = threading.Event()
    monkeypatch.setattr("socket.create_connection", lambda *a, **k: gate.wait(LONG))
    try:
        problems = until(collector, problems=True)[1]
    finally:
        gate.set()
    assert problems == [f"endpoint e ({exporter.url}): a scrape does not return"]


def test_an_endpoint_has_its_own_interval(exporter, opened):
    collector = opened(e=Endpoint(exporter.url, interval=1000))
    until(collector, points=True)
    assert [tick(collector) for _ in range(3)] == [([], [])] * 3
    assert len(exporter.requests) == 1


def test_headers_come_from_the_environment_or_a_file_and_are_never_printed(exporter, opened, tmp_path, monkeypatch):
    monkeypatch.setenv("KEY", SECRET)
    (tmp_path / "token").write_text(f"{SECRET}\n")
    made = Endpoint(
        f"{exporter.url}?key={SECRET}",
        headers={"X-Plain": "yes", "X-Key": {"env": "KEY"}, "X-File": {"file": str(tmp_path / "token")}},
        bearer_token_file=tmp_path / "token",
    )
    collector = opened(e=made)
    until(collector, points=True)
    asked = exporter.requests[0]
    assert (asked["x-plain"], asked["x-key"], asked["x-file"]) == ("yes", SECRET, SECRET)
    assert asked["authorization"] == f"Bearer {SECRET}"
    assert asked["path"] == f"/metrics?key={SECRET}"
    (tmp_path / "token").write_text(f"{SECRET}\nX-Evil: 1\n")
    problems = until(collector, problems=True)[1]
    assert "has characters that HTTP does not allow" in problems[0]
    assert SECRET not in problems[0] + collector.describe()
    (tmp_path / "token").unlink()
    deadline = time.monotonic() + LONG
    while "cannot read" not in until(collector, problems=True)[1][0]:
        assert time.monotonic() < deadline


def test_no_proxy_is_used(exporter, opened, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert until(opened(e=exporter.url), points=True)[0]


def test_describe_returns_what_was_found(exporter, opened):
    exporter.page = "a 1\nb 2\n"
    collector = opened(dcgm=exporter.url)
    assert collector.describe() == "1 endpoint: dcgm (no page)"
    until(collector, points=True)
    assert collector.describe() == "1 endpoint: dcgm (2 series)"
    collector.close()
    assert collector.describe() == ""


def test_a_page_above_the_limit_is_named_in_each_reading_and_all_pages_share_the_room(exporter, opened, monkeypatch):
    monkeypatch.setattr("chipwatch.collectors.openmetrics.MOST_POINTS", 3)
    exporter.page = "a 1\nb 2\nc 3\nd 4\n"
    collector = opened(
        one=Endpoint(exporter.url, max_series=2, interval=LONG), two=Endpoint(exporter.url, interval=LONG)
    )
    limits = ["2 series are taken, up to 2 are left out; raise max_series"]
    limits += ["1 series are taken, up to 3 are left out; a reading takes no more"]
    said = [f"endpoint {name} ({exporter.url}): {text}" for name, text in zip(("one", "two"), limits, strict=True)]
    taken = 0
    for _ in range(1000):
        points, problems = tick(collector)
        taken += len(points)
        if problems == said:
            break
    assert taken <= 3
    assert tick(collector) == ([], said), "also before the next page is due"


WRONG = {
    "url: not a valid URL": {"url": "http://[::1/metrics"},
    "url: expected http": {"url": "file:///etc/passwd"},
    "expected http://HOST": {},
    "it has a user name": {"url": f"http://me:{SECRET}@host/metrics"},
    "percent-encoded": {"url": f"http://host/a b{SECRET}"},
    "is not a regular expression": {"url": "http://h/", "filters": ["(" ]},
    "timeout: expected seconds above 0, at most 86400, got 0": {"url": "http://h/", "timeout": 0},
    "max_series: expected 1 to 20,000, all that a reading takes, got 0": {"url": "http://h/", "max_series": 0},
    "max_series: expected 1 to 20,000, all that a reading takes, got 50,000": {"url": "http://h/", "max_series": 50_000},
    "key_file: cert_file is not set": {"url": "http://h/", "key_file": "/k"},
    "is not a valid name of a header": {"url": "http://h/", "headers": {"a b": "c"}},
    "is set by the agent": {"url": "http://h/", "headers": {"Host": "c"}},
    "expected a text": {"url": "http://h/", "headers": {"X-A": {"vault": SECRET}}},
    "has characters that HTTP does not allow": {"url": "http://h/", "headers": {"X-A": f"{SECRET}\r\nX-B: 1"}},
    "the header Authorization is set too": {"url": "http://h/", "bearer_token_file": "/t", "headers": {"authorization": "x"}},
}  # fmt: skip


@pytest.mark.parametrize(("sentence", "table"), WRONG.items())
def test_an_invalid_option_is_refused_by_its_name_without_secrets(sentence, table):
    with pytest.raises(ConfigError) as refused:
        convert(OpenmetricsCollector.Config, {"endpoints": {"one": table}}, "collectors.openmetrics")
    assert "collectors.openmetrics" in str(refused.value)
    assert "endpoints.one" in str(refused.value)
    assert sentence in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_table_of_the_file_becomes_an_endpoint():
    table = {"url": "http://h:9400/metrics", "filters": {"dcgm.*": {"gpu": "0|1"}}, "interval": 15,
             "headers": {"X-A": {"env": "A"}, "X-B": "b"}, "ca_file": "/ca.pem"}  # fmt: skip
    config = convert(OpenmetricsCollector.Config, {"endpoints": {"dcgm": table}}, "collectors.openmetrics")
    made = config.endpoints["dcgm"]
    assert isinstance(made, Endpoint)
    assert (made.interval, made.ca_file, made.filters) == (15, Path("/ca.pem"), {"dcgm.*": {"gpu": "0|1"}})
    assert "X-A" not in repr(made)


def test_certificates_are_checked_unless_insecure_is_set(opened, tmp_path):
    import shutil
    import ssl
    import subprocess

    if not shutil.which("openssl"):
        pytest.skip("no openssl here")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
         "-out", cert, "-days", "2", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with Exporter("fine 1\n", tls=context) as exporter:
        assert "is not trusted: self" in until(opened(e=exporter.url), problems=True)[1][0]
        for trusting in (Endpoint(exporter.url, ca_file=cert), Endpoint(exporter.url, insecure=True)):
            assert [p.value for p in until(opened(e=trusting), points=True)[0]] == [1.0]
        missing = until(opened(e=Endpoint(exporter.url, ca_file=tmp_path / "none.pem")), problems=True)[1][0]
        assert f"TLS: {tmp_path / 'none.pem'}: No such file" in missing
        context.load_verify_locations(cert)
        context.verify_mode = ssl.CERT_REQUIRED
        showing = Endpoint(exporter.url, ca_file=cert, cert_file=cert, key_file=key)
        assert [p.value for p in until(opened(e=showing), points=True)[0]] == [1.0]
        assert until(opened(e=Endpoint(exporter.url, ca_file=cert)), problems=True)[1]
