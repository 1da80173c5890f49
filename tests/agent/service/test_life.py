"""A run shows that it is alive, and leaves nothing behind."""

import logging
from functools import partial
from types import SimpleNamespace

import pytest

from chipwatch.commands.run import identify
from chipwatch.config.options import Config
from chipwatch.engine.clock import Pipeline
from chipwatch.net.status_socket import NoAgent, ask
from chipwatch.service import life as shown
from chipwatch.service.heartbeat import Heartbeat
from chipwatch.service.life import RETRY, show_life


def test_where_another_run_holds_the_heartbeat_it_is_taken_once_that_has_ended(tmp_path):
    config, other = Config(interval=RETRY), Heartbeat(tmp_path / "alive", RETRY)
    pipeline, common = Pipeline([], (), interval=RETRY), identify(config, 0.0)
    handlers = [*logging.getLogger().handlers]
    life = show_life(config, tmp_path, pipeline, common, {})
    pipeline.tick()
    with pytest.raises(NoAgent):
        ask(tmp_path, "status")
    other.close()
    pipeline.tick()
    assert ask(tmp_path, "status")["ticks"] == 2
    pipeline.tick()
    assert ask(tmp_path, "status")["ticks"] == 3
    life.close()
    common.close()
    assert logging.getLogger().handlers == handlers
    assert [path.name for path in tmp_path.iterdir()] == ["alive"]


def test_the_cpu_usage_is_known_ten_seconds_after_the_second_tick(monkeypatch):
    now = {"monotonic": 100.0, "process_time": 7.0}
    monkeypatch.setattr(shown, "time", SimpleNamespace(**{name: partial(now.get, name) for name in now}))
    pipeline = Pipeline([], (), interval=RETRY)
    usage = shown.CpuUsage(pipeline)
    for _ in range(3):
        assert usage.percent() is None
        pipeline.tick()
    now |= {"monotonic": 109.9, "process_time": 9.0}
    assert usage.percent() is None
    now["monotonic"] = 110.0
    assert usage.percent() == 20.0
