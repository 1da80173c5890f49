import dataclasses
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from chipwatch.config import plugins
from chipwatch.config.convert import convert
from chipwatch.config.file import read_file
from chipwatch.config.load import FRAME_KEYS, SHARED, chosen, load, plugin_config, sink_options, sink_type
from chipwatch.config.options import Config
from chipwatch.contract.errors import ConfigError
from chipwatch.jobs.processor import JobsProcessor

NOTHING: Mapping[str, str] = {}


@pytest.fixture
def toml(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "agent.toml"
        path.write_text(text)
        return path

    return write


def refusal(call, *args, **kwargs) -> str:
    """Return the one line that a wrong configuration is refused with."""
    with pytest.raises(ConfigError) as caught:
        call(*args, **kwargs)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    return text


# -- where a value comes from -------------------------------------------------------------------------------------


def test_without_anything_the_defaults_hold():
    config = load(None, {}, NOTHING)
    assert config == dataclasses.replace(Config(), sink=("stdout",), interval=5.0)
    assert config.spool_bytes == 128 * 1024 * 1024


def test_flags_beat_the_environment_which_beats_the_file(toml):
    file = toml('interval = 7\nlevel = "all"\nnamespace = "file"\n')
    env = {"CHIPWATCH_LEVEL": "detailed", "CHIPWATCH_NAMESPACE": "env"}
    config = load(file, {"namespace": "flag"}, env)
    assert (config.interval, config.level, config.namespace) == (7.0, "detailed", "flag")


def test_tables_of_the_layers_are_merged_key_by_key(toml):
    file = toml('[dims]\nteam = "file"\nrole = "file"\nzone = "file"\n')
    env = {"CHIPWATCH_DIMS__ROLE": "env", "CHIPWATCH_DIMS__ZONE": "env"}
    assert load(file, {"dims": {"zone": "flag"}}, env).dims == {"team": "file", "role": "env", "zone": "flag"}


def test_the_file_may_be_named_by_the_environment_but_a_flag_wins(toml, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text("interval = 9\n")
    env = {"CHIPWATCH_CONFIG": str(toml("interval = 8\n"))}
    assert load(None, {}, env).interval == 8.0
    assert load(other, {}, env).interval == 9.0


def test_the_environment_speaks_in_the_types_of_the_options():
    env = {
        "CHIPWATCH_INTERVAL": "0.5",
        "CHIPWATCH_PID": "12",
        "CHIPWATCH_HIGH_RESOLUTION_METRICS": "true",
        "CHIPWATCH_COMMON_DIMS": "hostname, run_id",
        "CHIPWATCH_PROC": "/host/proc",
    }
    config = load(None, {}, env)
    assert (config.interval, config.pid, config.high_resolution_metrics) == (0.5, 12, True)
    assert config.common_dims == ("hostname", "run_id")
    assert config.proc == Path("/host/proc")


@pytest.mark.parametrize(
    ("flags", "env", "sinks"),
    [
        ({}, {}, ()),
        ({"sink": ["stdout"]}, {}, ("stdout",)),
        ({"format": "json"}, {}, ("stdout",)),
        ({}, {"CHIPWATCH_SINKS__STDOUT__PATH": "run.jsonl"}, ("stdout",)),
    ],
)
def test_beside_a_command_standard_output_is_a_sink_only_where_it_is_asked_for(flags, env, sinks):
    assert load(None, flags, env, wraps=True).sink == sinks
    assert load(None, flags, env).sink == ("stdout",)


def test_an_empty_variable_is_as_good_as_none():
    env = {"CHIPWATCH_PID": "", "CHIPWATCH_LEVEL": "", "CHIPWATCH_SINK": "", "CHIPWATCH_CONFIG": ""}
    assert load(None, {}, env) == load(None, {}, NOTHING)


def test_an_empty_text_in_the_file_leaves_an_option_unset(toml):
    config = load(toml('interval = ""\npid = ""\nspool = ""\n'), {}, NOTHING)
    assert (config.interval, config.pid, config.spool) == (5.0, None, None)


def test_what_kubernetes_says_of_a_service_called_chipwatch_is_passed_over_in_silence(caplog):
    env = {
        "CHIPWATCH_SERVICE_HOST": "10.0.0.1",
        "CHIPWATCH_SERVICE_PORT": "9090",
        "CHIPWATCH_SERVICE_PORT_HEALTH": "9090",
        "CHIPWATCH_PORT": "tcp://10.0.0.1:9090",
        "CHIPWATCH_PORT_9090_TCP": "tcp://10.0.0.1:9090",
        "CHIPWATCH_PORT_9090_TCP_PROTO": "tcp",
        "CHIPWATCH_PORT_9090_TCP_PORT": "9090",
        "CHIPWATCH_PORT_9090_TCP_ADDR": "10.0.0.1",
        "CHIPWATCH_HEALTH_SERVICE_HOST": "10.0.0.2",
        "CHIPWATCH_HEALTH_PORT": "tcp://10.0.0.2:80",
    }
    assert load(None, {}, env) == load(None, {}, NOTHING)
    assert not caplog.records


def test_any_other_unknown_variable_is_named_with_the_nearest_right_one_and_the_start_goes_on(caplog):
    assert load(None, {}, {"CHIPWATCH_LEVLE": "all"}).level == "basic"
    assert caplog.messages == ["CHIPWATCH_LEVLE is ignored: no such option; did you mean level?"]


# -- what is derived ----------------------------------------------------------------------------------------------


def test_the_interval_is_a_second_with_high_resolution_and_five_without():
    assert load(None, {}, NOTHING).interval == 5.0
    assert load(None, {"high_resolution_metrics": True}, NOTHING).interval == 1.0
    assert load(None, {"high_resolution_metrics": True, "interval": 3.0}, NOTHING).interval == 3.0


def test_a_sink_that_has_a_table_in_the_file_is_used_unless_sinks_are_named(toml, mine):
    file = toml("[sinks.mine]\n")
    assert load(file, {}, NOTHING).sink == ("mine",)
    assert load(file, {"sink": ["stdout"]}, NOTHING).sink == ("stdout",)


def test_case_does_not_count_in_names_and_choices(toml):
    config = load(
        toml('level = "Detailed"\n[sinks.Ops]\ntype = "stdout"\n'),
        {"sink": ["STDOUT", "ops"], "collector": ["CPU", "Gpu"], "common_dims": ["Hostname"], "names": "WandB, Node"},
        NOTHING,
    )
    assert (config.level, config.sink, config.collector) == ("detailed", ("stdout", "Ops"), ("cpu", "gpu"))
    assert (config.common_dims, config.names) == (("hostname",), "wandb,node")


def test_a_sink_named_twice_is_one():
    assert load(None, {"sink": ["stdout", "stdout"]}, NOTHING).sink == ("stdout",)


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sink.stdout = {}", "sink: expected a list, got a table; tables are [sinks.NAME]"),
        ("levle = 1", "levle: no such option; did you mean level?"),
        ("max_series = 1", "max_series: no such option; it is max_series in [sinks.NAME]"),
        ("listen = 1", "listen: no such option; it is listen in [sinks.prometheus]"),
        ('level = "many"', "level: no such choice 'many'; choose from: basic, detailed, all"),
        ("level = 3", "level: expected a text, got 3; choose from: basic, detailed, all"),
        ('interval = "x"', "interval: expected a time from 0.1 to 86400 s, such as 5, 500ms or 1m, got 'x'"),
        ("interval = 0.0", "interval: expected a time from 0.1 to 86400 s, such as 5, 500ms or 1m, got 0.0"),
        ("interval = inf", "interval: expected a time from 0.1 to 86400 s, such as 5, 500ms or 1m, got inf"),
        ("interval = nan", "interval: expected a time from 0.1 to 86400 s, such as 5, 500ms or 1m, got nan"),
        ("window = -1", "window: expected a time from 0 to 86400 s, such as 5, 500ms or 1m, got -1"),
        ('sink = "stdout"', "sink: expected a list, got 'stdout'"),
        ('sink = ["stdout", 3]', "sink[1]: expected a text, got 3"),
        ("dims = {a = 1}", "dims.a: expected a text, got 1"),
        ("dims = 3", "dims: expected a table, got 3"),
        ("collectors = 3", "collectors: expected a table, got 3"),
        ("collectors.cpu = 3", "collectors.cpu: expected a table, got 3"),
        ("spool_bytes = 3.5", "spool_bytes: expected a whole number of at least 65536, got 3.5"),
        ("spool_bytes = 3", "spool_bytes: expected a whole number of at least 65536, got 3"),
        ("pid = true", "pid: expected a whole number of at least 1, got true"),
        ("high_resolution_metrics = 1", "high_resolution_metrics: expected true or false, got 1"),
        ("proc = 1", "proc: expected a path, got 1"),
        ('root = ""', "root: expected a path, got ''"),
        ("sinks.stdout.max_series = -1", "sinks.stdout.max_series: expected a whole number of at least 0, got -1"),
        ('dims = {team = ""}', "dims.team: expected a name and a text, got 'team' = ''"),
        ('dims = {"" = "ml"}', "dims.: expected a name and a text, got '' = 'ml'"),
        ("health = 8080", "health: expected a text, got 8080"),
        ("stdin = 'neuro'", "stdin: no such collector 'neuro'; did you mean neuron?"),
        ("names = [1]", "names: expected a text, got a list"),
        ("collectors.disc = {}", "collectors.disc: no such collector; did you mean disk?"),
        ("sinks.stdot = {}", "sinks.stdot: no such sink; did you mean stdout? (or set type in [sinks.stdot])"),
        ("sinks.ops = {type = 'mein'}", "sinks.ops.type: no such sink 'mein'; did you mean mine?"),
        ("sinks.ops = {type = 3}", "sinks.ops.type: expected a text, got 3"),
        ("sinks.mine-2 = {}", "sinks.mine-2: no such sink; did you mean mine? (or set type in [sinks.mine-2])"),
        (
            "sinks.'../ops' = {type = 'mine'}",
            "sinks.../ops: a sink's name is letters and digits, with single - or _ between them",
        ),
        (
            "sinks.a__b = {type = 'mine'}",
            "sinks.a__b: a sink's name is letters and digits, with single - or _ between them",
        ),
        (
            "sinks = {a-b = {type = 'mine'}, A_b = {type = 'mine'}}",
            "sinks.A_b: too similar to sinks.a-b, since both would have the variables CHIPWATCH_SINKS__A_B__...; rename one",
        ),
    ],
)
@pytest.mark.usefixtures("mine")
def test_a_wrong_file_is_refused_by_its_name_and_path(toml, text, line):
    file = toml(text)
    assert refusal(load, file, {}, NOTHING) == f"{file}: {line}"


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("INTERVAL", "x", "CHIPWATCH_INTERVAL: expected a time from 0.1 to 86400 s, such as 5, 500ms or 1m, got 'x'"),
        ("LEVEL", "many", "CHIPWATCH_LEVEL: no such choice 'many'; choose from: basic, detailed, all"),
        ("PID", "1.5", "CHIPWATCH_PID: expected a whole number of at least 1, got '1.5'"),
        ("HIGH_RESOLUTION_METRICS", "maybe", "CHIPWATCH_HIGH_RESOLUTION_METRICS: expected true or false, got 'maybe'"),
        ("DIMS", "a=b", "CHIPWATCH_DIMS: expected a table, got 'a=b'; set CHIPWATCH_DIMS__KEY=VALUE"),
        ("RECORDER__KEP", "60", "CHIPWATCH_RECORDER__KEP: no such option; did you mean keep?"),
    ],
)
def test_a_wrong_type_in_the_environment_is_refused_by_the_name_of_the_variable(name, value, line):
    assert refusal(load, None, {}, {f"CHIPWATCH_{name}": value}) == line


