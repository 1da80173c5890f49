import dataclasses
import logging
import re

import pytest
from tests.doubles.frame import MemorySink

from chipwatch.config import plugins
from chipwatch.config.convert import ConfigError
from chipwatch.config.instances import NotLoaded, build_collectors, build_plugin, build_processors, build_sinks
from chipwatch.config.load import load
from chipwatch.config.naming import rename
from chipwatch.config.options import Config, SinkOptions
from chipwatch.config.plugins import EntryPoint
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.contract.errors import CommandError
from chipwatch.contract.plugin import Needs
from chipwatch.contract.sink import Limits, Sink
from chipwatch.engine import build
from chipwatch.engine.build import (
    assemble,
    build_filter,
    build_sources,
    duplicates,
    held_at_zero,
    level_wanted,
    profile_of,
    spool_path,
    validate,
    view,
    window_length,
)
from chipwatch.engine.self_metrics import INCIDENT, SPOOL_BYTES

LONG = 60.0
EVENTS = counter("x.events", "{event}", "Events.", dims=("kind",))

SINKS = """
from dataclasses import dataclass
from chipwatch.contract.errors import SinkClosed
from chipwatch.contract.sink import Limits, Sink

class Kept(Sink):
    limits = Limits(max_points=3, max_age=60, window=0, flush=0)

    @dataclass(frozen=True)
    class Config:
        size: int = 1

        def __post_init__(self):
            if self.size > 9:
                raise ValueError("size is at most 9")

    def __init__(self, config):
        self.config, self.points, self.batches = config, [], []

    def write(self, batch):
        self.points += batch
        self.batches.append(len(batch))
        return ()

class Brief(Kept):
    limits = Limits(max_points=100, durable=False, window=0, flush=0)

class Scraped(Brief):
    limits = Limits(max_points=100, durable=False, window=0, flush=0, scraped=True)

class Rare(Kept):
    limits = Limits(max_points=100, durable=False, window=0, flush=86400)

class Placed(Brief):
    @dataclass(frozen=True)
    class Config:
        place: str = "here"

    def destination(self):
        if self.config.place == "broken":
            raise ValueError("no place")
        return {"place": self.config.place} if self.config.place else {}

class Leaving(Brief):
    def write(self, batch):
        raise SinkClosed("enough")
"""
COLLECTOR = """
from dataclasses import dataclass
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import gauge, Level
from chipwatch.contract.plugin import Needs

LOAD = gauge("x.load", "1", "The load.")
DETAIL = gauge("x.detail", "1", "A detail.", Level.DETAILED)

class Load(Collector):
    metrics = (LOAD, DETAIL)
    needs = Needs(level=True)

    @dataclass(frozen=True)
    class Config:
        load: float = 1.0

    def __init__(self, config):
        self.config = config

    def collect(self, at):
        yield LOAD.point(at, self.config.load)
        yield DETAIL.point(at, 2.0)
"""


@pytest.fixture
def installed(others):
    """Sinks and a collector of somebody else's."""
    others.add(
        "their_sinks", SINKS,
        sinks=[("kept", "Kept"), ("brief", "Brief"), ("leaving", "Leaving"), ("rare", "Rare"), ("placed", "Placed"),
               ("scraped", "Scraped")],
    )  # fmt: skip
    others.add("their_load", COLLECTOR, collectors=[("load", "Load")])
    others.add("needy", "import no_such_library\n", collectors=[("needy", "Needy")], sinks=[("needy", "Needy")])
    others.add("broken", "raise ImportError('no libthing.so')\n", collectors=[("broken", "Broken")])
    return others


def config(**options) -> Config:
    return load(None, {"interval": 3600.0, **options}, {})


class Ran:
    """A pipeline that is closed at the end."""

    def __init__(self, made):
        self.pipeline = made

    def sink(self, name):
        return next(o.worker.sink for o in self.pipeline.routes if o.name == name)


