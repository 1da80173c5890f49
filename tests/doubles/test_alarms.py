"""The double has the states of the tables of CloudWatch's user guide: "Configuring how CloudWatch alarms treat missing data"."""

import pytest
from tests.doubles.alarms import ALARM, OK, UNKNOWN, evaluate

KEPT = "as before"
TREATMENTS = ("missing", "ignore", "breaching", "notBreaching")
VALUES = {"0": 0.0, "X": 2.0, "-": None}
ROWS = [
    (3, "0-X-X", (OK, OK, OK, OK)),
    (3, "0----", (OK, OK, OK, OK)),
    (3, "-----", (UNKNOWN, KEPT, ALARM, OK)),
    (3, "0XX-X", (ALARM, ALARM, ALARM, ALARM)),
    (3, "--X--", (ALARM, KEPT, ALARM, OK)),
    (2, "0-X-X", (ALARM, ALARM, ALARM, ALARM)),
    (2, "00X0X", (ALARM, ALARM, ALARM, ALARM)),
    (2, "0-X--", (OK, OK, ALARM, OK)),
    (2, "----0", (OK, OK, ALARM, OK)),
    (2, "---X-", (ALARM, KEPT, ALARM, OK)),
]


@pytest.mark.parametrize(("wanted", "range_", "states"), ROWS)
def test_the_rows_of_both_tables(wanted, range_, states):
    alarm = {"EvaluationPeriods": 3, "DatapointsToAlarm": wanted, "Threshold": 1, "ComparisonOperator": "GreaterThanThreshold"}  # fmt: skip
    values = [VALUES[one] for one in range_]
    found = tuple(evaluate({**alarm, "TreatMissingData": one}, values, KEPT) for one in TREATMENTS)
    assert found == states


@pytest.mark.parametrize("range_", ["----X", "---X-"])
def test_missing_data_do_not_make_an_alarm_of_a_late_breach(range_):
    """The guide: a non-breaching datapoint may still come."""
    alarm = {
        "EvaluationPeriods": 3, "DatapointsToAlarm": 3, "Threshold": 1,
        "ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": "missing",
    }  # fmt: skip
    assert evaluate(alarm, [VALUES[one] for one in range_], OK) == OK
