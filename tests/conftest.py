"""Fixtures of many tests: a clean environment, the real command, plugins of other people, the promised catalogue."""

import contextlib
import gc
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import slowest
from tests.examples import IN_CI, examples
from tests.forked import Forked
from tests.load import seconds_since

from chipwatch.commands import cli

settings.register_profile(  # how long an example takes says nothing on a machine that is busy
    "loaded",
    settings.get_profile("default"),
    deadline=None,
    derandomize=IN_CI,  # a change is judged by the same examples each time; each run elsewhere draws others
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(100),
)
settings.load_profile("loaded")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process that a test starts compiles the whole program
sys.dont_write_bytecode = False

ROOT = Path(__file__).parents[1]
LONG = 60.0
PYTHON_IGNORES = {signal.SIGPIPE, signal.SIGXFSZ}  # subprocess gives a child back their defaults
READ_AT_START = re.compile("PYTHON(?!PATH$)|LD_|LC_|LANG|MALLOC_")
STARTED_WITH = dict(os.environ)
OURS = re.compile("CHIPWATCH_|SLURM_|STATE_DIRECTORY$|XDG_STATE_HOME$|PYTHONUNBUFFERED$")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Look for garbage after the collection alone: it makes a million objects that stay, which take a third of it."""
    del session
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):  # one process runs them as they stand: a fixture of a module is made once
        items[:] = [items[n] for n in slowest.first([item.nodeid for item in items], slowest.listed())]


@pytest.fixture
def at_the_end():
    """Return an ExitStack that is closed after the test."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session", autouse=True)
def _processes_take_signals():
    """
    Let processes that a test starts take every signal, as on a terminal, also under nohup or a CI that ignores some.

    A process inherits an ignored signal, but not a handler: so this process stays as immune as it was.
    """
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
    changed = [number for number in ignored if number not in PYTHON_IGNORES]
    for number in changed:
        signal.signal(number, lambda *_: None)
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number in changed:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    for name in [name for name in os.environ if OURS.match(name)]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _no_log_level_left_behind():
    root = logging.getLogger()
    before, handlers = root.level, root.handlers[:]
    logging.disable(logging.NOTSET)  # a fixture of a module may have run the command before
    yield
    root.setLevel(before)
    root.handlers[:] = handlers
    logging.disable(logging.NOTSET)


@pytest.fixture
def until():
    """Wait for a condition, and fail if it does not come."""

    def wait(condition, seconds=LONG):
        deadline = time.monotonic() + seconds
        begun = time.monotonic()
        while not (result := condition()):
            assert time.monotonic() < deadline, "what the test waits for does not come"
            time.sleep(
                max(0.002, min(0.1, time.monotonic() - begun))
            )  # one that starts a process has the CPU half the time
            begun = time.monotonic()
        return result

    return wait


@pytest.fixture
def newly_open():
    """Return a function for the files that were not open before; garbage of other tests may close its own meanwhile."""
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("no /proc here")

    def now():
        links = set()
        for link in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # the folder itself was open
                links.add((link.name, os.readlink(link)))  # noqa: PTH115  # a pipe has no path
        return links

    before = now()
    return lambda: now() - before


def no_nvidia(folder: Path) -> dict[str, str]:
    """Return the environment of a machine without an NVIDIA driver, on any machine; `folder` has no file of one."""
    return {f"CHIPWATCH_COLLECTORS__NVIDIA__{part}": str(folder) for part in ("PROC", "ROOT")}


# -- plugins ----------------------------------------------------------------------------------------------------


@dataclass
class Plugins:
    """A folder for sys.path that holds modules, and the metadata that makes plugins of their classes."""

    folder: Path
    points: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self):
        shutil.copy(Path(__file__).with_name("optionless.py"), self.folder)

    def add(self, module: str, source: str, collectors=(), sinks=(), processors=(), *, advisors=()) -> None:
        """Write a module; the others are pairs of a plugin's name and its class."""
        (self.folder / f"{module}.py").write_text(textwrap.dedent(source))
        for group, pairs in (
            ("chipwatch.collectors", collectors),
            ("chipwatch.sinks", sinks),
            ("chipwatch.processors", processors),
            ("chipwatch.advisors", advisors),
        ):
            self.points.setdefault(group, {}).update({name: f"{module}:{of}" for name, of in pairs})
        info = self.folder / "others_plugins-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others-plugins\nVersion: 1\n")
        lines = [
            line
            for group, points in self.points.items()
            for line in (f"[{group}]", *(f"{name} = {of}" for name, of in points.items()), "")
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def plugins_folder(tmp_path):
    """Plugins for a separate agent: give their folder as PYTHONPATH."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    return Plugins(folder)


@pytest.fixture
def others(plugins_folder, monkeypatch):
    """Plugins that this process sees; their modules are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(plugins_folder.folder)
    yield plugins_folder
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(plugins_folder.folder)):
            del sys.modules[name]


# -- the real command -------------------------------------------------------------------------------------------