@pytest.mark.parametrize("key", ["collector", "no_collector", "processor", "no_processor"])
def test_an_unknown_name_is_refused_with_its_source_and_the_nearest(toml, key):
    flag, kind = f"--{key.replace('_', '-')}", key.removeprefix("no_")
    near = "; did you mean memory?" if kind == "collector" else "; choose from: all, jobs"
    assert refusal(load, None, {key: ["memroy"]}, NOTHING) == f"{flag} memroy: no such {kind}{near}"
    variable = f"CHIPWATCH_{key.upper()}"
    assert refusal(load, None, {}, {variable: "memroy"}) == f"{variable}: no such {kind} 'memroy'{near}"
    file = toml(f'{key} = ["memroy"]')
    assert refusal(load, file, {}, NOTHING) == f"{file}: {key}: no such {kind} 'memroy'{near}"


def test_an_unknown_word_of_common_dims_is_refused_with_all_where_none_is_near():
    line = refusal(load, None, {"common_dims": ["xyzzy"]}, NOTHING)
    assert line.startswith("--common-dims xyzzy: no such dimension; choose from: account_id, ami_id, ")
    assert line.endswith(", slurm_step, user")


# -- what was silent ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["interval = '2m'", "interval = 120"])
def test_a_duration_may_have_a_unit(toml, text):
    assert load(toml(text), {"window": "180s", "flush": "500ms"}, NOTHING).interval == 120.0
    config = load(toml(text), {"flush": "500ms"}, {"CHIPWATCH_WINDOW": "3m", "CHIPWATCH_SINKS__STDOUT__FLUSH": "1h"})
    assert (config.window, config.flush) == (180.0, 0.5)
    assert sink_options("stdout", config, {"CHIPWATCH_SINKS__STDOUT__FLUSH": "1h"}).flush == 3600.0


