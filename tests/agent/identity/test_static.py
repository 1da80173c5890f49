import os

from agent.identity.local import Static


def test_the_host_name_is_stable_and_each_run_id_is_new():
    first, second = Static().ask(["hostname"]), Static().ask(["run_id"])
    assert first.words["hostname"].value == second.words["hostname"].value == os.uname().nodename
    assert len({answer.words["run_id"].value for answer in (first, second)}) == 2
    assert len(first.words["run_id"].value) == 12
