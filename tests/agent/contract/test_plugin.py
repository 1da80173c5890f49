import pytest

from chipwatch.contract.collector import Collector
from chipwatch.contract.processor import Processor
from chipwatch.contract.sink import Sink

NOTHING = {
    Collector: {"facts": (), "waits": True, "yields_others": False, "silent": None, "asking": "", "describe": ""},
    Processor: {"job_dims": (), "saved": None, "answer": {}, "describe": ""},
    Sink: {"waits": True, "destination": {}, "saved": None, "find": "", "prepare": False, "describe": ""},
}


@pytest.mark.parametrize("base", NOTHING)
def test_what_a_plugin_does_not_write_says_nothing_and_may_wait(base):
    plugin = type("Bare", (base,), dict.fromkeys(base.__abstractmethods__))()
    for name, nothing in NOTHING[base].items():
        arguments = [[]] if name in {"find", "prepare"} else []
        assert getattr(plugin, name)(*arguments) == nothing