@pytest.fixture
def start(installed, at_the_end):
    def make(common=Dimensions, **options):
        made_config = config(**options)
        pipeline = assemble(made_config, common, folder=made_config.spool)
        at_the_end.callback(pipeline.close, LONG)
        at_the_end.callback(pipeline.stop)
        pipeline.start()
        return Ran(pipeline)

    return make


# -- building plugins -------------------------------------------------------------------------------------------------


def test_a_plugin_is_built_from_its_options(installed):
    made = build_plugin(plugins.COLLECTORS, "load", config(collectors={"load": {"load": 2.5}}))
    assert made.config.load == 2.5


def test_a_missing_library_is_named_with_the_extra_or_the_package_to_install(monkeypatch):
    known = {"google": EntryPoint("no_such_library:Sink")}
    with pytest.raises(NotLoaded) as caught:
        build_plugin(plugins.SINKS, "google", config(), known)
    line = "sink google cannot be loaded: No module named 'no_such_library'; install chipwatch with the extra 'google'"
    assert str(caught.value) == line
    monkeypatch.setattr("sys.frozen", True, raising=False)
    with pytest.raises(NotLoaded, match=r"; install the package chipwatch-google of the same version$"):
        build_plugin(plugins.SINKS, "google", config(), known)


@pytest.mark.parametrize("module", ["json.no_such", "no_such.json"])
def test_a_library_that_a_plugin_will_import_is_missed_before_it_is_built(installed, monkeypatch, module):
    monkeypatch.setattr(plugins.load(plugins.COLLECTORS, "load"), "needs", Needs(libraries=(module,)))
    with pytest.raises(NotLoaded, match=f"^collector load cannot be loaded: No module named '{module}'$"):
        build_plugin(plugins.COLLECTORS, "load", config())


def test_no_extra_is_named_where_there_is_none(installed):
    with pytest.raises(NotLoaded) as caught:
        build_plugin(plugins.SINKS, "needy", config())
    assert str(caught.value) == "sink needy cannot be loaded: No module named 'no_such_library'"


def test_a_missing_name_is_reported_in_the_words_of_a_missing_import(installed):
    installed.add("nameless", "", collectors=[("nameless", "Nobody")])
    with pytest.raises(NotLoaded) as caught:
        build_plugin(plugins.COLLECTORS, "nameless", config())
    assert str(caught.value) == "collector nameless cannot be loaded: module 'nameless' has no attribute 'Nobody'"


def test_another_fault_of_an_import_gives_no_such_advice(installed):
    with pytest.raises(NotLoaded) as caught:
        build_plugin(plugins.COLLECTORS, "broken", config())
    assert str(caught.value) == "collector broken cannot be loaded: no libthing.so"


def test_all_collectors_are_built_unless_some_are_named_and_those_that_cannot_be_loaded_are_left_out(installed, caplog):
    built = build_collectors(config())
    assert set(built) == set(plugins.installed(plugins.COLLECTORS)) - {"needy", "broken"}
    assert [r.levelno for r in caplog.records] == [logging.ERROR] * 2
    assert set(build_collectors(config(collector=["load", "cpu"]))) == {"load", "cpu"}


@pytest.mark.parametrize("group", ["collectors", "processors"])
@pytest.mark.parametrize("module", ["1 / 0", "", "class Odd: pass", "import no_such_library"])
def test_a_faulty_plugin_costs_only_itself_unless_somebody_named_it(others, caplog, group, module):
    others.add("theirs", module + "\n", **{group: [("odd", "Odd")]})
    build_all = {"collectors": build_collectors, "processors": build_processors}[group]
    assert build_all(config()).keys() == plugins.installed(f"chipwatch.{group}").keys() - {"odd"}
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith((f"{group[:-1]} odd cannot be loaded: ", f"{group}.odd: "))
    assert record.getMessage().endswith("; it is left out")
    for options in ({group[:-1]: ["odd"]}, {group: {"odd": {"x": 1}}}):
        with pytest.raises(CommandError, match="odd"):
            build_all(config(**options))


