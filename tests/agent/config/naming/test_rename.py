import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.config.naming.builders import S, declared

from chipwatch.collectors.openmetrics.endpoint import Endpoint, PageReader
from chipwatch.config.naming import rename as names
from chipwatch.config.naming.profiles import PROFILES, Profile, profile
from chipwatch.config.naming.rename import Renamer, copier, renamer
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric, Summary, counter, gauge
from chipwatch.host.exposition import ScrapeResponse

WANDB, WANDB_DOCS, MLFLOW = (profile(name).names for name in ("wandb", "wandb-docs", "mlflow"))
HERE = Dimensions(instance_id="i-1")


def forms(metric: Metric) -> list[Dimensions]:
    """Return dimensions that a series of the metric may have: words that tools use, and one that they do not."""
    words = {
        "direction": ("read", "write", "sent", "received"),
        "scope": ("total", "device"),
        "corrected": ("yes", "no"),
    }
    every = [[(key, word) for word in words.get(key, ("0",))] for key in metric.dims]
    return [Dimensions(dict(pairs)) for pairs in itertools.product(*every)]


@pytest.mark.parametrize("table", [WANDB, WANDB_DOCS, MLFLOW], ids=["wandb", "wandb-docs", "mlflow"])
def test_no_profile_names_what_no_collector_has(table):
    missing = set(table) - set(declared())
    assert not {
        name for name in missing if name.split(".")[0] in {"cpu", "memory", "disk", "network", "process", "swap"}
    }


def test_the_pages_on_names_have_every_name_of_every_profile():
    docs = Path(__file__).parents[4] / "docs"
    for one in PROFILES:
        page = (docs / ("otel-names.md" if one == "otel" else "names.md")).read_text()
        for ours, theirs in [(key, name.template) for key, name in profile(one).names.items()]:
            row = f"| `{ours}` | `{theirs}` |"
            assert row in page or (one == "dcgm4.7" and f"` | `{theirs}` |" in page), (one, row)
        assert all(re.search(f"\\| `{ours}` \\| .*`{theirs}`", page) for ours, theirs in profile(one).machine.items())
        assert all(f"`{copy.name.template}`" in page for copy in profile(one).copies.values())


@pytest.mark.parametrize("profile", PROFILES)
def test_every_name_has_one_kind_unit_and_description_whatever_metrics_go_by_it(profile):
    rename, copy, found = renamer(profile), copier(profile), {}
    points = [metric.point(7, 1.0, dims) for metric in declared().values() for dims in forms(metric)]
    for point in (*points, *(copy(points) if copy else ())):
        metric = rename(point).metric if rename else point.metric
        assert found.setdefault(metric.name, (metric.kind, metric.unit, metric.help))[:2] == (metric.kind, metric.unit)
        assert found[metric.name][2] == metric.help, metric.name


def test_the_unit_is_that_of_the_new_scale():
    point = Renamer(Profile(WANDB))(declared()["disk.used"].point(7, 2**31, Dimensions(path="/")))
    assert (point.metric.name, point.metric.unit, point.value) == ("disk./.usageGB", "GiBy", 2.0)
    point = Renamer(Profile(MLFLOW))(declared()["disk.used"].point(7, 2_000_000, Dimensions(path="/")))
    assert (point.metric.unit, point.value, dict(point.dims)) == ("MBy", 2.0, {"path": "/"})


def test_native_names_need_no_renamer():
    assert renamer("native") is None


@pytest.mark.parametrize("name", ["gpu.colour", "gpu.power"])
def test_what_a_profile_lacks_and_what_cannot_fill_the_places_of_its_name_passes_as_it_is(name):
    point = gauge(name, "W", "A thing.").point(7, 300.0, HERE)
    assert Renamer(Profile(WANDB))(point) is point


@pytest.mark.parametrize("value", ["{cpu}", "{0}", "a b", "", "{}"])
def test_a_dimensions_value_is_never_used_as_a_template(value):
    point = declared()["disk.utilization"].point(7, 1.0, Dimensions(path=value))
    assert Renamer(Profile(WANDB))(point).metric.name == f"disk.{value}.usagePercent"


def test_a_windows_summary_is_scaled_as_well():
    used = declared()["memory.used"]
    summary = Summary(3, 6e6, 1e6, 3e6, (1e6, 2e6, 3e6), (1, 1, 1))
    done = Renamer(Profile(MLFLOW))(Datapoint(used, 2e6, HERE, 9 * S, None, 3 * S, summary))
    assert done.value == pytest.approx(2)
    assert done.summary.count == 3
    assert done.summary[1:4] == pytest.approx((6, 1, 3))
    assert done.summary.values == pytest.approx((1, 2, 3))
    assert done.summary.counts == (1, 1, 1)
    assert (done.at, done.window_start) == (9 * S, 3 * S)


