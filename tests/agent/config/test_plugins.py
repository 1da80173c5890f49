from __future__ import annotations

import subprocess
import sys

import pytest

from chipwatch.config import plugins
from chipwatch.contract.errors import ConfigError

MODULE = """
from dataclasses import dataclass
from chipwatch import Collector, Sink

class Thing(BASE):
    @dataclass
    class Config:
        pass

    def collect(self, at):
        return ()
"""


def test_every_plugin_of_this_project_is_installed():
    assert set(plugins.installed(plugins.COLLECTORS)) >= {
        "container", "cpu", "disk", "memory", "network", "pressure", "process",
    }  # fmt: skip
    assert "stdout" in plugins.installed(plugins.SINKS)


def test_plugins_come_sorted_by_name():
    assert list(plugins.installed(plugins.COLLECTORS)) == sorted(plugins.installed(plugins.COLLECTORS))


def test_a_class_is_loaded_by_its_name():
    from chipwatch.collectors.memory import MemoryCollector

    assert plugins.load(plugins.COLLECTORS, "memory") is MemoryCollector


def test_an_unknown_name_is_refused_with_those_that_are_installed(others):
    others.add("thing", MODULE, sinks=[("thing", "Thing")])
    with pytest.raises(plugins.UnknownPlugin) as caught:
        plugins.load(plugins.SINKS, "nothing")
    line = str(caught.value)
    assert line.startswith("no sink 'nothing'; installed: ")
    assert {"stdout", "thing"} <= set(line.partition("installed: ")[2].split(", "))


def test_a_plugin_of_another_distribution_is_found_as_soon_as_it_is_installed(others):
    assert "thing" not in plugins.installed(plugins.COLLECTORS)
    others.add("thing", MODULE.replace("BASE", "Collector"), collectors=[("thing", "Thing")])
    assert plugins.load(plugins.COLLECTORS, "thing").__module__ == "thing"


@pytest.mark.parametrize("group", [plugins.COLLECTORS, plugins.PROCESSORS])
@pytest.mark.parametrize("metrics", ["None", "LOAD", "('x.load',)", "(metric for metric in [LOAD])"])
def test_metrics_are_a_tuple_of_metrics(others, group, metrics):
    many, base = group.partition(".")[2], plugins.CONTRACTS[group].__name__
    module = f"from chipwatch import Processor, gauge\n{MODULE}\n    metrics, derive = METRICS, collect\n"
    module = module.replace("METRICS", metrics).replace("LOAD", "gauge('x.load', '1', 'The load.')")
    others.add("thing", module.replace("BASE", base), **{many: [("thing", "Thing")]})
    cls = plugins.load(group, "thing")
    cls.__init__ = lambda self, config: None
    with pytest.raises(ConfigError, match="metrics: expected a tuple of Metric, got "):
        plugins.build(group, "thing", cls, None)


def test_no_plugin_is_imported_before_it_is_loaded():
    program = """
import sys
from chipwatch.config import plugins
plugins.installed(plugins.COLLECTORS), plugins.installed(plugins.SINKS)
loaded = {"chipwatch.collectors", "chipwatch_sinks"} & set(sys.modules)
plugins.load(plugins.COLLECTORS, "memory")
print(loaded, sorted(m for m in sys.modules if m.startswith("chipwatch.collectors.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set() ['chipwatch.collectors.memory']\n"