def test_a_faulty_member_of_a_family_costs_only_itself(others, monkeypatch):
    monkeypatch.setitem(plugins.FAMILIES, "host", ["odd", "memory"])
    others.add("theirs", "1 / 0\n", collectors=[("odd", "Odd")])
    assert build_collectors(config(collector=["host"])).keys() == {"memory"}


def test_a_collector_that_was_named_and_cannot_be_loaded_is_an_error(installed):
    with pytest.raises(NotLoaded, match="collector needy"):
        build_collectors(config(collector=["needy"]))


def test_what_is_not_wanted_is_not_even_imported(installed, caplog):
    assert "needy" not in build_collectors(config(no_collector=["needy", "broken"]))
    assert not caplog.records
    assert build_collectors(config(collector=["needy", "load"], no_collector=["needy"])).keys() == {"load"}


def test_sinks_are_built_as_configured(installed):
    made = build_sinks(config(sink=["brief", "kept"], sinks={"kept": {"size": 3, "window": 9}}, interval=1.0))
    assert list(made) == ["brief", "kept"]
    assert made["kept"].config.size == 3


def test_sinks_of_one_kind_are_built_each_as_its_own_table_says(installed, tmp_path):
    tables = {"a": {"type": "kept", "size": 3}, "b": {"type": "kept", "size": 4}}
    made = config(sinks=tables, sink=["a", "b"], spool=str(tmp_path))
    sinks = build_sinks(made)
    assert {name: sink.config.size for name, sink in sinks.items()} == {"a": 3, "b": 4}
    assert [spool_path(name, sink, tmp_path) for name, sink in sinks.items()] == [tmp_path / "a.db", tmp_path / "b.db"]


def test_a_sink_that_cannot_be_loaded_is_reported_by_name_with_what_its_kind_needs(installed):
    with pytest.raises(NotLoaded) as caught:
        build_sinks(config(sinks={"a": {"type": "needy"}}, sink=["a"]))
    assert str(caught.value) == "sink a cannot be loaded: No module named 'no_such_library'"


@pytest.mark.parametrize(
    ("first", "second", "reported"),
    [
        ({}, {}, True),
        ({}, {"place": "there"}, False),
        ({"place": ""}, {"place": ""}, False),
        ({"place": "broken"}, {"place": "broken"}, False),
        ({"include": ["x.*"]}, {"exclude": ["x.*"]}, False),
        ({"include": ["x.*"]}, {"include": ["x.load"]}, True),
    ],
)
def test_two_sinks_that_send_the_same_to_one_place_are_logged(installed, first, second, reported):
    tables = {"a": {"type": "placed", **first}, "b": {"type": "placed", **second}}
    made = config(sinks=tables, sink=["a", "brief", "b"], collector=["load"])
    line = "x.load (and perhaps more) goes where a sends it, too: set include or exclude in one"
    assert list(duplicates(build_sinks(made), made, build_collectors(made))) == ([("b", line)] if reported else [])


def test_the_level_is_the_highest_that_any_sink_wants(installed):
    assert level_wanted(config(sink=["brief"])) is Level.BASIC
    assert level_wanted(config(sink=["brief"], level="detailed")) is Level.DETAILED
    assert level_wanted(config(sink=["brief"]), Level.DETAILED) is Level.DETAILED
    both = config(sink=["brief", "kept"], sinks={"kept": {"level": "all"}})
    assert level_wanted(both) is Level.ALL
    lower = config(sink=["brief"], level="all", sinks={"brief": {"level": "basic"}})
    assert level_wanted(lower) is Level.BASIC


def test_samplers_collect_at_that_level(installed):
    made = config(sink=["brief"], level="detailed")
    (sampler,), _ = build_sources(build_collectors(dataclasses.replace(made, collector=("load",))), {}, made)
    assert (sampler.name, sampler._given.level) == ("load", Level.DETAILED)


# -- where spools live ------------------------------------------------------------------------------------------------