def test_a_window_shorter_than_the_interval_is_refused_where_it_was_given(toml):
    rest = "a window of 2 s is below the interval of 5 s; set window to 5 s or more, or interval to 2 s or less"
    assert refusal(load, None, {"window": "2"}, NOTHING) == f"--window: {rest}"
    assert refusal(load, None, {}, {"CHIPWATCH_WINDOW": "2"}) == f"CHIPWATCH_WINDOW: {rest}"
    variable = "CHIPWATCH_SINKS__STDOUT__WINDOW"
    assert refusal(load, None, {"window": "9"}, {variable: "2"}) == f"{variable}: {rest}"
    file = toml("[sinks.stdout]\nwindow = 2")
    assert refusal(load, file, {}, NOTHING) == f"{file}: sinks.stdout.window: {rest}"
    assert load(file, {"interval": "2"}, NOTHING).interval == 2.0
    assert load(None, {"window": "0"}, NOTHING).window == 0.0


def test_families_stand_for_collectors():
    assert chosen("collectors", Config(collector=("gpu", "cpu"))) == ["nvidia", "amd", "intel", "apple", "gaudi", "cpu"]
    left = chosen("collectors", Config(no_collector=("gpu", "host")))
    assert {*plugins.installed(plugins.COLLECTORS)} - {*left} == {*plugins.spelt_out(("gpu", "host"), ())}
    assert chosen("collectors", Config(no_collector=("all",))) == []