# -- counters begin at 0 --------------------------------------------------------------------------------------------


SENT = counter("network.sent", "By", "Bytes.")


def sent(at: int, value: float, increase: float | None = None, dims: Dimensions = HERE) -> Datapoint:
    return Datapoint(SENT, value, dims, at, 1, at - 1, None, increase)


def test_an_increase_is_scaled_and_stays_what_it_was():
    rename = Renamer(Profile(MLFLOW))
    assert rename(sent(5, 100e6, 4e6)).increase == pytest.approx(4)
    done = rename(sent(7, 102e6, 2e6))
    assert (done.value, done.increase, done.window_start) == (pytest.approx(6), pytest.approx(2), 6)
    assert rename(sent(8, 102e6)).increase is None


def test_a_counter_that_was_reset_never_shows_a_negative():
    rename = Renamer(Profile(WANDB))
    values = [rename(sent(at, value)) for at, value in [(5, 100), (6, 150), (7, 20), (8, 30)]]
    assert [p.value for p in values] == [0, 50, 20, 30]
    assert [p.start_time for p in values] == [5, 5, 7, 7]


def test_every_series_begins_separately():
    rename = Renamer(Profile(WANDB))
    read = declared()["disk.device.read"]
    a, b = Dimensions(device="a"), Dimensions(device="b")
    points = [(a, 5, 2**20), (b, 6, 2**21), (a, 7, 2**21), (b, 8, 2**23)]
    done = [rename(read.point(at, value, dims, start_time=1)) for dims, at, value in points]
    assert [(p.metric.name, p.value, p.start_time) for p in done] == [
        ("disk.a.in", 0, 5),
        ("disk.b.in", 0, 6),
        ("disk.a.in", 1, 5),
        ("disk.b.in", 6, 6),
    ]


def test_one_series_is_one_metric_object_each_time():
    rename = Renamer(Profile(WANDB))
    assert rename(sent(5, 1)).metric is rename(sent(6, 2)).metric


def test_what_the_first_window_saw_a_counter_rise_counts():
    done = Renamer(Profile(WANDB))(sent(5, 100.0, 4.0))
    assert (done.value, done.start_time, done.increase) == (4.0, 4, 4.0)


def test_a_counter_that_began_with_the_agent_counts_from_its_own_0():
    done = Renamer(Profile(WANDB))(sent(5, 374.0, 374.0)._replace(start_time=4, window_start=4))
    assert (done.value, done.start_time, done.increase) == (374.0, 4, 374.0)


def test_the_whole_increase_that_the_window_saw_of_a_reset_counter_counts():
    rename = Renamer(Profile(WANDB))
    rename(sent(5, 10.0, 10.0)._replace(start_time=4))
    done = rename(sent(9, 7.0, 7.0 + 3.0)._replace(start_time=8, window_start=5))  # 3 before its reset
    assert (done.value, done.start_time) == (10.0, 6)


RISES = st.tuples(st.integers(0, 100), st.none() | st.integers(0, 50), st.integers(1, 3))


@given(st.lists(RISES, min_size=1, max_size=names.MAX_EPOCHS), st.data())
def test_naming_a_batch_again_from_any_of_its_points_on_changes_nothing(values, data):
    rename = Renamer(Profile(MLFLOW))
    points = [
        sent(at, value, rise)._replace(start_time=start_time) for at, (value, rise, start_time) in enumerate(values, 5)
    ]
    first, done = [], 0
    while done < len(points):
        tried = data.draw(st.integers(done + 1, len(points)))
        first[done:] = [rename(point) for point in points[done:tried]]
        assert [rename(point) for point in points[done:tried]] == first[done:]
        done = data.draw(st.integers(done, tried)) if tried < len(points) else tried
    once = Renamer(Profile(MLFLOW))
    assert first == [once(point) for point in points]


def test_what_is_older_than_the_beginning_is_never_negative_nor_a_leap():
    rename = Renamer(Profile(WANDB))
    assert [rename(sent(at, value)).value for at, value in [(5, 100), (3, 80), (6, 101)]] == [0, 0, 1]


# -- what was scraped -----------------------------------------------------------------------------------------------


def scraped(name: str, value: float = 1.0, kind: Kind = Kind.GAUGE, endpoint: str = "dcgm", **labels: str) -> Datapoint:
    dims = Dimensions(labels, endpoint=endpoint)
    metric = Metric(name, kind, "1", "Scraped.", dims=tuple(dims))
    return metric.point(7, value, dims | HERE, start_time=1 if kind is Kind.COUNTER else None)