def test_only_a_durable_sink_has_a_file(installed, tmp_path):
    made = config(sink=["kept", "brief"], spool=str(tmp_path))
    sinks = build_sinks(made)
    assert spool_path("kept", sinks["kept"], tmp_path) == tmp_path / "kept.db"
    assert spool_path("brief", sinks["brief"], tmp_path) is None


# -- validating -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"sink": ["kept"], "sinks": {"kept": {"size": 10}}}, "sinks.kept: size is at most 9"),
        ({"sink": ["kept"], "sinks": {"kept": {"flush": -1}}}, "sinks.kept.flush: "),
        ({"collector": ["load"], "collectors": {"load": {"laod": 1}}}, "collectors.load.laod: no such option; did you mean load?"),
        ({"processors": {"jobs": {"dimension": ["user"]}}}, "processors.jobs.dimension: no such option; did you mean dimensions?"),
        ({"collector": ["load"], "names": "nobodys"}, "--names nobodys: no such naming profile"),
        ({"collector": ["load"], "dims": {"team": "caf\udce9"}}, "--dim 'team'='caf\\udce9': expected UTF-8"),
    ],
)  # fmt: skip
def test_validating_finds_what_assembling_would(installed, tmp_path, options, line):
    made = {"collector": ["load"], "spool": str(tmp_path / "spool"), **options}
    for step in (validate, lambda config: assemble(config, Dimensions)):
        with pytest.raises(ConfigError) as caught:
            step(config(**made))
        assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("globs", "options", "says"),
    [
        (["memory.usd"], {}, "no metric fits 'memory.usd'; did you mean memory.used or tpu.memory.used?"),
        (["cpu.*", "xyzzy*"], {"collector": ["cpu"]}, "no metric fits 'xyzzy*'; `chipwatch list` prints all"),
        (["cpu.*", "disk.*"], {}, "no metric of the collectors that run fits cpu.*, disk.*"),
        (["agent.sink.*"], {}, "all metrics that fit are of level detailed or above; set level to detailed"),
    ],
)
def test_a_glob_that_fits_no_metric_is_refused(installed, tmp_path, globs, options, says):
    for key in ("include", "exclude") if says.startswith("no metric fits") else ("include",):
        own = {"collector": ["memory", "textfile"], "sinks": {"kept": {key: globs}}, "sink": ["kept"]} | options
        for step in (validate, lambda config: assemble(config, Dimensions)):
            with pytest.raises(ConfigError) as caught:
                step(config(**own, spool=str(tmp_path)))
            assert str(caught.value) == f"sinks.kept.{key}: {says}"


def test_a_glob_for_metrics_of_a_collector_that_does_not_run_is_fine_beside_others(installed):
    own = {"sink": ["kept"], "sinks": {"kept": {"include": ["memory.*", "gpu.*"]}}}
    validate(config(collector=["memory"], **own))
    validate(config(collector=["memory"], sink=["kept"], sinks={"kept": {"include": ["agent.*"], "level": "all"}}))


def test_an_include_may_name_what_only_an_endpoint_has(installed):
    endpoints = {"openmetrics": {"endpoints": {"a": {"url": "http://127.0.0.1:9/metrics"}}}}
    own = {"sink": ["kept"], "sinks": {"kept": {"include": ["vllm:*"]}}}
    validate(config(collector=["openmetrics"], collectors=endpoints, **own))
    with pytest.raises(ConfigError, match="no metric fits 'vllm:"):
        validate(config(collector=["openmetrics"], **own))


def test_validating_touches_nothing(installed, tmp_path):
    validate(config(collector=["load"], sink=["kept"], spool=str(tmp_path / "spool")))
    assert not (tmp_path / "spool").exists()


# -- the whole --------------------------------------------------------------------------------------------------------


def test_the_agent_watches_itself_whatever_was_chosen(start):
    ran = start(sink=["brief"], collector=["load"])
    assert [s.name for s in ran.pipeline.samplers] == ["load", "agent"]


