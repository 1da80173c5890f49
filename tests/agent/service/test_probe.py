"""The judge of the heartbeat that the agent writes; tests/agent/commands/test_health.py has its words."""

import pytest

from chipwatch.service.heartbeat import Heartbeat
from chipwatch.service.probe import NoHeartbeat, judge


@pytest.fixture
def probe():
    def is_healthy(path, *, ready):
        try:
            return judge(path, ready=ready)[0]
        except NoHeartbeat:
            return False

    return is_healthy


def test_an_agent_that_ticks_is_healthy_and_ready_unless_it_says_why_not(tmp_path, probe):
    heart = Heartbeat(tmp_path / "alive", 5)
    path = str(tmp_path / "alive")
    assert not probe(path, ready=False)  # no tick yet
    heart.beat(None)
    assert probe(path, ready=False)
    assert probe(path, ready=True)
    heart.beat('cloudwatch: no credentials, "why":null, "at":1,')
    assert probe(path, ready=False)
    assert not probe(path, ready=True)
    heart.close()
    assert not probe(path, ready=False)  # nobody holds it


def test_a_late_tick_and_a_file_without_a_heartbeat_are_not_healthy(tmp_path, probe):
    heart = Heartbeat(tmp_path / "alive", 5)
    heart.beat(None)
    with (tmp_path / "alive").open("r+b") as file:
        file.write(b'{"at":-1000000000.0,"late":15.0,"why":null}')
    assert not probe(str(tmp_path / "alive"), ready=False)
    with (tmp_path / "alive").open("wb") as file:
        file.write(b"\xff\x00")
    assert not probe(str(tmp_path / "alive"), ready=False)
    assert not probe(str(tmp_path / "none"), ready=False)
    assert not probe(str(tmp_path), ready=False)
    heart.close()