def test_what_was_scraped_is_numbered_in_the_order_in_which_its_labels_were_first_seen():
    rename = renamer("wandb")
    points = [
        scraped("DCGM_FI_DEV_GPU_TEMP", gpu="1"),
        scraped("DCGM_FI_DEV_GPU_TEMP", gpu="0"),
        scraped("DCGM_FI_DEV_GPU_TEMP"),
        scraped("http_requests_total", gpu="7"),
        scraped("DCGM_FI_DEV_GPU_TEMP", gpu="7", endpoint="a.b"),
        scraped("DCGM_FI_DEV_GPU_TEMP", gpu="0"),
    ]
    names = ["DCGM_FI_DEV_GPU_TEMP.0", "DCGM_FI_DEV_GPU_TEMP.1", "DCGM_FI_DEV_GPU_TEMP.2", "http_requests_total.0"]
    tags = [*(f"openmetrics.dcgm.{name}" for name in names), "openmetrics.a.b.DCGM_FI_DEV_GPU_TEMP.0"]
    for _ in range(2):
        assert [rename(point).metric.name for point in points] == [*tags, "openmetrics.dcgm.DCGM_FI_DEV_GPU_TEMP.1"]


def test_the_labels_of_what_was_scraped_stay_whatever_they_are_called():
    done = renamer("wandb")(scraped("up", index="a", metric="{b}", exported_endpoint="c"))
    assert done.metric.name == "openmetrics.dcgm.up.0"
    assert dict(done.dims) == {"index": "a", "metric": "{b}", "exported_endpoint": "c", "instance_id": "i-1"}
    assert sorted(done.metric.dims) == ["exported_endpoint", "index", "metric"]


def test_a_scraped_counter_is_as_on_its_page():
    point = scraped("http_requests_total", 41.0, Kind.COUNTER)._replace(window_start=3, increase=2.0)
    done = renamer("wandb")(point)
    assert done[1:2] + done[3:] == point[1:2] + point[3:]


@pytest.mark.parametrize("profile", ["wandb", "mlflow"])
def test_what_was_scraped_is_not_taken_for_one_of_ours_of_the_same_name(profile):
    done = renamer(profile)(scraped("memory.utilization"))
    assert done.metric.name == {"wandb": "openmetrics.dcgm.memory.utilization.0"}.get(profile, "memory.utilization")


def test_every_metric_of_a_page_has_a_tag_and_nothing_else_has_one():
    reader = PageReader("dcgm", Endpoint("http://h/metrics"))
    page = b'# TYPE a counter\na_total 5\n# TYPE h histogram\nh_sum 2\nh_count 1\nb{gpu="0"} 1\nb{gpu="1"} 1\n'
    points, problems = reader.read(ScrapeResponse(page, openmetrics=False, whole=True), 7)
    assert not problems
    rename = renamer("wandb")
    names = ["a_total.0", "h_sum.0", "h_count.0", "b.0", "b.1"]
    assert [rename(point).metric.name for point in points] == [f"openmetrics.dcgm.{name}" for name in names]
    assert not [metric for metric in declared().values() if "endpoint" in metric.dims]


# -- memory ---------------------------------------------------------------------------------------------------------


def test_series_that_keep_coming_are_never_forgotten_and_those_that_do_not_are(monkeypatch):
    monkeypatch.setattr(names, "CACHED_SERIES", 10)
    rename = renamer("wandb")
    lasting = scraped("up", pod="lasting")
    assert rename(lasting).metric.name == "openmetrics.dcgm.up.0"
    for n in range(1, 100):
        assert rename(scraped("up", pod=str(n))).metric.name == f"openmetrics.dcgm.up.{n}"
        assert rename(lasting).metric.name == "openmetrics.dcgm.up.0"
        assert len(rename._known) + len(rename._before) <= 20
    assert rename(scraped("up", pod="1")).metric.name == "openmetrics.dcgm.up.100"  # no number means two things


def test_names_on_a_page_that_change_for_ever_fill_no_memory(monkeypatch):
    monkeypatch.setattr(names, "CACHED_SERIES", 10)
    rename = renamer("wandb")
    for n in range(100):
        assert rename(scraped("up", pod="lasting")).metric.name == "openmetrics.dcgm.up.0"
        assert rename(scraped(f"name_{n}", pod="1")).metric.name == f"openmetrics.dcgm.name_{n}.0"
        assert len(rename._numbers) <= 20
    assert rename(scraped("up", pod="other")).metric.name == "openmetrics.dcgm.up.1"