def test_points_go_to_every_sink_as_it_wants_them(start, until, tmp_path):
    ran = start(
        sink=["brief", "kept"], collector=["load"], level="detailed", spool=str(tmp_path),
        sinks={"kept": {"include": ["x.*"]}, "brief": {"level": "basic"}},
    )  # fmt: skip
    ran.pipeline.tick()
    until(lambda: ran.sink("brief").points and len(ran.sink("kept").points) == 2)
    assert {p.metric.name for p in ran.sink("brief").points} == {"x.load"}
    assert {p.metric.name for p in ran.sink("kept").points} == {"x.load", "x.detail"}


class Quiet(Collector):
    """Events are counted, and there are none until `count` says so."""

    metrics = (EVENTS,)
    needs = Needs(events=[EVENTS.name])
    count = 0

    def open(self, given):
        self.given = given

    def collect(self, at):
        for kind in "ab":
            if self.given.zeros or self.count:
                yield EVENTS.point(at, self.count, Dimensions(kind=kind), start_time=1)


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, {"brief": 0}),
        ({}, {"scraped": 2}),
        ({}, {"scraped": 2, "brief": 0}),
        ({"kept": {"zeros": True}}, {"brief": 0, "kept": 2}),
        ({"scraped": {"zeros": False}}, {"scraped": 0}),
    ],
)
def test_events_are_points_before_the_first_one_only_where_a_sink_needs_them(start, until, monkeypatch, options, sent):
    quiet = Quiet()
    monkeypatch.setattr(build, "build_collectors", lambda *_: {"quiet": quiet})
    ran = start(sink=[*sent], sinks=options, level="basic")
    ran.pipeline.tick()
    assert quiet.given.zeros == any(sent.values())
    quiet.count = 1
    ran.pipeline.tick()
    until(lambda: all(len([p for p in ran.sink(name).points if p.value]) == 2 for name in sent))
    assert {name: len([p for p in ran.sink(name).points if not p.value]) for name in sent} == sent


@pytest.mark.parametrize(
    ("name", "options", "held"),
    [
        ("stdout", {"format": "json"}, {"errors"}),
        ("stdout", {"format": "json", "zeros": True}, set()),
        ("stdout", {"format": "table"}, set()),
        ("otlp", {}, set()),
        ("prometheus", {}, set()),
    ],
)
def test_json_lines_leave_out_events_that_have_not_happened_and_keep_amounts_of_0(name, options, held):
    config = load(None, {"sink": [name], "sinks": {name: options}}, env={})
    sink = build_sinks(config)[name]
    holds_zero = held_at_zero(name, sink, config, ())
    metrics = [counter("errors", "{error}", "E."), counter("sent", "By", "S."), gauge("threads", "{thread}", "T.")]
    assert {metric.name for metric in metrics if holds_zero(metric)} == held


def test_a_sinks_batches_obey_its_limits_and_its_spool_is_on_disk(start, until, tmp_path):
    ran = start(sink=["kept"], collector=["load"], level="detailed", spool=str(tmp_path / "new"))
    ran.pipeline.tick()
    ran.pipeline.tick()
    sink = ran.sink("kept")
    until(lambda: len([p for p in sink.points if p.metric.name == "x.load"]) == 2)
    assert max(sink.batches) <= 3
    assert (tmp_path / "new/kept.db").exists()


def test_nothing_is_on_disk_where_nothing_is_to_be_kept(installed, tmp_path):
    made = config(sink=["kept"], collector=["load"], spool=str(tmp_path / "new"))
    (route,) = assemble(made, Dimensions).routes
    route.close_window()
    route.spool.close()
    assert not (tmp_path / "new").exists()


def test_the_machines_dimensions_and_the_naming_profile_reach_every_point(start, until):
    ran = start(lambda: Dimensions(host="h"), sink=["brief"], collector=["memory"], names="wandb")
    ran.pipeline.tick()
    points = until(lambda: ran.sink("brief").points)
    assert {p.dims["host"] for p in points} == {"h"}
    assert {"memory_percent", "proc.memory.availableMB"} <= {p.metric.name for p in points}