@pytest.mark.parametrize(
    ("variable", "line"),
    [
        ("SINKS__STDUOT__FORMAT", "no such sink STDUOT; did you mean STDOUT?"),
        ("SINKS__STDUOT", "no such sink STDUOT; did you mean STDOUT?"),
        ("COLLECTORS__DISC__PATHS", "no such collector DISC; did you mean DISK?"),
        ("COLLECTORS__DISK__PATH", "no such option; did you mean paths?"),
        ("SINKS__CLOUDWATCH__REGOIN", "no such option; did you mean region?"),
    ],
)
def test_a_misspelt_variable_of_a_plugin_is_refused_also_where_the_plugin_does_not_run(variable, line):
    flags = {"collector": ["cpu"], "sink": ["stdout"]}
    assert refusal(load, None, flags, {f"CHIPWATCH_{variable}": "x"}) == f"CHIPWATCH_{variable}: {line}"
    assert load(None, flags, {f"CHIPWATCH_{variable}": ""}).sink == ("stdout",)


def test_a_wrong_key_in_the_table_of_a_plugin_that_does_not_run_is_refused(toml):
    file = toml("[collectors.nvidia]\nintervall = 3\n")
    line = refusal(load, file, {"collector": ["cpu"]}, NOTHING)
    assert line.startswith(f"{file}: collectors.nvidia.intervall: no such option; ")
    assert load(file, {}, NOTHING).collector == ()  # then the plugin is built, which refuses it


def test_the_table_of_a_plugin_whose_library_is_missing_is_left_alone(toml, others):
    others.add("needy", "import no_such_library", sinks=[("needy", "Needy")])
    assert load(toml("[sinks.needy]\na = 1\n"), {"sink": ["stdout"]}, NOTHING).sink == ("stdout",)


