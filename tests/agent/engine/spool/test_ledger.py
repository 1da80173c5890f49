from hypothesis import given
from hypothesis import strategies as st

from chipwatch.engine.spool.file import Ledger

COUNT = st.integers(0, 1000)
REASONS = st.dictionaries(st.text(max_size=6), COUNT, max_size=4)


def test_each_entry_is_added_to_its_count():
    ledger = Ledger()
    ledger.add({"collected": 10, "sent": 4, "rejected:too old": 3, "dropped:spool full": 2})
    ledger.spooled += 1
    assert (ledger.collected, ledger.sent, ledger.spooled) == (10, 4, 1)
    assert ledger.rejected == {"too old": 3}
    assert ledger.dropped == {"spool full": 2}
    assert ledger.balance() == 0


def test_a_reason_may_contain_a_colon():
    ledger = Ledger()
    ledger.add({"rejected:code: 400": 1})
    assert ledger.rejected == {"code: 400": 1}


@given(COUNT, REASONS, REASONS, COUNT)
def test_the_ended_points_balance_and_make_the_same_ledger(sent, rejected, dropped, spooled):
    ledger = Ledger(sent=sent, spooled=spooled)
    ledger.rejected.update(rejected)
    ledger.dropped.update(dropped)
    ledger.collected = sent + sum(rejected.values()) + sum(dropped.values()) + spooled
    again = Ledger()
    again.add(ledger.ended())
    assert again.balance() == 0
    assert (again.sent, again.spooled) == (sent, 0)
    assert +again.rejected == +ledger.rejected
    assert +again.dropped == +ledger.dropped


def test_its_text_is_the_equation():
    ledger = Ledger()
    ledger.add({"collected": 10, "sent": 4, "rejected:too old": 2, "rejected:bad": 1, "dropped:bug": 0})
    ledger.spooled = 3
    assert str(ledger) == "collected 10 = sent 4 + rejected 3 (bad 1, too old 2) + dropped 0 + spooled 3"
