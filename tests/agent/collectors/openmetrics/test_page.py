"""The parser: its rules, malformed input, and a comparison with prometheus_client's parser."""

import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chipwatch.collectors.openmetrics.endpoint import Endpoint, PageReader
from chipwatch.contract.datapoint import Kind
from chipwatch.host.exposition import ScrapeResponse

FIXTURES = Path(__file__).parents[3] / "fixtures/openmetrics"
PAGES = sorted(FIXTURES.glob("*.prom"))
SECOND = 10**9
NOW = 1_800_000_000 * SECOND
GAUGE, COUNTER = Kind.GAUGE, Kind.COUNTER


def answer(text, *, openmetrics=False, whole=True):
    return ScrapeResponse(text.encode() if isinstance(text, str) else text, openmetrics, whole)


def reader(**options):
    return PageReader("e", Endpoint(**options))


@pytest.fixture
def one():
    return reader()


def read(text, at=NOW, **how):
    points, problems = reader().read(answer(text, **how), at)
    assert problems == []
    return points


def told(points):
    """Return (name, labels without the endpoint) -> value."""
    return {
        (p.metric.name, tuple(kv for kv in p.dims.items_sorted if kv != ("endpoint", "e"))): p.value for p in points
    }


def only(text, **how):
    (point,) = read(text, **how)
    return point


@pytest.mark.parametrize(
    ("line", "name", "labels", "value"),
    [
        ("a 1", "a", {}, 1),
        ("  a\t1  ", "a", {}, 1),
        ("a 1\r", "a", {}, 1),
        ('a{b="c"} 1.5e3', "a", {"b": "c"}, 1500),
        ('a{b="c",} 1', "a", {"b": "c"}, 1),
        ('a { b = "c" , d = "e" } 1', "a", {"b": "c", "d": "e"}, 1),
        ('a{b="c"}1', "a", {"b": "c"}, 1),
        ("a{} -0.5", "a", {}, -0.5),
        (r'a{b="\\ \" \n \x"} 1', "a", {"b": '\\ " \n \\x'}, 1),
        (r'a{b="c\\"} 1', "a", {"b": "c\\"}, 1),
        ('a{b="} # , {"} 1', "a", {"b": "} # , {"}, 1),
        ('a{b="x y z"} 1 1799999999000', "a", {"b": "x y z"}, 1),
        ('a{b=""} 1', "a", {}, 1),
        ('a{endpoint="x"} 1', "a", {"exported_endpoint": "x"}, 1),
        ('a{"@gcp_zone"="x"} 1', "a", {"_@gcp_zone": "x"}, 1),
        ('{"a.b"} 1', "a.b", {}, 1),
        ('{"a.b",c="d","e.f"="g"} 1', "a.b", {"c": "d", "e.f": "g"}, 1),
        ("\ufeffa 1", "a", {}, 1),
    ],
)
def test_a_line_is_a_name_labels_and_a_value(line, name, labels, value):
    assert told(read(line + "\n")) == {(name, tuple(sorted(labels.items()))): value}


@pytest.mark.parametrize("word", ["gauge", "untyped", "unknown", "info", "stateset", "nonsense"])
def test_any_other_type_is_a_gauge(word):
    assert only(f"# TYPE a {word}\na 1\n").metric.kind is GAUGE


def test_a_sample_without_comments_is_a_gauge_without_a_unit():
    metric = only("a_total 1\n").metric
    assert (metric.kind, metric.unit, metric.help, metric.dims) == (GAUGE, "1", "Scraped.", ("endpoint",))


@pytest.mark.parametrize(
    "text",
    ["# TYPE a counter\na_total 4\n", "# TYPE a_total counter\na_total 4\n", "# TYPE a_total\tcounter\na_total 4"],
)
def test_counters_are_detected_with_and_without_total(text):
    point = only(text)
    assert (point.metric.name, point.metric.kind, point.value, point.start_time) == ("a_total", COUNTER, 4, NOW)


def test_unit_and_help_come_from_the_family():
    text = "# TYPE a_seconds counter\n# UNIT a_seconds seconds\n# HELP a_seconds how \\n  long. \na_seconds_total 1\n# EOF\n"
    metric = only(text, openmetrics=True).metric
    assert (metric.unit, metric.help) == ("s", "How long.")


def test_histograms_and_summaries_are_counters_of_sum_and_count_and_quantiles_are_gauges():
    found = {
        (p.metric.name, p.dims.get("quantile")): p.metric.kind
        for name in ("histogram", "summary")
        for p in read((FIXTURES / f"{name}.prom").read_text())
    }
    took = "prometheus_rule_evaluation_duration_seconds"
    assert found == {
        ("prometheus_tsdb_compaction_chunk_range_sum", None): COUNTER,
        ("prometheus_tsdb_compaction_chunk_range_count", None): COUNTER,
        (took, "0.5"): GAUGE, (took, "0.9"): GAUGE, (took, "0.99"): GAUGE,
        (f"{took}_sum", None): COUNTER, (f"{took}_count", None): COUNTER,
    }  # fmt: skip