def test_a_sink_that_only_the_environment_defines_need_not_run(mine):
    env = {"CHIPWATCH_SINKS__OPS__TYPE": "mine", "CHIPWATCH_SINKS__OPS__REGION": "there"}
    assert load(None, {}, env).sink == ("stdout",)


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert (
        refusal(read_file, tmp_path / "no.toml")
        == f"configuration file {tmp_path / 'no.toml'}: No such file or directory"
    )
    assert refusal(read_file, tmp_path).startswith(f"configuration file {tmp_path}: ")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_bytes(b"\xef\xbb\xbfinterval = 3\r\n")
    assert read_file(path) == {"interval": 3}


# -- secrets --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Secretive:
    """A sink's options, some of them secret."""

    token: int = 0
    password: str = ""
    api_key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    url: int = 0
    timeout: float = 1.0
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"token": "hunter2"}, "sinks.x.token: expected a whole number, got a text"),
        ({"password": 31337}, "sinks.x.password: expected a text, got a whole number"),
        ({"api_key": ["hunter2"]}, "sinks.x.api_key: expected a text, got a list"),
        ({"headers": "Authorization: hunter2"}, "sinks.x.headers: expected a table, got a text"),
        ({"headers": {"X": 31337}}, "sinks.x.headers.X: expected a text, got a whole number"),
        ({"url": "https://me:hunter2@host/"}, "sinks.x.url: expected a whole number, got 'https://...@host/'"),
        ({"timeout": {"token": "hunter2"}}, "sinks.x.timeout: expected a number, got a table"),
        ({"names": [{"token": "hunter2"}]}, "sinks.x.names[0]: expected a text, got a table"),
    ],
)
def test_a_secret_is_never_told(table, line):
    text = refusal(convert, Secretive, table, "sinks.x")
    assert text == line
    assert "hunter2" not in text
    assert "31337" not in text


def test_a_value_of_60_characters_is_not_cut():
    for quoted, end in ((60, "x'"), (61, "xxx...")):
        line = refusal(convert, Secretive, {"timeout": "x" * (quoted - 2)}, "sinks.x")
        assert line.endswith(end)


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf")])
def test_a_price_that_cannot_be_true_is_refused(price):
    assert "expected a number from 0 to" in refusal(convert, JobsProcessor.Config, {"dollars_per_hour": price}, "jobs")


# -- options of plugins -----------------------------------------------------------------------------------------------


SOURCE = """
from __future__ import annotations
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from chipwatch.contract.sink import Limits, Sink

class Mine(Sink):
    limits = Limits(max_points=10, durable=False)

    @dataclass(frozen=True, slots=True)
    class Config:
        region: str = "here"
        tries: int = 3
        mode: Literal["fast", "slow"] = "fast"
        labels: Mapping[str, str] = field(default_factory=dict)
        format: str = "own"
        namespace: str = "Own"
        high_resolution: bool = False
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")
        root: Path = Path("/")
        pid: int | None = None

        def __post_init__(self):
            if self.tries > 100:
                raise ValueError("tries: expected at most 100")

    def __init__(self, config):
        self.config = config

    def write(self, batch):
        return ()
"""


@pytest.fixture
def mine(others):
    """A sink of somebody else's, installed as `mine`."""
    others.add("mine_module", SOURCE, sinks=[("mine", "Mine")])
    return plugins.load(plugins.SINKS, "mine")


def options(cls, config: Config, env: Mapping[str, str] = NOTHING, name: str = "mine"):
    return plugin_config(cls, "sinks", name, config, env)


def test_the_environment_of_a_plugin_beats_its_table(mine):
    config = Config(sinks={"mine": {"region": "file", "tries": 5}})
    env = {"CHIPWATCH_SINKS__MINE__REGION": "env", "CHIPWATCH_SINKS__MINE__LABELS__TEAM": "ml"}
    assert options(mine, config, env) == mine.Config(region="env", tries=5, labels={"team": "ml"})


def test_general_options_reach_every_plugin_that_has_such_a_field(mine):
    general = {
        "proc": Path("/host/proc"),
        "sys": Path("/host/sys"),
        "root": Path("/host"),
        "pid": 12,
        "format": "general",
        "namespace": "General",
    }
    assert set(general) <= set(SHARED)
    made = options(mine, Config(**general, high_resolution_metrics=True))
    assert made == mine.Config(**general, high_resolution=True)