@pytest.mark.parametrize(
    ("given", "name"), [({}, "system/cpu_utilization_percentage"), ({"names": "native"}, "cpu.utilization"), ({"names": "cwagent"}, "cpu_usage_active")]
)  # fmt: skip
def test_a_sink_may_bring_a_naming_profile_unless_the_user_sets_one(given, name):
    sink = MemorySink(Limits(max_points=1, names="mlflow"))
    renamer = rename.renamer(profile_of(sink, load(None, given)))
    metric = gauge("cpu.utilization", "%", "Busy share.")
    point = metric.point(1, 5.0)
    assert (renamer(point) if renamer else point).metric.name == name


def test_nothing_is_sent_before_the_machine_is_known(start, until):
    known = []
    ran = start(lambda: known[0] if known else None, sink=["brief"], collector=["load"])
    ran.pipeline.tick()
    ran.pipeline.tick()
    until(lambda: ran.pipeline.routes[0].spool.ledger.spooled == 2)
    assert ran.sink("brief").points == []
    known.append(Dimensions(host="h"))
    until(lambda: len(ran.sink("brief").points) == 2)
    assert {p.dims["host"] for p in ran.sink("brief").points} == {"h"}


def test_the_configured_window_and_flush_beat_the_sinks_own(start, until):
    ran = start(sink=["brief"], collector=["load"], window=3600.0)
    for _ in range(3):
        ran.pipeline.tick()
    assert ran.sink("brief").points == []
    ran.pipeline.close(LONG)
    point = next(p for p in ran.sink("brief").points if p.metric.name == "x.load")
    assert point.summary.count == 3


@pytest.mark.parametrize(
    "options", [{"flush": 0.0}, {"flush": 86400.0, "sinks": {"rare": {"flush": 0}}}], ids=["general", "the sink's own"]
)
def test_a_flush_of_zero_sends_at_once_what_the_sink_by_itself_sends_once_a_day(start, until, options):
    ran = start(sink=["rare"], collector=["load"], **options)
    ran.pipeline.tick()
    until(lambda: ran.sink("rare").points)


def test_a_flush_of_a_day_keeps_what_the_sink_by_itself_sends_at_once(start, until):
    ran = start(sink=["brief"], collector=["load"], flush=86400.0)
    ran.pipeline.tick()
    assert ran.sink("brief").points == []
    assert ran.pipeline.routes[0].spool.ledger.spooled
    ran.pipeline.close(LONG)
    assert ran.sink("brief").points


def test_it_stops_by_itself_when_the_last_sink_has_gone_and_not_before(start, until):
    ran = start(sink=["leaving", "brief"], collector=["load"])
    ran.pipeline.tick()
    until(lambda: ran.sink("brief").points and ran.pipeline.routes[0].spool.ledger.spooled == 0)
    assert ran.pipeline.stopped is None
    alone = start(sink=["leaving"], collector=["load"])
    alone.pipeline.tick()
    until(lambda: alone.pipeline.stopped is not None)


def test_the_agents_own_counts_are_of_these_parts(start, until):
    ran = start(sink=["brief"], collector=["load"], level="detailed")
    ran.pipeline.tick()
    ran.pipeline.tick()
    until(lambda: {p.dims.get("collector") for p in ran.sink("brief").points} >= {"load", "agent"})


@pytest.mark.parametrize(
    ("limits", "include", "wanted"),
    [
        (Limits(1), (), True),
        (Limits(1, max_series=9), (), False),
        (Limits(1, max_series=9), ("agent.spool.*", "cpu.*"), True),
    ],
    ids=["free", "paid", "paid and asked for"],
)
def test_a_sink_where_each_series_costs_gets_the_agents_own_only_on_request(limits, include, wanted):
    options = SinkOptions(level="all", include=include)
    chosen = build_filter(options, limits, Config())

    assert chosen.wants(SPOOL_BYTES) is wanted
    assert chosen.wants(INCIDENT) is not bool(include)  # the file of an incident goes to all


