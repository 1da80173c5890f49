"""The sink over real sockets, as the frame runs it, and the real command."""

import http.client
import re
import threading

import pytest

from chipwatch.config.load import ConfigError, convert
from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.contract.errors import Refused
from chipwatch.net.page_server import Request
from chipwatch_sinks.prometheus import FIRST_AGE, MIN_AGE, TEXT, PrometheusSink, chosen
from chipwatch_sinks.prometheus.page import Format

LONG = 60.0
AT = 1_800_000_000_000_000_000
POWER = gauge("gpu.power", "W", "Power.", dims=("gpu",))
SENT = counter("network.sent", "By", "Sent.")
OLD = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""The header of Prometheus 2.42."""
NEW = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
"""The header of Prometheus 3."""
ESCAPINGS = ("allow-utf-8", "underscores", "dots", "values", '"; charset=x', "")
"""The schemes of https://prometheus.io/docs/instrumenting/escaping_schemes/, and invalid ones."""


@pytest.fixture
def sink():
    made = PrometheusSink(PrometheusSink.Config(listen="127.0.0.1:0"))
    made.open()
    yield made
    made.close()


def get(sink, path="/metrics", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", int(sink.url.split(":")[2].split("/")[0]), timeout=LONG)
    connection.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def fill(sink, value=1.0):
    assert sink.write([POWER.point(AT, value, Dimensions(gpu="0")), SENT.point(AT, 5, start_time=AT - 10**9)]) == []


def test_before_the_first_tick_there_is_no_page_and_then_the_last_one(sink):
    assert sink.status() == "0 series, not scraped yet"
    assert get(sink)[0] == 503
    fill(sink, 1.0)
    fill(sink, 2.0)
    status, headers, body = get(sink)
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'gpu_power_watts{gpu="0"} 2.0\n' in body
    assert sink.status() == "2 series, scraped 0 s ago by 127.0.0.1"


def test_a_page_that_no_tick_renews_is_not_served_for_ever(sink, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("chipwatch_sinks.prometheus.time.monotonic", lambda: now[0])
    request = Request("GET", "/metrics", {})
    statuses = []
    for ticks, least in (((1000.0,), FIRST_AGE), ((2000.0, 2001.0), MIN_AGE), ((3000.0, 3060.0), 180)):
        for at in ticks:
            now[0] = at
            fill(sink)
        for age in (least - 1, least + 1):
            now[0] = ticks[-1] + age
            statuses.append(sink._answer(request).status)
    assert statuses == [200, 503] * 3


OPENMETRICS = (Format.OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores")
PLAIN, ESCAPED = (Format.TEXT, TEXT), (Format.TEXT, "text/plain; version=1.0.0; charset=utf-8; escaping=underscores")


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/html,*/*;q=0.8", PLAIN),
        (OLD, OPENMETRICS),
        (NEW, OPENMETRICS),
        *((f"application/openmetrics-text;version=1.0.0;escaping={of}", OPENMETRICS) for of in ESCAPINGS),
        *((f"text/plain;version=1.0.0;escaping={of};q=0.6,*/*;q=0.1", ESCAPED) for of in ESCAPINGS),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=2.0.0, text/plain; q=0.1", PLAIN),
        ("application/openmetrics-text;version=1.0.0;q=0.1,text/plain;version=0.0.4;q=0.9", PLAIN),
        ("application/openmetrics-text;version=1.0.0;q=0, */*", PLAIN),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;q=1,text/plain;q=0.3", PLAIN),
        (";;;q=,,=;q=x", PLAIN),
    ],
)
def test_the_format_is_the_one_that_the_reader_prefers(accept, answer):
    assert chosen(accept) == answer


def test_a_small_page_is_sent_as_it_is_and_says_so(sink):
    fill(sink)
    _, headers, body = get(sink, Accept_Encoding="gzip")
    assert "Content-Encoding" not in headers
    assert b"gpu_power_watts" in body


def test_the_other_addresses_say_what_is_where(sink):
    fill(sink)
    status, headers, body = get(sink, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'href="/metrics"' in body
    assert b'href="/flat"' in body
    assert b"gpu_power_watts_0 1.0\n" in get(sink, "/flat")[2]
    assert get(sink, "/metric")[0] == 404
    assert get(sink, method="POST")[0] == 405
    status, headers, body = get(sink, method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(len(get(sink)[2])), b"")


def test_a_port_in_use_and_an_address_that_is_not_ours_are_reported(sink):
    port = int(sink.url.split(":")[2].split("/")[0])
    with pytest.raises(
        Refused,
        match=rf"^cannot listen on 127.0.0.1:{port}: another program uses it .Address already in use.; set listen",
    ):
        PrometheusSink(PrometheusSink.Config(listen=f"127.0.0.1:{port}")).open()
    with pytest.raises(Refused, match=r"^cannot listen on a..b:0: (?!Unknown error)"):
        PrometheusSink(PrometheusSink.Config(listen="a..b:0")).open()
    with pytest.raises(Refused, match=r"^cannot listen on 192.0.2.1:0: this machine has no such address .Cannot"):
        PrometheusSink(PrometheusSink.Config(listen="192.0.2.1:0")).open()


def test_a_series_that_no_page_can_have_is_refused_before_it_is_sent(sink):
    assert "the machine" in sink.refuses(gauge("target_info", "1", "X."), Dimensions())
    assert sink.refuses(POWER, Dimensions(gpu="0")) is None
    assert (sink.destination(), sink.describe(), sink.waits()) == ({"listen": "127.0.0.1:0"}, sink.url, False)


@pytest.mark.parametrize("listen", ["", "9465x", "host:", "127.0.0.1:70000", "127.0.0.1"])
def test_an_invalid_listen_address_is_reported_at_the_start(listen):
    with pytest.raises(ConfigError, match="listen: expected"):
        convert(PrometheusSink.Config, {"listen": listen}, "sinks.prometheus")


def test_scrapes_while_ticks_are_written_are_whole_pages_of_one_tick(sink):
    stop = threading.Event()

    def tick():
        value = 0
        while not stop.is_set():
            value += 1
            sink.write([POWER.point(AT + value, value, Dimensions(gpu=str(n))) for n in range(50)])

    fill(sink)
    writer = threading.Thread(target=tick)
    writer.start()
    try:
        for _ in range(50):
            values = re.findall(rb'gpu_power_watts\{gpu="\d+"\} (\S+)', get(sink)[2])
            assert len({*values}) == 1
    finally:
        stop.set()
        writer.join()