def test_a_plugins_own_table_beats_the_general_options(mine):
    config = Config(format="general", sinks={"mine": {"format": "mine"}})
    assert options(mine, config).format == "mine"
    assert options(mine, config, {"CHIPWATCH_SINKS__MINE__FORMAT": "env"}).format == "env"


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"regoin": "x"}, "sinks.mine.regoin: no such option; did you mean region?"),
        ({"max_serie": 3}, "sinks.mine.max_serie: no such option; did you mean max_series?"),
        ({"tries": "x"}, "sinks.mine.tries: expected a whole number, got 'x'"),
        ({"mode": "x"}, "sinks.mine.mode: no such choice 'x'; choose from: fast, slow"),
        ({"labels": {"a": 1}}, "sinks.mine.labels.a: expected a text, got 1"),
        ({"tries": 101}, "sinks.mine.tries: expected at most 100"),
    ],
)
def test_a_wrong_option_of_a_plugin_is_refused_by_path(mine, table, line):
    assert refusal(options, mine, Config(sinks={"mine": table})) == line


@dataclass(frozen=True)
class Fed:
    """A collector's options that follow from the general ones."""

    stdin: bool = False
    hostname: bool = False
    region: str = "here"


def test_a_collector_learns_that_it_is_fed_or_asked_for_a_word(mine):
    cls = type("Fedcollector", (), {"Config": Fed})
    config = Config(stdin="one", common_dims=("hostname", "region"))
    assert plugin_config(cls, "collectors", "one", config, NOTHING) == Fed(stdin=True, hostname=True)
    assert plugin_config(cls, "collectors", "other", config, NOTHING) == Fed(stdin=False, hostname=True)
    line = refusal(plugin_config, mine, "collectors", "one", config, NOTHING)
    assert line == "stdin: one does not read standard input"


# -- several sinks of a kind ----------------------------------------------------------------------------------------

TWO = """
namespace = "General"
[sinks.ops]
type = "mine"
window = 30
[sinks.science-2]
type = "mine"
namespace = "Science"
"""


def test_each_sink_of_a_kind_has_its_table_and_the_general_options(mine, toml):
    config = load(toml(TWO), {}, NOTHING)
    assert config.sink == ("ops", "science-2")
    assert [sink_type(name, config, NOTHING) for name in (*config.sink, "mine")] == ["mine", "mine", "mine"]
    assert options(mine, config, NOTHING, "ops").namespace == "General"
    assert options(mine, config, NOTHING, "science-2").namespace == "Science"
    assert [sink_options(name, config, NOTHING).window for name in config.sink] == [30, None]


def test_a_sink_is_chosen_by_its_name_or_by_its_kind(mine, toml):
    file = toml(TWO)
    assert load(file, {"sink": ["science-2"]}, NOTHING).sink == ("science-2",)
    assert load(file, {"sink": ["mine"]}, NOTHING).sink == ("mine",)


def test_the_environment_reaches_a_sink_by_its_name_and_may_say_its_kind(mine):
    env = {
        "CHIPWATCH_SINK": "Science-2",
        "CHIPWATCH_SINKS__SCIENCE_2__TYPE": "mine",
        "CHIPWATCH_SINKS__SCIENCE_2__REGION": "env",
        "CHIPWATCH_SINKS__SCIENCE_2__WINDOW": "7",
    }
    config = load(None, {}, env)
    assert sink_type("Science-2", config, env) == "mine"
    assert options(mine, config, env, "Science-2").region == "env"
    assert sink_options("Science-2", config, env).window == 7


# -- what the frame does for a sink ---------------------------------------------------------------------------------


def test_a_sinks_own_options_beat_the_general_ones():
    config = Config(window=10, flush=20, level="all", sinks={"stdout": {"window": 1, "level": "detailed"}})
    made = sink_options("stdout", config, NOTHING)
    assert (made.window, made.flush, made.level) == (1, 20, "detailed")


def test_a_window_of_zero_is_a_choice_and_not_a_gap():
    assert sink_options("stdout", Config(window=10, sinks={"stdout": {"window": 0}}), NOTHING).window == 0
    assert sink_options("stdout", Config(window=0, high_resolution_metrics=True, interval=2), NOTHING).window == 0


