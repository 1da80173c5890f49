"""The page is what Prometheus' own parsers read, and only what the last tick had."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser as text_parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from chipwatch.advisor.catalogue import catalogue
from chipwatch.contract.datapoint import Dimensions, Kind, Metric, counter, gauge
from chipwatch_sinks.prometheus.names import family_of
from chipwatch_sinks.prometheus.page import Format, Page

AT = 1_800_000_000_250_000_000
BORN = 1_799_999_000_500_000_000
UTILIZATION = gauge("cpu.utilization", "%", "Share of time.")
SENT = counter("network.sent", "By", 'Bytes "sent" \\ by all.')
POWER = gauge("gpu.power", "W", "Power.", dims=("gpu",))
CLOCK = gauge("gpu.clock.sm", "MHz", "Clock.", dims=("gpu",))
FOREIGN = counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "mJ", "Energy.", dims=("gpu",))


def gpu(number):
    return Dimensions(gpu=str(number))


def text(page):
    return page.body(Format.TEXT, zipped=False).decode()


def samples(page, form=Format.TEXT):
    """Return what the parser of prometheus_client reads: name and labels -> value."""
    parse = {
        Format.TEXT: text_parser.text_string_to_metric_families,
        Format.OPENMETRICS: openmetrics_parser.text_string_to_metric_families,
    }[form]
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(page.body(form, zipped=False).decode())
        for sample in family.samples
    }


def test_values_are_in_base_units_under_names_that_say_so():
    page = Page()
    page.take([
        UTILIZATION.point(AT, 12.5),
        SENT.point(AT, 7, start_time=BORN),
        CLOCK.point(AT, 1410, gpu(0)),
        POWER.point(AT, 300.5, gpu(0)),
    ])  # fmt: skip
    assert samples(page) == {
        ("cpu_utilization_ratio", ()): 0.125,
        ("network_sent_bytes_total", ()): 7,
        ("gpu_clock_sm_hertz", (("gpu", "0"),)): 1.41e9,
        ("gpu_power_watts", (("gpu", "0"),)): 300.5,
    }
    assert samples(page, Format.OPENMETRICS) == samples(page) | {
        ("network_sent_bytes_created", ()): BORN / 1e9
    }  # fmt: skip


def test_help_type_and_unit_follow_the_format():
    page = Page()
    page.take([SENT.point(AT, 7, start_time=BORN), POWER.point(AT, 1, gpu(0)), POWER.point(AT, 2, gpu(1))])
    assert text(page) == (
        '# HELP network_sent_bytes_total Bytes "sent" \\\\ by all.\n# TYPE network_sent_bytes_total counter\n'
        "network_sent_bytes_total 7\n"
        "# HELP gpu_power_watts Power.\n# TYPE gpu_power_watts gauge\n"
        'gpu_power_watts{gpu="0"} 1\ngpu_power_watts{gpu="1"} 2\n'
    )
    families = openmetrics_parser.text_string_to_metric_families(page.body(Format.OPENMETRICS, zipped=False).decode())
    assert [(of.name, of.type, of.unit, of.documentation) for of in families] == [
        ("network_sent_bytes", "counter", "bytes", 'Bytes "sent" \\ by all.'),
        ("gpu_power_watts", "gauge", "watts", "Power."),
    ]


def test_a_name_of_another_tool_stays_with_its_value():
    page = Page()
    page.take([FOREIGN.point(AT, 12_000, gpu(0), start_time=BORN)])
    assert "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n" in text(page)
    assert 'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"} 12000\n' in text(page)
    assert samples(page, Format.OPENMETRICS) == {(FOREIGN.name, (("gpu", "0"),)): 12_000}


def test_a_series_that_a_tick_lacks_leaves_the_page_at_once():
    page = Page()
    for tick in range(5):
        page.take([POWER.point(AT + tick, tick, gpu(0)), POWER.point(AT + tick, tick, gpu(1))])
    assert page.series == 2
    page.take([POWER.point(AT + 5, 5, gpu(0))])
    assert samples(page) == {("gpu_power_watts", (("gpu", "0"),)): 5}
    page.take([POWER.point(AT + 6, 6, gpu(0)), POWER.point(AT + 6, 7, gpu(1))])
    assert page.series == 2


@pytest.mark.parametrize("window", [5, 10, 12])
def test_a_series_that_is_read_every_15_seconds_never_flickers(window):
    page = Page(interval=5)
    readings = {*range(5, 400, 15), 0, 205} - {200}  # the first two ticks are read, then each third; one is late
    for batch in range(1, int(300 / window)):
        end = batch * window
        rare = [SENT.point(AT, 1, start_time=BORN)] if any(end - window < one <= end for one in readings) else []
        page.take([UTILIZATION.point(AT + batch, 1), *rare])
        assert page.series == 1 + (end >= 5)


def test_a_series_that_is_new_stays_for_15_seconds_and_one_that_was_away_leaves_with_the_tick_that_lacks_it():
    page, shown = Page(interval=5), []
    for tick in range(40):
        mine = [POWER.point(AT + tick, 1, gpu(0))] if tick in {0, *range(10, 16), *range(30, 33)} else []
        page.take([UTILIZATION.point(AT + tick, 1), *mine])
        shown.append(page.series == 2)
    assert [tick for tick, is_shown in enumerate(shown) if is_shown] == [0, 1, 2, *range(10, 16), *range(30, 34)]


@pytest.mark.parametrize("step", [1, -1])
def test_of_two_points_of_a_series_in_one_batch_the_newer_counts(step):
    page = Page()
    page.take([UTILIZATION.point(AT + 1, 20), UTILIZATION.point(AT, 10)][::step])
    assert samples(page) == {("cpu_utilization_ratio", ()): 0.2}


def test_a_job_keeps_its_partition_namespace_and_user_which_are_not_the_machines():
    page, held = Page(), gauge("job.gpus", "{gpu}", "Held.", dims=("job",))
    ours = [Dimensions(hostname="n-1", job="train", namespace=name, user="ada") for name in ("red", "blue")]
    page.take([held.point(AT, 4.0, dims) for dims in ours])
    read = samples(page)
    assert ("target_info", (("hostname", "n-1"),)) in read
    assert {labels for name, labels in read if name == "job_gpus"} == {
        (("job", "train"), ("namespace", name), ("user", "ada")) for name in ("red", "blue")
    }


def test_target_info_names_the_machine_once_and_every_series_only_if_asked():
    dims = Dimensions(gpu="0", hostname="n-1", **{"@region": "x"})
    page = Page()
    page.take([POWER.point(AT, 1, dims)])
    machine = ("target_info", (("hostname", "n-1"),))
    assert samples(page) == {machine: 1, ("gpu_power_watts", (("gpu", "0"),)): 1}
    assert samples(page, Format.OPENMETRICS) == samples(page)
    page = Page(machine_labels=True)
    page.take([POWER.point(AT, 1, dims)])
    assert samples(page) == {machine: 1, ("gpu_power_watts", (("gpu", "0"), ("hostname", "n-1"))): 1}


def test_a_machine_that_gets_another_dimension_has_no_series_twice():
    page = Page()
    page.take([POWER.point(AT, 1, gpu(0)), POWER.point(AT + 1, 2, Dimensions(gpu="0", slurm_job="7"))])
    assert text(page).count("\ngpu_power_watts{") == 1
    assert samples(page)["gpu_power_watts", (("gpu", "0"),)] == 2


def test_times_are_sent_only_if_asked():
    page = Page(timestamps=True)
    page.take([UTILIZATION.point(AT, 50)])
    assert text(page).splitlines()[-1] == "cpu_utilization_ratio 0.5 1800000000250"
    assert b"cpu_utilization_ratio 0.5 1800000000.25\n" in page.body(Format.OPENMETRICS, zipped=False)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (gauge("a.b", "1", "X."), gauge("a_b", "1", "Y.")),
        (gauge("a.b", "By", "X."), gauge("a.b.bytes", "By", "Y.")),
        (counter("a.b", "1", "X."), gauge("a_b_total", "1", "Y.")),
        (counter("a.b", "1", "X."), gauge("a.b", "1", "Y.")),
        (gauge("a.b", "1", "X."), counter("a_b", "1", "Y.")),
    ],
)
def test_names_that_clash_are_reported_and_not_merged(first, second):
    page = Page()
    assert page.fault(first, Dimensions()) == ""
    assert page.fault(first, Dimensions()) == ""
    assert f"name clash: {first.name} is " in page.fault(second, Dimensions())
    start = {Kind.COUNTER: {"start_time": BORN}}
    points = [metric.point(AT, 1, **start.get(metric.kind, {})) for metric in (first, second)]
    assert [(of.point, "name clash" in of.reason) for of in page.take(points)] == [(points[1], True)]
    assert page.series == 1


def test_labels_that_become_one_are_reported_and_not_merged():
    metric = gauge("a.b", "1", "X.", dims=("x.y", "x_y"))
    assert Page().fault(metric, Dimensions({"x.y": "1", "x_y": "2"})) == "two labels become one"


def test_names_that_prometheus_reserves_are_changed_and_empty_values_left_out():
    page = Page()
    metric = gauge("9.lives", "1", "X.", dims=("__name__", "0", "none"))
    page.take([metric.point(AT, 1, Dimensions({"__name__": "a", "0": "b", "none": ""}))])
    assert samples(page) == {("_9_lives", (("_0", "b"), ("_name__", "a"))): 1}


@given(value=st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_any_text_can_be_the_value_of_a_label(value):
    page = Page()
    page.take([POWER.point(AT, 1, Dimensions(gpu=value, hostname=value))])
    assert samples(page, Format.OPENMETRICS)["gpu_power_watts", (("gpu", value),)] == 1
    if "\r" not in value:  # this parser ends lines there
        lines = {
            of.labels.get("gpu")
            for family in text_parser.text_string_to_metric_families(text(page))
            for of in family.samples
        }
        assert value in lines


KEYS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=4).filter(lambda key: key[0] != "_")
NAMES = st.from_regex("(target|[a-c](\\.[a-c])?)(_(total|created|info|count|sum|bucket|bytes))?", fullmatch=True)


@given(
    series=st.lists(st.tuples(NAMES, st.sampled_from(Kind), st.dictionaries(KEYS, st.text(max_size=4), max_size=3))),
    machine=st.dictionaries(KEYS, st.text(max_size=4), max_size=2),
    machine_labels=st.booleans(),
    timestamps=st.booleans(),
)
def test_both_parsers_take_any_names_and_dimensions(series, machine, machine_labels, timestamps):
    page = Page(machine_labels=machine_labels, timestamps=timestamps)
    page.take([
        Metric(name, kind, "1", "X.", dims=tuple(dims)).point(
            AT, 1, Dimensions({**machine, **dims}), start_time=AT if kind is Kind.COUNTER else None)
        for name, kind, dims in series
    ])  # fmt: skip
    for form, parser in ((Format.TEXT, text_parser), (Format.OPENMETRICS, openmetrics_parser)):
        families = parser.text_string_to_metric_families(page.body(form, zipped=False).decode())
        found = [
            (sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples
            if sample.name != "target_info" and (family.type, sample.name) != ("counter", f"{family.name}_created")
        ]  # fmt: skip
        assert len({*found}) == len(found) == page.series


def test_every_metric_of_ours_has_a_different_name_and_both_parsers_accept_it():
    page, expected = Page(), set()
    points = []
    for metrics in catalogue().values():
        for metric in metrics:
            start = BORN if metric.kind is Kind.COUNTER else None
            points.append(metric.point(AT, 1, Dimensions(dict.fromkeys(metric.dims, "0")), start_time=start))
            expected.add((family_of(metric).name, tuple(sorted(metric.dims))))
    assert page.take(points) == []
    for form in (Format.TEXT, Format.OPENMETRICS):
        found = {(name, tuple(sorted(key for key, _ in pairs))) for name, pairs in samples(page, form)}
        assert {of for of in found if not of[0].endswith("_created")} == expected


def test_things_a_second_and_units_that_the_name_has_are_not_said_twice():
    assert family_of(gauge("neuron.core.flops", "{flop}/s", "X.")).name == "neuron_core_flops_per_second"
    assert family_of(gauge("agent.collector.seconds", "s", "X.")).name == "agent_collector_seconds"


def test_a_page_is_written_once_a_tick_and_packed_once():
    page, crowd = Page(), [gauge(f"cpu.n{n:03}.utilization", "%", "Share of time.") for n in range(99)]
    page.take([metric.point(AT, 50) for metric in crowd])
    packed = page.body(Format.TEXT, zipped=True)
    assert gzip.decompress(packed) == page.body(Format.TEXT, zipped=False)
    assert page.body(Format.TEXT, zipped=True) is packed
    page.take([metric.point(AT + 1, 60) for metric in crowd])
    assert b"0.6" in gzip.decompress(page.body(Format.TEXT, zipped=True))


def test_without_labels_each_series_has_a_different_name():
    used = gauge("disk.used", "By", "X.", dims=("path",))
    page = Page()
    page.take([
        *(used.point(AT, n, Dimensions(path=path, hostname="h")) for n, path in enumerate(["/", "/a b", "/a-b"])),
        SENT.point(AT, 3, start_time=BORN),
    ])  # fmt: skip
    flat = text_parser.text_string_to_metric_families(page.body(Format.FLAT, zipped=False).decode())
    assert {of.name: of.value for family in flat for of in family.samples} == {
        "disk_used_bytes": 0, "disk_used_bytes_a_b": 1, "network_sent_bytes_total": 3}  # fmt: skip


def test_series_that_come_and_go_do_not_pile_up(monkeypatch):
    monkeypatch.setattr("chipwatch_sinks.prometheus.page.KNOWN", 100)
    page = Page(interval=15)
    for n in range(1000):
        page.take([Metric(f"a.b{n}", Kind.GAUGE, "1", "X.").point(AT + n, n), POWER.point(AT + n, n, gpu(n))])
    assert page.series == 2
    assert len(page._known) <= 110
    assert len(page._owners) <= 110


class Forgetful(Page):
    """A page that remembers neither the order of earlier ticks nor when a series may end."""

    def take(self, tick):
        self._orders.clear()
        self._many = self._ends = 0
        return super().take(tick)


RHYTHMS = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=4), min_size=1, max_size=5)


@given(RHYTHMS, st.sampled_from((1.0, 5.0)))
def test_what_is_remembered_between_ticks_changes_nothing_on_the_page(rhythms, interval):
    pages = Page(interval=interval), Forgetful(interval=interval)
    due = [0] * len(rhythms)
    for tick in range(60):
        points = []
        for number, gaps in enumerate(rhythms):
            if due[number] == tick:
                due[number] += gaps[tick % len(gaps)]
                points.append(held(POWER, "ab"[tick % 13 == 0] if number == 1 else "", tick, gpu=str(number)))
        for page in pages:
            page.take(points)
        assert text(pages[0]) == text(pages[1])


def test_many_series_that_come_in_each_third_tick_stay_and_are_laid_out_once(monkeypatch):
    page, many, laid_out = Page(interval=1), [gpu(number) for number in range(12_000)], []
    lay_out = page._lay_out
    monkeypatch.setattr(page, "_lay_out", lambda: (laid_out.append(1), lay_out()))
    for tick in range(18):
        crowd = [POWER.point(AT + tick, tick, dims) for dims in many] if tick % 3 == 0 else []
        page.take([UTILIZATION.point(AT + tick, 1), *crowd])
        assert page.series == 12_001
    assert len(laid_out) == 1


def held(metric, pod, value, **device):
    """Return a point of a device with the label that says which pod holds it; "" for none."""
    owned = Metric(metric.name, metric.kind, metric.unit, metric.help, metric.level, (*metric.dims, "pod"), ("pod",))
    dims = Dimensions(device)
    return owned.point(AT, value, dims | {"pod": pod}) if pod else metric.point(AT, value, dims)


def pods(page, name="gpu_power_watts"):
    """Return the pods of GPU 0's series on the page."""
    return [
        dict(names).get("pod", "")
        for (sample, names) in samples(page)
        if sample == name and ("gpu", "0") in names
    ]  # fmt: skip


@pytest.mark.parametrize("age", [1, 2, 3, 20])
def test_the_series_of_a_holder_leaves_the_page_at_once_when_another_one_comes(age):
    page = Page()
    for holders in [["a"]] * age + [["b"], ["a"], [""], ["a", "b"], ["b"], ["b"], [""], ["a"], [""]]:
        page.take([held(POWER, name, 500.0, gpu="0") for name in holders] + [held(POWER, "other", 1.0, gpu="1")])
        assert pods(page) == holders


def test_a_slow_series_of_a_holder_stays_until_the_next_sample():
    page, shown = Page(), []
    for tick in range(40):
        name = "a" if tick < 31 else "b"
        slow = [held(CLOCK, name, 1410, gpu="0")] if tick % 3 == 0 else []
        page.take([held(POWER, name, 500.0, gpu="0"), *slow])
        shown.append("".join(pods(page, "gpu_clock_sm_hertz")))
    assert "".join(shown[20:]) == "a" * 13 + "b" * 7
