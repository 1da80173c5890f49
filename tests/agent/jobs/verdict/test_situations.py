"""The verdict on each situation, by caller: situations.txt is the promise."""

import pytest
from tests.agent.jobs.verdict.situations import MISUSES, NAMELESS, SITUATIONS, TABLE, judged, rows

from chipwatch.jobs.verdict.callers import CALLERS, NOT_FIT, code_of


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_a_situation_has_the_verdict_that_a_person_would_give(situation):
    verdict = judged(situation)
    assert verdict.word == situation.word, verdict


def test_the_table_of_situations_by_caller_is_what_was_promised():
    promised = TABLE.read_text(encoding="utf-8").splitlines()
    assert [*rows()] == promised, "if this is meant, `make golden` writes it anew"
    assert len(promised) > len(SITUATIONS) + len(MISUSES) + len(NAMELESS) >= 65


def test_no_caller_gets_not_fit_for_an_unknown_state_or_a_misspelt_option():
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        name, word, *codes = line.split("\t")
        for caller, code in zip(CALLERS, codes, strict=True):
            assert (int(code) == code_of(NOT_FIT, caller)) == (word == NOT_FIT), f"{name}, {caller}"