def test_gauge_histograms_are_gauges():
    text = '# TYPE a gaugehistogram\na_bucket{le="1"} 2\na_gsum 3\na_gcount 2\n# EOF\n'
    assert {p.metric.name: p.metric.kind for p in read(text, openmetrics=True)} == {"a_gsum": GAUGE, "a_gcount": GAUGE}


@pytest.mark.parametrize(
    "text",
    [
        '# TYPE a counter\na_total{b="c"} 4 # {trace="x y"} 1.5 7\na_created{b="c"} 1.5\n# EOF\n',
        '# TYPE a_total counter\na_total{b="c"} 4\n# TYPE a_created gauge\na_created{b="c"} 1.5\n',
    ],
)
def test_created_is_the_start_time_of_a_counter(text):
    point = only(text, openmetrics="EOF" in text)
    assert (point.value, point.start_time) == (4, 1_500_000_000)


@pytest.mark.parametrize("created", [1_900_000_000, 0, -1])
def test_a_start_time_in_the_future_or_before_all_times_becomes_now(created):
    assert only(f"# TYPE a counter\na_total 4\na_created {created}\n# EOF\n", openmetrics=True).start_time == NOW


def test_a_counter_keeps_its_start_time_until_it_falls(one):
    start_time = [
        one.read(answer(f"# TYPE a counter\na {value}\n"), NOW + n * SECOND)[0][0].start_time
        for n, value in enumerate((5, 5, 7, 2, 3))
    ]
    assert start_time == [NOW, NOW, NOW, NOW + 2 * SECOND, NOW + 2 * SECOND]  # it was 0 after the reading of 7


def test_a_counter_keeps_its_start_time_when_the_page_gains_a_family(one):
    one.read(answer("# TYPE a counter\na 1\n"), NOW)
    (point, _) = one.read(answer("# TYPE a counter\na 2\n# TYPE b gauge\nb 1\n"), NOW + 1)[0]
    assert (point.value, point.start_time) == (2, NOW)


def test_a_new_start_time_of_the_page_counts(one):
    text = "# TYPE a counter\na_total {}\na_created {}\n# EOF\n"
    one.read(answer(text.format(5, 100), openmetrics=True), NOW)
    assert one.read(answer(text.format(9, 200), openmetrics=True), NOW + 1)[0][0].start_time == 200 * SECOND


def test_a_changed_type_makes_another_metric(one):
    kinds = [
        one.read(answer(f"# TYPE a {word}\na 1\n"), NOW)[0][0].metric.kind for word in ("gauge", "counter", "gauge")
    ]
    assert kinds == [GAUGE, COUNTER, GAUGE]


def test_a_negative_counter_is_absent():
    assert read("# TYPE a counter\na -1\n") == []


