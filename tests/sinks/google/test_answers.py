"""The class of an error follows from the service's answer alone."""

import pytest
from google.api_core import exceptions as failures
from google.cloud.monitoring_v3 import CreateTimeSeriesSummary
from tests.sinks.google.conftest import HEAT

from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch_sinks.google import GoogleSink
from chipwatch_sinks.google.client import MonitoringError, reason_of
from chipwatch_sinks.google.history import SentHistory
from chipwatch_sinks.google.rules import AHEAD, PAST
from chipwatch_sinks.google.wire import GoogleEncoder

NOW = 1_800_000_000 * 10**9
Summary = CreateTimeSeriesSummary.pb()


def blamed(error, count=2):
    return MonitoringError(error, count).blame("my-project")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (failures.InvalidArgument("Field name had an invalid value of projects/x"), Refused),
        (failures.InvalidArgument("The project is unknown"), Refused),
        (failures.InvalidArgument("Field timeSeries[0].metric.labels had an invalid value: a name"), BadBatch),
        (failures.InvalidArgument("Something is wrong"), BadBatch),
        (failures.OutOfRange("Something is wrong"), BadBatch),
        (failures.NotFound("projects/x"), Refused),
        (failures.MethodNotImplemented("NOT known"), Refused),
        (failures.Unauthenticated("no"), Refused),
        (failures.ServiceUnavailable("later"), Retryable),
        (failures.ResourceExhausted("later"), Retryable),
        (failures.InternalServerError("later"), Retryable),
        (failures.Unknown("later"), Retryable),
        (failures.Aborted("later"), Retryable),
    ],
)
def test_blame_follows_from_code_and_message(error, kind):
    found = blamed(error)
    assert type(found) is kind
    assert "my-project" in str(found) or kind is not Refused or "NOT" in str(found) or "UNAUTHENTICATED" in str(found)


class Summarised(failures.InvalidArgument):
    """An answer with a summary of two points, of which so many arrived."""

    def __init__(self, message, stored=0):
        super().__init__(message)
        self.stored = stored

    @property
    def details(self):
        return [Summary(total_point_count=2, success_point_count=self.stored)]


@pytest.mark.parametrize(
    ("message", "stored", "refused"),
    [
        ("timeSeries[0] failed with: a label is wrong", 1, {0: "labels refused"}),
        ("timeSeries[1] failed with: a label is wrong", 1, {1: "labels refused"}),
        ("timeSeries[0-1] failed with: a label is wrong", 0, {0: "labels refused", 1: "labels refused"}),
        ("timeSeries[0-7] failed with: a label is wrong", 0, {0: "labels refused", 1: "labels refused"}),
        ("timeSeries[0,1] failed with: a label is wrong", 0, {0: "labels refused", 1: "labels refused"}),
        (
            "a label is wrong: timeSeries[0]; quota: timeSeries[1]",
            0,
            {0: "labels refused", 1: "over a quota of the project"},
        ),
        ("timeSeries[0] failed with: a label is wrong", 0, None),
        ("timeSeries[2] failed with: a label is wrong", 1, None),
        ("timeSeries[x] failed", 1, None),
        ("a label is wrong", 0, {0: "labels refused", 1: "labels refused"}),
        ("a label is wrong; quota", 0, None),
        ("a label is wrong", 1, None),
        ("timeSeries[0] failed with: what n...", 1, None),
        ("timeSeries[0] (example time", 1, None),
    ],
)
def test_the_service_names_all_refused_points_or_none(message, stored, refused):
    assert MonitoringError(Summarised(message, stored), 2).refused() == refused


@pytest.mark.parametrize(
    ("error", "perhaps"),
    [
        (failures.ServiceUnavailable("x"), True),
        (failures.DeadlineExceeded("x"), True),
        (failures.ResourceExhausted("x"), False),
        (failures.InvalidArgument("x"), False),
        (failures.PermissionDenied("x"), False),
    ],
)
def test_points_may_be_stored_unless_the_service_says_that_it_took_none(error, perhaps):
    assert MonitoringError(error, 1).perhaps_stored is perhaps


def test_without_a_summary_nobody_says_which_points_are_refused():
    assert (
        MonitoringError(failures.InvalidArgument("timeSeries[0] failed with: more than one point"), 1).refused() is None
    )


OFTEN = "One or more points were written more frequently than the maximum sampling period."
AT = "2026/03/01-10:00:00"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the reset timestamp moved", "start older than the stored one"),
        ("One or more points were written more frequently than the maximum sampling period", "too frequent"),
        (f"{OFTEN} {{Metric: m, Timestamps: {{Youngest Existing: '{AT}.000', New: '{AT}.001'}}}}", "too frequent"),
        (f"{OFTEN} {{Metric: m, Timestamps: {{Youngest Existing: '{AT}.001', New: '{AT}.001'}}}}", "out of order"),
        ("Points must be written in order", "out of order"),
        ("The unit cannot be changed", "unit or description differs from the stored one"),
        ("Quota of time series", "over a quota of the project"),
        ("Duplicate TimeSeries encountered", "twice in a request"),
        ("Value type for metric must be INT64", "type differs from the first ever sent"),
        ("Data points cannot be written in the future", "too old or too far ahead"),
        ("an unknown resource type", "resource refused"),
        ("a label is wrong", "labels refused"),
        ("anything else", "refused by the service"),
    ],
)
def test_the_services_texts_come_down_to_few_reasons(text, reason):
    assert reason_of(text) == reason


@pytest.mark.parametrize(
    ("at", "reason"),
    [(NOW - PAST - 1, "too old"), (NOW - PAST, None), (NOW + AHEAD, None), (NOW + AHEAD + 1, "too far ahead")],
)
def test_a_point_at_the_very_bounds_of_time_is_sent(at, reason):
    encoder = GoogleEncoder(SentHistory(), GoogleSink.Config(resource="generic_node"))
    sent, rejected = encoder.encode([HEAT.point(at, 1.0)], NOW)
    assert [one.reason for one in rejected] == ([reason] if reason else [])
    assert len(sent) == (not reason)
    sent, rejected = encoder.encode([HEAT.point(at, 1.0)], None)
    assert (len(sent), rejected) == (1, [])
