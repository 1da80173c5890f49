"""Who is to blame, by what the service says and by nothing else."""

import pytest
from google.api_core import exceptions as failures

from agent.errors import BadBatch, Refused, Retryable
from sinks.google.answers import Answer, reason_of


def blamed(error, count=2):
    return Answer(error, count).blame("my-project")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (failures.InvalidArgument("Field name had an invalid value of projects/x"), Refused),
        (failures.InvalidArgument("The project is unknown"), Refused),
        (failures.InvalidArgument("Field timeSeries[0].metric.labels had an invalid value: a name"), BadBatch),
        (failures.InvalidArgument("Something is wrong"), BadBatch),
        (failures.OutOfRange("Something is wrong"), BadBatch),
        (failures.NotFound("projects/x"), Refused),
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
    assert Answer(error, 1).perhaps_stored is perhaps


def test_without_a_summary_nobody_says_which_points_are_refused():
    assert Answer(failures.InvalidArgument("timeSeries[0] failed with: more than one point"), 1).refused() is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the reset timestamp moved", "start older than the stored one"),
        ("One or more points were written more frequently than the maximum sampling period", "too frequent"),
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