def test_globs_come_from_the_table_or_the_environment():
    config = Config(sinks={"stdout": {"include": ["cpu.*"]}})
    assert sink_options("stdout", config, NOTHING).include == ("cpu.*",)
    env = {"CHIPWATCH_SINKS__STDOUT__EXCLUDE": "disk.*, network.*"}
    assert sink_options("stdout", config, env).exclude == ("disk.*", "network.*")


def test_no_option_of_the_frame_hides_a_general_option_that_a_sink_shares():
    assert not FRAME_KEYS["sinks"] & set(SHARED)


# -- the parts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Nested:
    """Types that are rare in options."""

    ways: Mapping[str, tuple[Literal["up", "down"], ...]] = field(default_factory=dict)
    limit: int | str = 0
    ports: Annotated[list[int], msgspec.Meta(max_length=3)] = field(default_factory=list)
    label: str = "unset"
    seed: bytes = b""


def test_the_one_wrong_item_of_a_list_is_named():
    assert refusal(convert, Nested, {"ports": [1, "x"]}, "c") == "c.ports[1]: expected a whole number, got 'x'"
    line = refusal(convert, Nested, {"ways": {"a": ["up"], "b": ["up", "left"]}}, "c")
    assert line == "c.ways.b[1]: no such choice 'left'; choose from: up, down"


ENDPOINT = {"url": "http://127.0.0.1:9/metrics"}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (ENDPOINT | {"intervall": 3}, "endpoints.a.intervall: no such option; did you mean interval?"),
        (ENDPOINT | {"interval": "x"}, "endpoints.a.interval: expected a number, got 'x'"),
        ({"url": 3}, "endpoints.a.url: expected a text, got 3"),
        (3, "endpoints.a: expected"),
    ],
)
def test_a_table_within_a_table_is_refused_by_its_whole_path(table, says):
    cls = plugins.load(plugins.COLLECTORS, "openmetrics")
    config = Config(collectors={"openmetrics": {"endpoints": {"a": table}}})
    with pytest.raises(ConfigError) as reported:
        plugin_config(cls, "collectors", "openmetrics", config, {})
    assert str(reported.value).startswith(f"collectors.openmetrics.{says}")


def test_a_path_with_a_null_byte_is_none():
    with pytest.raises(ConfigError, match=r"^--proc /pr\x00oc: expected a path$"):
        load(None, {"proc": "/pr\0oc"}, {})


@pytest.mark.parametrize("again", [False, True])
def test_a_file_without_an_end_is_refused(again):
    assert "/dev/zero: not a" in refusal(read_file, Path("/dev/zero"), again=again)


def test_a_pipe_is_a_configuration_once_but_not_again(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("interval = 3\n",))
    writer.start()
    assert read_file(pipe) == {"interval": 3}
    writer.join()
    assert "cannot be read again" in refusal(read_file, pipe, again=True)


@pytest.mark.parametrize(
    ("names", "table", "dimensions"),
    [
        ("native", {}, ()),
        ("node", {}, ()),
        ("otel", {}, ("uuid",)),
        ("dcgm", {}, ("uuid", "model", "driver")),
        ("node,dcgm4.7", {}, ("uuid", "model", "driver")),
        ("otel", {"dimensions": ["model"]}, ("model",)),
    ],
)
def test_the_names_add_the_dimensions_of_gpus_that_their_attributes_need(names, table, dimensions):
    config = load(None, {"names": names, "collectors": {"nvidia": table}}, NOTHING)
    nvidia, jobs = (plugins.load(plugins.COLLECTORS, name) for name in ("nvidia", "jobs"))
    assert plugin_config(nvidia, "collectors", "nvidia", config).dimensions == dimensions
    assert plugin_config(jobs, "collectors", "jobs", config).dimensions == (), "nobody is named unasked"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"interval = 5\ninterval = 6\n", "not TOML: a key is set twice (at line 2, column 13)"),
        (b'level = "all\n', "not TOML: a text has no closing quote (at line 1, column 13)"),
        (b'level = "\xff"\n', "not UTF-8, from byte 10 on; save it as UTF-8"),
    ],
)
def test_a_file_that_is_not_toml_is_refused_in_plain_words(tmp_path, body, says):
    file = tmp_path / "chipwatch.toml"
    file.write_bytes(body)
    with pytest.raises(ConfigError) as caught:
        load(file, {}, NOTHING)
    assert str(caught.value) == f"{file}: {says}"
