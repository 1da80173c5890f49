import pytest
from tests.doubles.cloudwatch import DENIED

from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.net.aws_answers import AwsError, Stale
from chipwatch.net.http_client import HttpAnswer

TOO_OLD = "The parameter MetricData.member.{}.Timestamp must specify a time within the past two weeks."


def answer(status, code, message="", operation="PutMetricData", **headers):
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
    return AwsError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}, operation)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        *(
            (400, code)
            for code in ("Throttling", "RequestLimitExceeded", "RequestThrottled", "RequestTimeout", "SlowDown")
        ),
        *((status, str(status)) for status in (408, 429, 500, 502, 503, 504)),
    ],
)
def test_a_busy_or_broken_service_is_tried_again(status, code):
    blame = answer(status, code, "MetricData.member.1").blame()
    assert type(blame) is Retryable
    assert blame.after is None
    assert code in str(blame)


@pytest.mark.parametrize(
    ("header", "after"), [("7", 7.0), ("0", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None)]
)
def test_a_delay_in_the_header_is_returned(header, after):
    assert answer(503, "ServiceUnavailable", **{"retry-after": header}).blame().after == after


def test_a_moment_that_the_service_names_counts_from_the_services_clock():
    moments = {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:27:30 GMT"}
    assert answer(503, "ServiceUnavailable", **moments).blame().after == 30


@pytest.mark.parametrize(
    "code", ["ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"]
)
def test_credentials_that_the_service_no_longer_knows_may_be_read_again(code):
    assert type(answer(403, code).blame()) is Stale
    assert type(answer(400, code, operation="AssumeRole").blame()) is Stale


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized"])
def test_a_missing_permission_is_refused_and_named_with_its_principal(code):
    said = str(answer(403, code, DENIED.message).blame())
    assert type(answer(403, code, DENIED.message).blame()) is Refused
    assert "cloudwatch:PutMetricData" in said
    assert "arn:aws:sts::123456789012:assumed-role/web/i-0abc" in said


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("SignatureDoesNotMatch", "Signature expired: 20261120T100000Z is now earlier than 20261120T101000Z"),
        ("InvalidSignatureException", "Signature not yet current: 20261120T100000Z is still later than"),
        ("RequestExpired", "Request has expired."),
        ("RequestTimeTooSkewed", ""),
    ],
)
def test_a_signature_that_the_clock_spoilt_is_refused_for_the_clock(code, message):
    blame = answer(403, code, message).blame()
    assert type(blame) is Refused
    assert "clock" in str(blame)


@pytest.mark.parametrize(
    "code", ["SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken", "OptInRequired"]
)
def test_no_message_that_could_hold_a_secret_is_repeated(code):
    secret = "should have been 'x-amz-security-token:FwoGZXIvYXdzE' Credential=AKIDEXAMPLE/2026"
    blame = answer(403, code, secret).blame()
    assert type(blame) is Refused
    assert code in str(blame)
    assert "FwoGZ" not in str(blame)
    assert "AKID" not in str(blame)


@pytest.mark.parametrize("code", ["RequestEntityTooLarge", "413", "RequestTooLarge"])
def test_a_body_that_is_too_large_is_halved(code):
    assert type(answer(413, code).blame()) is BadBatch


@pytest.mark.parametrize(
    "code",
    [
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "MissingParameter",
        "ValidationError",
        "SerializationException",
    ],
)
def test_bad_data_that_nobody_names_is_halved(code):
    blame = answer(400, code, "something is wrong").blame()
    assert type(blame) is BadBatch
    assert "something is wrong" in str(blame)


@pytest.mark.parametrize(
    ("status", "code"), [(400, "400"), (400, "SomethingNew"), (302, "302"), (404, "404"), (407, "407"), (403, "403")]
)
def test_what_is_not_known_to_be_the_datas_fault_never_ends_data(status, code):
    assert type(answer(status, code, "<html>Welcome to our network</html>").blame()) is Refused


# -- which datums


def test_the_datums_that_the_service_names_are_found_each_with_a_reason():
    said = (
        TOO_OLD.format(2),
        "The parameter MetricData.member.4.Dimensions.member.1.Value is required.",
        "The collection MetricData.member.4.Values must not have a size greater than 150.",
        "The parameters MetricData.member.5 and so on.",
    )
    assert answer(400, "InvalidParameterValue", "\n".join(said)).members(5) == {
        1: "refused by the service: Timestamp",
        3: "refused by the service: Dimensions",
        4: "refused by the service",
    }


@pytest.mark.parametrize("code", ["MissingParameter", "InvalidParameterCombination", "ValidationError"])
def test_datums_are_named_under_every_code_that_blames_data(code):
    assert [*answer(400, code, TOO_OLD.format(1)).members(1)] == [0]


@pytest.mark.parametrize(
    "other",
    [
        answer(400, "InvalidParameterValue", TOO_OLD.format(0)),
        answer(400, "InvalidParameterValue", TOO_OLD.format(4)),
        answer(400, "InvalidParameterValue", "The parameter MetricData is required."),
        answer(400, "Throttling", TOO_OLD.format(1)),
        answer(500, "InternalServiceError", TOO_OLD.format(1)),
        answer(400, "InvalidParameterValue", TOO_OLD.format(1), "AssumeRole"),
    ],
)
def test_no_point_is_rejected_for_an_unknown_number(other):
    assert other.members(3) == {}


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({"x-amzn-query-error": "InvalidParameterValue;Sender"}, b'{"__type": "a#Other"}', "InvalidParameterValue"),
        ({}, b'{"__type": "com.amazonaws.cloudwatch#ValidationException"}', "ValidationException"),
        ({}, b'{"__type": "AccessDenied:http://x", "Message": "no"}', "AccessDenied"),
    ],
)
def test_the_code_of_an_error_of_the_older_protocol_comes_first(headers, body, code):
    assert AwsError.of_json(HttpAnswer(400, headers, body)).code == code


def test_a_namespace_that_is_refused_costs_no_data():
    blame = answer(400, "InvalidParameterValue", "The value AWS/x for parameter Namespace is invalid.").blame()
    assert type(blame) is Refused
    assert "AWS/x" in str(blame)


@pytest.mark.parametrize("body", [b"", b"\n\n", b"\x1f", b"{}"])
def test_an_error_without_words_is_one_by_its_status(body):
    assert str(AwsError.of_json(HttpAnswer(503, {}, body)).blame()) == "CloudWatch answers 503 503"
    assert type(AwsError.of_json(HttpAnswer(403, {}, body)).blame()) is Refused