class Running:
    """An agent that runs, with what it has printed so far in files."""

    def __init__(self, command, env, folder, **options):
        self.out, self.err = folder / "out.jsonl", folder / "err.txt"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command, **{"stdout": out, "stderr": err, "stdin": subprocess.DEVNULL, "env": env, **options}
            )
        self.pid = self.process.pid

    def points(self):
        """Return the whole lines printed so far, as objects; fail where it has ended by an error."""
        assert not self.process.poll(), self.errors()
        return [json.loads(line) for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def errors(self):
        return self.err.read_text()

    def stop(self, number=signal.SIGTERM):
        """Send a signal; return the exit code and how many seconds it took, as on a machine with nothing else to do."""
        begun = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(LONG)
        return code, seconds_since(begun)


def is_read_at_start(env):
    """Return True if Python reads something of this environment as it starts, which this process was not given."""
    own = any(READ_AT_START.match(name) and STARTED_WITH.get(name) != value for name, value in env.items())
    return own or any(Path(place, "sitecustomize.py").exists() for place in env.get("PYTHONPATH", "").split(os.pathsep))


@dataclass
class Agent:
    """The real command, in a separate environment."""

    command: list[str]
    folder: Path
    forked: Callable[[], Forked] | None = None
    started: list[Running] = field(default_factory=list)

    def env(self, **more):
        """Return this environment without an agent's settings, with a separate state folder and `more`."""
        own = {k: v for k, v in os.environ.items() if not OURS.match(k)} | {"STATE_DIRECTORY": self.folder / "state"}
        return {k: str(v) for k, v in (own | more).items()}

    def run(self, *words, env=None, **options):
        """
        Run to the end; return what subprocess.run returns. With --once, 0.1 s pass between the two readings, not 1 s.

        Python itself starts only where `options` or variables that it reads at its start ask for more.
        """
        words = [*map(str, words)]
        env = self.env(**({"CHIPWATCH_INTERVAL": 0.1} if "--once" in words else {}) | (env or {}))
        if self.forked and not options and not is_read_at_start(env):
            return self.forked().run(words, env)
        options = {"capture_output": True, "timeout": LONG, "text": True, "stdin": subprocess.DEVNULL} | options
        return subprocess.run([*self.command, *words], env=env, check=False, **options)

    def start(self, *words, env=None, **options):
        """Run in the background until the test ends."""
        folder = self.folder / f"agent{len(self.started)}"
        folder.mkdir()
        running = Running([*self.command, *map(str, words)], self.env(**(env or {})), folder, **options)
        self.started.append(running)
        return running


@pytest.fixture(scope="session")
def agent_command():
    """The command as it was installed."""
    found = shutil.which("agent", path=sysconfig.get_path("scripts"))
    assert found, "the project is not installed for this Python: `make test` does that"
    return [found]


@pytest.fixture(scope="session")
def loaded():
    """Return what has loaded the program and forks its runs; it begins with the first that asks for it."""
    with contextlib.ExitStack() as stack:
        yield cache(lambda: stack.enter_context(Forked(ROOT)))


@pytest.fixture
def agent(agent_command, loaded, tmp_path):
    """Run the real command."""
    made = Agent(agent_command, tmp_path, loaded)
    yield made
    for running in made.started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait(LONG)


@pytest.fixture
def here(monkeypatch, capfd, tmp_path):
    """Run the command in this process; return what subprocess.run returns. For what is refused before anything runs."""

    def run(*words, env=None):
        for name, value in ({"STATE_DIRECTORY": tmp_path / "state"} | (env or {})).items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(SystemExit) as end:
            cli.main([*map(str, words)])
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(words, end.value.code, out, err)

    return run


# -- the catalogue ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Promise:
    """A metric as the catalogue promises it."""

    name: str
    kind: str
    unit: str
    dims: tuple[str, ...]
    level: str


def promised(text: str) -> list[Promise]:
    """Return the rows of the catalogue's tables of the host and of the watched processes, one a metric."""
    promises = []
    for table in re.findall(r"^## (?:Host|The watched process tree).*?(?=^## )", text, re.MULTILINE | re.DOTALL):
        for line in [line for line in table.splitlines() if line.startswith("| ")][1:]:
            names, kind, units, dims, level, *_ = (cell.strip() for cell in line.strip("|").split("|"))
            whole = _spelt_out(names)
            units = [unit.split()[0] for unit in units.split(", ")]
            dims = [word.strip() for word in re.sub(r"\(.*?\)", "", dims).split(",") if word.strip()]
            for n, name in enumerate(whole):
                promises.append(
                    Promise(
                        name,
                        {"G": "gauge", "C": "counter"}[kind],
                        units[n] if len(units) == len(whole) else units[0],
                        tuple(dims),
                        level.split(",")[0],
                    )
                )
    return promises


def _spelt_out(cell: str) -> list[str]:
    """`a.b.sent, .received` are a.b.sent and a.b.received."""
    names: list[str] = []
    for word in filter(None, cell.split(", ")):
        names.append(names[0].rpartition(".")[0] + word if word.startswith(".") else word)
    return names


@pytest.fixture(scope="session")
def catalogue():
    """All that the catalogue promises of the host and of watched processes."""
    found = promised((ROOT / "tests/fixtures/catalogue.md").read_text())
    assert len(found) == 47
    return found
