"""Configurations from flags, the environment and a file, good and bad: each is one, or a line that says why not."""

import contextlib
import functools
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest import mock

from tests.search.figures import Figures
from tests.search.mutants import Mutator
from tests.search.parsers import _uncommented

from chipwatch.base.redaction import one_line
from chipwatch.commands import command_line
from chipwatch.commands.sample import sample_config
from chipwatch.config import instances, plugins
from chipwatch.config import load as config
from chipwatch.contract.errors import ConfigError
from chipwatch.engine import build

FLAGS = {
    "--sink": ("stdout", "cloudwatch", "google"),
    "--collector": ("cpu", "memory", "disk", "neuron", "openmetrics", "tpu"),
    "--no-collector": ("nvidia", "cpu"),
    "--interval": ("1", "0.1", "86400"),
    "--window": ("0", "60"),
    "--flush": ("0", "30"),
    "--level": ("basic", "detailed", "all"),
    "-d": ("instance_id,hostname", "run_id", "neuron_runtime_tag"),
    "--dim": ("a=b", "site=Zürich", "x=y z"),
    "-n": ("Chipwatch", "AWS/EC2", ":x"),
    "-r": ("eu-west-1", "nowhere"),
    "--project": ("some-project", "123456"),
    "--endpoint-url": ("http://127.0.0.1:1", "http://user:secret@host"),
    "--high-resolution-metrics": (),
    "--stdin": ("neuron",),
    "--pid": ("1",),
    "--format": ("json", "table"),
    "--names": ("native", "wandb", "mlflow", "cwagent", "neuron-prometheus"),
    "--spool": ("/tmp/spool",),
    "--health": ("9100", "[::1]:9100"),
    "--log-level": ("debug", "error"),
    "--once": (),
    "--duration": ("1",),
}
NAMES = """
SINK COLLECTOR INTERVAL WINDOW LEVEL DIMS__SITE DIMS NAMES COMMON_DIMS SPOOL SPOOL_BYTES HEALTH PID LOG_LEVEL STDIN X
SINKS__CLOUDWATCH__NAMESPACE SINKS__GOOGLE__TIMEOUT SINKS__STDOUT__FORMAT SINKS__X__Y SINKS__
COLLECTORS__OPENMETRICS__ENDPOINTS COLLECTORS__DISK__PATHS COLLECTORS__NEURON__PATH COLLECTORS__TPU
"""
VARIABLES = [f"CHIPWATCH_{name}" for name in NAMES.split()]
ODD = (
    "", "-1", "0", "nan", "inf", "1e999", "9" * 5000, "\udce9", "\x00", "a" * 5000, "²", "5", "true", "[]", "{}", "=", ",",
    "\n", "\x1b[31m", "../..", "K=V", "%s", "http://[", "http://u:p@h:99999/", "1:2:3", "\u202e", " ", "--", "-x", "None",
)  # fmt: skip
SECRET = "secret"


def flags(dice: Random) -> Iterator[str]:
    """Yield some flags, some with invalid values."""
    for flag in dice.sample([*FLAGS], dice.randint(0, 5)):
        yield flag
        good = FLAGS[flag]
        if good or dice.random() < 0.05:
            yield dice.choice(good) if good and dice.random() < 0.75 else dice.choice(ODD)
    if dice.random() < 0.05:
        yield dice.choice(("--odd", "--sink", "word", "--intervall=3", "check", "--", "--\udce9"))


def environment(dice: Random) -> dict[str, str]:
    """Return some variables; those that no system can hold are left out."""
    found: dict[str, str] = {}
    for name in dice.sample(VARIABLES, dice.choice([0, 0, 1, 2])):
        values = [value for group in FLAGS.values() for value in group]
        found[name] = (dice.choice(values) if dice.random() < 0.6 else dice.choice(ODD)).replace("\x00", "")
    return found


def outcome(argv: list[str], env: dict[str, str]) -> str:
    """Return how the program would begin: `config`, `line` for one line and exit 2; raise AssertionError."""
    told = io.StringIO()
    code, said = 0, ""
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()), mock.patch.dict(os.environ, env):
        try:
            given = command_line.parse(argv)
            loaded = config.load(getattr(given, "config", None), command_line.flags(given))
            for name in loaded.sink:
                config.sink_options(name, loaded)
            build.validate(loaded)
        except ConfigError as problem:
            code, said = 2, f"{one_line(str(problem))}\n"
        except instances.NotLoaded as problem:
            code, said = 1, f"{one_line(str(problem))}\n"
        except SystemExit as end:
            code = end.code
    said = (said + told.getvalue()).encode(errors="backslashreplace").decode()  # as standard error does
    if code:
        assert said.count("\n") == 1, f"exit {code} says {said.count(chr(10))} lines: {said[:300]!r}"
        assert said[:-1].isprintable(), f"it prints control characters: {said[:300]!r}"
    assert f":{SECRET}@" not in said, "it tells a secret"
    return {0: "config", 2: "line", 1: "not loaded"}[code]


def run(figures: Figures) -> None:
    """Make configurations until that is done or the time is over."""
    files = Mutator([_uncommented(sample_config()), *TABLES])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CHIPWATCH_")}
    quick = mock.patch.object(plugins, "installed", functools.cache(plugins.installed))  # 20 ms a call
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, clean, clear=True), quick:
        path = Path(folder) / "config.toml"
        for dice in figures.trials():
            argv, env, data = [*flags(dice)], environment(dice), b""
            if dice.random() < 0.4:
                data = dice.choice(TABLES) if dice.random() < 0.3 else files.mutant(dice)
                path.write_bytes(data)
                argv += ["--config", os.fspath(path)]
            try:
                figures.counts[outcome(argv, env)] += 1
            except Exception as problem:  # noqa: BLE001  # the finding
                text = f"{type(problem).__name__}: {str(problem)[:200]}"
                figures.fail(f"{text}; {argv} {env} {data[-120:]!r}".encode(errors="backslashreplace").decode())


TABLES = (
    b'sink = ["stdout"]\ninterval = 2\n[dims]\nsite = "here"\n[collectors.disk]\npaths = ["/"]\n',
    b'[sinks.cloudwatch]\nnamespace = "A"\nwindow = 60\nexclude = ["cpu.*"]\n[collectors.cpu]\n',
    b'[sinks.google]\nproject = "some-project"\n[sinks.google.statistic]\n"gpu.*" = "max"\n',
    b'[collectors.openmetrics.endpoints.a]\nurl = "http://127.0.0.1/metrics"\nfilters = ["x"]\nheaders = {a = "b"}\n',
)