class Plain(Sink):
    limits = Limits(max_points=3)

    def write(self, batch):
        return ()


class Spaced(Plain):
    needs = Needs(words=("hostname", "region"))
    limits = Limits(max_points=3, spacing=10.0, window=60.0)


@pytest.mark.parametrize(
    ("options", "length"), [({}, 60), ({"window": 10.0}, 10), ({"sinks": {"kept": {"window": 20}}}, 20)]
)
def test_a_window_may_be_as_short_as_the_spacing_of_its_sink(installed, options, length):
    assert window_length("kept", Spaced(), config(interval=1.0, **options)) == length


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"window": 9.9, "interval": 1.0},
            "--window: 9.9 s is too short; kept takes two points of a series only if they are 10 s apart",
        ),
        ({"high_resolution_metrics": True, "interval": 1.0}, "1 s is too short: high_resolution_metrics asks for it"),
    ],
)
def test_a_window_shorter_than_the_spacing_is_refused_with_the_reason(installed, options, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        window_length("kept", Spaced(), config(**options))


def test_what_a_sink_needs_to_know_of_the_machine_is_hidden_from_the_others(installed):
    machine = Dimensions(hostname="h", region="r", team="t")
    asked = config(common_dims=["hostname"], dims={"team": "t"})
    sought = ("hostname", "region")

    hinted = view(lambda: machine, Spaced(), asked, sought)()
    plain = view(lambda: machine, Plain(), asked, sought)()

    assert dict(hinted) == {"hostname": "h", "team": "t", "@hostname": "h", "@region": "r"}
    assert dict(plain) == {"hostname": "h", "team": "t"}


def test_what_is_seen_of_the_machine_changes_when_it_does_and_is_made_once(installed):
    known = [None]
    common = view(lambda: known[-1], Spaced(), config(), ("region",))
    assert common() is None
    known.append(Dimensions())
    assert dict(common()) == {}
    known.append(Dimensions(region="r"))
    assert dict(common()) == {"@region": "r"}
    assert common() is common()


# -- who holds a device ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sink", "names", "own", "labels"),
    [
        ("prometheus", "dcgm", {}, ("pod", "namespace", "container", "hpc_job")),
        ("prometheus", "dcgm4.7", {}, ("pod", "namespace", "container", "hpc_job")),
        ("prometheus", "native,dcgm", {}, ("pod", "namespace", "container", "hpc_job")),
        ("prometheus", "dcgm", {"owner_labels": []}, ()),
        ("prometheus", "native", {}, ()),
        ("prometheus", "native", {"owner_labels": ["job", "user"]}, ("job", "user")),
        ("otlp", "dcgm", {}, ()),
        ("otlp", "native", {"owner_labels": ["pod"]}, ("pod",)),
        ("cloudwatch", "native", {}, ()),
    ],
)
def test_a_page_with_names_of_dcgm_says_who_holds_a_device_and_other_sinks_on_request(sink, names, own, labels):
    options = config(sink=[sink], names=names, sinks={sink: own})
    if sink == "cloudwatch":
        pytest.importorskip("botocore")
    (made,) = build_sinks(options).values()
    assert tuple(build.owner_labels(sink, made, options)) == labels


def test_a_route_that_did_not_ask_for_labels_knows_nothing_of_them(start):
    routes = start(sink=["kept", "rare"], sinks={"rare": {"owner_labels": ["pod"]}}).pipeline.routes
    assert [route.owners is not None for route in routes] == [False, True]


def test_an_owner_label_that_does_not_exist_is_refused_by_its_name():
    with pytest.raises(ConfigError, match="owner_labels"):
        build.validate(config(sink=["stdout"], sinks={"stdout": {"owner_labels": ["pid"]}}))
