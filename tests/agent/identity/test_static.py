import os

from agent.identity.local import Static


def test_the_host_has_a_name_and_a_run_an_id_of_its_own():
    first, second = Static().ask(["hostname"]), Static().ask(["run_id"])
    assert first.words["hostname"].value == second.words["hostname"].value == os.uname().nodename
    assert len({answer.words["run_id"].value for answer in (first, second)}) == 2
    assert len(first.words["run_id"].value) == 12