@pytest.mark.parametrize(
    ("stamp", "openmetrics"), [(str((NOW - 301 * SECOND) // 10**6), False), (str((NOW - 301 * SECOND) / 1e9), True)]
)
def test_a_sample_with_an_old_timestamp_is_absent(stamp, openmetrics):
    end = "# EOF\n" if openmetrics else ""
    assert read(f"a 1 {stamp}\n{end}", openmetrics=openmetrics) == []
    assert len(read(f"a 1 {stamp}\n{end}", at=NOW - 2 * SECOND, openmetrics=openmetrics)) == 1


def test_of_a_repeated_series_the_first_counts():
    points, problems = reader().read(answer('a{b="1",c="2"} 1\na{c="2",b="1"} 2\n'), NOW)
    assert [p.value for p in points] == [1]
    assert problems == ["the page has a series twice; the first is used"]


BAD = ["a", "a b", '{b="c"} 1', 'a{b="c" 1', "a{b=c} 1", 'a{b="c} 1', 'a{b="c",b="d"} 1', 'a{="c"} 1', 'a{b="c"}} 1', "a 1 x",
       "a 1 2 3", "9a 1", "a-b 1", "a 1_0", "a 1 1_0", "<html>", "a{,,} 1", 'a{b="c",,} 1', "{,} 1", '{"m","n"} 1', "a{b} 1",
       '{a="b","m","n"} 1', 'a{b="c","m"} 1', '{"",a="b"} 1', "a:b_c9 0x10", '"a" 1']  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_a_malformed_line_is_left_out_and_reported(one, bad):
    for _ in range(2):
        points, problems = one.read(answer(f"a_1 1\n{bad}\nz 2\n"), NOW)
        assert told(points) == {("a_1", ()): 1, ("z", ()): 2}
        assert problems == [f"malformed lines are left out; the first was {bad!r}"]


def test_the_message_stays_the_same_while_lines_are_malformed(one):
    said = [one.read(answer(f"a x{n}\n"), NOW)[1] for n in range(3)]
    assert said[0] == said[1] == said[2]
    assert one.read(answer("a 1\n"), NOW)[1] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_truncated_page_never_gives_another_value(path):
    body = path.read_bytes()
    whole = told(read(body.decode()))
    for end in range(0, len(body), 1 if len(body) < 3000 else 17):
        points, _ = reader().read(answer(body[:end], whole=False), NOW)
        assert told(points).items() <= whole.items()


def test_openmetrics_without_eof_loses_its_last_line_and_is_reported():
    points, problems = reader().read(answer("a 1\nb 12", openmetrics=True), NOW)
    assert told(points) == {("a", ()): 1}
    assert problems == ["the page lacks the # EOF of OpenMetrics; it may be incomplete"]


def test_a_page_may_end_without_a_newline():
    assert told(read("a 1\nc NaN\nd +Inf\nb 12")) == {("a", ()): 1, ("b", ()): 12}
    assert told(read("a 1\n# EOF", openmetrics=True)) == {("a", ()): 1}


def test_a_label_called_endpoint_never_replaces_another_label():
    points = read('a{endpoint="x",exported_endpoint="y"} 1\na{endpoint="x",exported_endpoint="z"} 2\n')
    assert told(points) == {
        ("a", (("exported_endpoint", y), ("exported_exported_endpoint", "x"))): value
        for y, value in (("y", 1), ("z", 2))
    }


def test_invalid_utf8_affects_only_its_line():
    points, problems = reader().read(answer(b'a{b="\xff"} 1\nc 2\n'), NOW)
    assert (told(points), problems) == ({("a", (("b", "\ufffd"),)): 1, ("c", ()): 2}, [])


def test_series_above_the_limit_are_left_out_and_reported():
    text = "".join(f"a{n} {n}\n" for n in range(10))
    limited = reader(max_series=4)
    points, problems = limited.read(answer(text), NOW)
    assert [p.value for p in points] == [0, 1, 2, 3]
    assert problems == ["4 series are taken, up to 6 are left out; raise max_series"]
    assert limited.read(answer(text + "b 1\n"), NOW)[1] == problems, "one line an hour in the log"
    points, problems = limited.read(answer(text), NOW, 3)
    assert len(points) == 3
    assert problems == ["3 series are taken, up to 6 are left out; a reading takes no more"]
    assert limited.read(answer("a0 0\n"), NOW)[1] == []
    assert limited.read(answer(text * 20), NOW)[1][-1] == "4 series are taken, up to 196 are left out; raise max_series"
    whole = reader(max_series=10)
    assert [len(whole.read(answer(text), NOW, room)[0]) for room in (20, 20, 3)] == [10, 10, 3]


def test_the_number_of_lines_is_limited_even_if_filters_select_nothing():
    text = "".join(f"a{n} {n}\n" for n in range(100))
    points, problems = reader(max_series=1, filters=("none",)).read(answer(text), NOW)
    assert (points, problems) == ([], ["the page has more than 20 lines (20 x max_series); the rest is left out"])


def test_lines_with_timestamps_are_parsed_once(monkeypatch):
    of, stamp = reader(), NOW // 10**6
    of.read(answer(f'a{{b="c d"}} 1 {stamp}\ne 2 {stamp}\n'), NOW)
    monkeypatch.setattr("chipwatch.host.exposition.SAMPLE", None)
    points, problems = of.read(answer(f'a{{b="c d"}} 3 {stamp}\ne 4 {stamp - 400_000}\n'), NOW)
    assert (told(points), problems) == ({("a", (("b", "c d"),)): 3}, []), "the second is old"


def test_labels_that_keep_changing_do_not_fill_memory(one):
    for n in range(3000):
        one.read(answer(f'# TYPE a counter\na{{id="{n}"}} 1\na_created{{id="{n}"}} 1\n'), NOW + n)
    assert len(one._texts) + len(one._series) < 5000


@pytest.mark.parametrize(
    ("filters", "taken"),
    [
        ((), {"dcgm_temp 0", "dcgm_temp 1", "dcgm_power 0", "go"}),
        (("dcgm",), {"dcgm_temp 0", "dcgm_temp 1", "dcgm_power 0"}),
        ((".*temp$", "^e.go$"), {"dcgm_temp 0", "dcgm_temp 1", "go"}),
        ({"temp": {"gpu": "1"}, "power": {}}, {"dcgm_temp 1", "dcgm_power 0"}),
        ({"temp|go": {"gpu": ".*"}}, {"dcgm_temp 0", "dcgm_temp 1"}),
        ({"temp": {"gpu": "0", "other": ".*"}}, set()),
    ],
)
def test_filters_have_two_forms_and_are_searched(filters, taken):
    text = 'dcgm_temp{gpu="0"} 1\ndcgm_temp{gpu="1"} 1\ndcgm_power{gpu="0"} 1\ngo 1\n'
    points, _ = reader(filters=filters).read(answer(text), NOW)
    assert {f"{p.metric.name} {p.dims.get('gpu', '')}".strip() for p in points} == taken


RESTS = ("3", "NaN", " 1", "1 1800000000000", "1\t1", "1 x", "x 1", "1 1_0", "1 # {}", "1  # {}", "# 1", "1#x", "1#x 1", '{c="d"}1', "1\r 1",
         *(f"1{blank}" for blank in "\r\x0b\x85\xa0\u2028"))  # fmt: skip
lines = st.sampled_from(["a 1\n", " 7\n", "b{} 2\n", *(f"b {rest}\n" for rest in RESTS)])
pages = st.text(alphabet='ab{}",=\\ \n\t#_019.eE+-NInf', max_size=60) | st.lists(lines, max_size=3).map("".join)


@given(pages, pages, st.booleans())
@example("a 1\n", "a5\n", False)
@example("# TYPE a counter\na_total 2\na_created 7\nb NaN\n", 'c{d="e"} 5\nc{d="e",} 6\n', False)
@example("a 1\nb 2\n", "a 1\n 7\n", False)
@example("b NaN\nb{} 2\n", "b 3\nb{} 4\n", False)
@example("b 1\nb{} 2\nc\t3\n", "b 1\nb{} 2\nc 3\n", False)
def test_each_page_is_read_as_if_it_were_the_first(before, after, openmetrics):
    of = reader()
    for page in (before, before, after, after, before):
        points, problems = of.read(answer(page, openmetrics=openmetrics), NOW)
        assert all(math.isfinite(p.value) and tuple(p.dims) == p.metric.dims for p in points)
        fresh, said = reader().read(answer(page, openmetrics=openmetrics), NOW)
        assert (told(points), len(points), len(problems)) == (told(fresh), len(fresh), len(said))


def reference(text, *, openmetrics):
    """Return what prometheus_client reads, without the samples that our parser leaves out."""
    pytest.importorskip("prometheus_client")
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as om

    found = {}
    parse = om.text_string_to_metric_families if openmetrics else parser.text_string_to_metric_families
    for family in parse(text):
        counts = family.type in ("counter", "histogram", "summary")
        for sample in family.samples:
            if (sample.name.endswith("_bucket") and "histogram" in family.type) or (
                counts and sample.name.endswith("_created")
            ):
                continue
            if math.isfinite(sample.value) and not (sample.value < 0 and counts and "quantile" not in sample.labels):
                labels = tuple(sorted((key, value) for key, value in sample.labels.items() if value))
                bare = sample.name.removesuffix("_total")  # which the reference adds to each counter without it
                name = bare if family.type == "counter" and f"{sample.name}{{" not in text else sample.name
                found.setdefault((name, labels), sample.value)
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_captured_pages_agree_with_the_reference(path):
    text = path.read_text()
    assert told(read(text)) == reference(text, openmetrics=False)


@pytest.mark.parametrize(("name", "openmetrics"), [("odd.txt", False), ("odd_openmetrics.txt", True)])
def test_odd_but_valid_pages_agree_with_the_reference(name, openmetrics):
    text = Path(__file__).with_name(name).read_text()
    assert told(read(text, at=0, openmetrics=openmetrics)) == reference(text, openmetrics=openmetrics)


names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).map(lambda name: f"m{name}x")
label_names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True).map(lambda name: f"{name}l")
texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zl", "Zp")) | st.sampled_from('\\"\n{},=#'),
    max_size=12,
)
series = st.tuples(names, st.dictionaries(label_names, texts, max_size=4))
numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(series, numbers), max_size=8, unique_by=lambda one: one[0][0]))
def test_pages_written_by_the_reference_are_read(samples):
    pytest.importorskip("prometheus_client")
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.openmetrics import exposition

    class Source:
        def collect(self):
            for (name, labels), value in samples:
                family = GaugeMetricFamily(name, "help", labels=list(labels))
                family.add_metric(list(labels.values()), value)
                yield family

    registry = CollectorRegistry()
    registry.register(Source())
    meant = {(name, tuple(sorted((k, v) for k, v in labels.items() if v))): value
             for (name, labels), value in samples if math.isfinite(value)}  # fmt: skip
    assert told(read(generate_latest(registry).decode())) == meant
    assert told(read(exposition.generate_latest(registry).decode(), openmetrics=True)) == meant
