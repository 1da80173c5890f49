"""Answers that no CloudWatch gives: a proxy, a captive portal, a broken server. None of them counts as sent or as bad data."""

import gzip
import logging

import pytest
from tests.doubles.raw import BODIES, OK, STATUSES, WRECKS, RawServer, http

from chipwatch.contract.errors import BadBatch, Refused, Retryable


@pytest.fixture
def answered(make_sink, points):
    """Return a function that writes to a server which gives `answers`, and returns what came of each."""

    def ask(*answers):
        with RawServer(answers) as server:
            sink = make_sink(endpoint_url=server.url)
            ends = []
            for _ in answers:
                try:
                    ends.append(sink.write(points(2)))
                except (Retryable, Refused, BadBatch) as problem:
                    ends.append(problem)
            assert len(server.requests) == len(answers), "a request is made once, and no redirection is followed"
            return ends

    return ask


@pytest.mark.parametrize("status", STATUSES)
def test_no_odd_body_is_taken_for_an_answer_of_the_service(answered, caplog, status):
    caplog.set_level(logging.INFO)
    bodies = {name: body for name, body in BODIES.items() if name != "member" or status < 300}

    ends = answered(*(http(status, body, "Content-Type: text/html", "Location: /") for body in bodies.values()))

    assert caplog.records == []
    for name, end in zip(bodies, ends, strict=True):
        passing = status < 300 or status >= 500 or status in {408, 429}
        assert type(end) is (Retryable if passing else Refused), (name, end)
        assert (f"answers {status}" if name != "huge" or status >= 300 else "more than 1048576 bytes") in str(end), name
        assert len(str(end)) < 200


@pytest.mark.parametrize("name", WRECKS)
def test_an_answer_that_breaks_off_is_tried_again(answered, name):
    (end,) = answered(WRECKS[name])
    assert isinstance(end, (Refused if name == "bad code" else Retryable))


def test_the_words_name_what_answered_and_repeat_nothing_of_the_page(answered):
    (end,) = answered(http(503, b"<html>password hunter2", "Content-Type: text/html; \x1b[31mred\r\n more" + "x" * 999))
    assert str(end).startswith("CloudWatch answers 503 with a body that is not CloudWatch's (text/html; \\x1b[31mred")
    assert str(end).endswith("): check endpoint and proxy")
    assert "hunter2" not in str(end)
    assert "\x1b" not in str(end)


ID = "x-amzn-RequestId: 1"
JSON = "Content-Type: application/x-amz-json-1.0"


def test_a_success_has_status_200_the_request_id_and_an_empty_body_or_an_object(answered):
    bodies = (b"", b"{}", b' {"more": 1}\n')
    assert answered(OK, *(http(200, body, ID, "Content-Type: text/html") for body in bodies)) == [[]] * 4


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (http(200, b"{}", JSON), "without x-amzn-RequestId"),
        (http(200, b"", JSON), "without x-amzn-RequestId"),
        (http(200, b"{}", "x-amzn-RequestId:  "), "without x-amzn-RequestId"),
        (http(200, b"{}", "x-amz-request-id: 1"), "without x-amzn-RequestId"),
        (http(201, b"{}", ID), "201 instead of 200"),
        (http(202, b"{}", ID), "202 instead of 200"),
        (b"HTTP/1.1 204 No Content\r\nx-amzn-RequestId: 1\r\n\r\n", "204 instead of 200"),
        (http(200, BODIES["page"], ID, JSON), "not CloudWatch's"),
        (http(200, b"<html>Welcome, log in</html>", ID, JSON), "not CloudWatch's"),
        (http(200, b"odd", ID), "not CloudWatch's"),
        (http(200, b" ", ID), "not CloudWatch's"),
        (http(200, b"\r\n", ID), "not CloudWatch's"),
        (http(200, b"\xef\xbb\xbf{}", ID), "not CloudWatch's"),
        (http(200, "{}".encode("utf-16"), ID), "not CloudWatch's"),
        (http(200, b"[]", ID), "not CloudWatch's"),
        (http(200, b"null", ID), "not CloudWatch's"),
        (http(200, b"{}{}", ID), "not CloudWatch's"),
        (http(200, b'{"__type": 5}', ID), "not CloudWatch's"),
        (http(200, gzip.compress(b"{}"), ID, JSON, "Content-Encoding: gzip"), "not CloudWatch's"),
        (http(200, b"", ID, "Content-Length: 500"), "not valid HTTP"),
        (http(200, b'{"__type": "InternalFailure"}', ID, JSON), "answers 200 InternalFailure"),
        (http(200, b'{"__type": null}', ID, JSON), "answers 200"),
        (http(200, b'{"__type": "com.amazonaws.cloudwatch#AccessDenied"}', ID, JSON), "answers 200 AccessDenied"),
        (http(200, b'{"a"', ID, JSON, length=500), "incomplete"),
    ],
)  # fmt: skip
def test_what_only_resembles_a_success_is_tried_again(answered, answer, words):
    (end,) = answered(answer)
    assert type(end) is Retryable
    assert words in str(end)


def test_a_redirection_takes_no_credentials_elsewhere(make_sink, points):
    with RawServer([OK]) as elsewhere:
        moved = [http(status, b"", f"Location: {elsewhere.url}/") for status in (301, 302, 307, 308)]
        with RawServer(moved) as server:
            sink = make_sink(endpoint_url=server.url)
            for _ in moved:
                with pytest.raises(Refused, match="answers 30"):
                    sink.write(points())
    assert elsewhere.requests == []


@pytest.mark.parametrize("status", [100, 102, 103])
def test_an_interim_answer_accepts_nothing_and_hides_no_final_one(answered, status):
    early = f"HTTP/1.1 {status} Early\r\nx-amzn-RequestId: 1\r\n\r\n".encode()
    assert answered(early + OK) == [[]]
    assert type(answered(early)[0]) is Retryable
    assert type(answered(early + http(503, b"{}"))[0]) is Retryable
