from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.logs.text import MAX_LENGTH, duration, is_address, one_line, without_secrets


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('connect to "http://user:S3CRET@host:1/"', 'connect to "http://...@host:1/"'),
        ("http://user:S3@CRET@host/x", "http://...@host/x"),
        ("http://user:S3/CRET@host/x", "http://...@host/x"),
        ("https://S3CRET@host", "https://...@host"),
        ("proxy user:S3CRET@proxy:3128 failed", "proxy ...@proxy:3128 failed"),
        ("http://host/?a=1&access_token=S3CRET&b=2", "http://host/?a=1&access_token=...&b=2"),
        ("http://host/?X-Amz-Signature=S3CRET'", "http://host/?X-Amz-Signature=...'"),
        ("two: http://a:S3CRET@h, http://b:S3CRET@h", "two: http://...@h, http://...@h"),
        (
            "retrieving credentials from custom-process: S3CRET\nS3CRET",
            "retrieving credentials from custom-process: ...",
        ),
    ],
)
def test_the_secrets_of_an_address_are_not_told(text, told):
    assert without_secrets(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/path/me@there",
        "serviceAccount:agent@project.iam.gserviceaccount.com lacks it",
        "arn:aws:sts::123456789012:assumed-role/role/me@there",
        "3 points are kept // really",
        "/readyz?name=x",
    ],
)
def test_what_holds_no_secret_is_told_as_it_is(text):
    assert one_line(text) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("one\ntwo\r\n", r"one\ntwo"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\u202eb\u2028c\x85d\ud800", r"a\u202eb\u2028c\x85d\ud800"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_what_is_no_visible_character_is_told_by_its_escape(text, told):
    assert one_line(text) == told


def test_a_long_text_is_cut():
    assert one_line("x" * 10**6) == "x" * MAX_LENGTH + "..."


def test_an_endless_row_of_slashes_takes_no_time():
    assert len(one_line("//" * 10**5 + "@")) <= MAX_LENGTH + 3


@given(st.text(st.characters(), max_size=300), st.text(re.escape("abcXYZ019-_.~%$&'()*+,;=!@"), min_size=8))
def test_whatever_stands_around_it_a_password_is_not_told_and_the_line_is_one(around, password):
    told = one_line(f"{around} http://user:<{password}>@host/ {around}")
    assert f"<{password}>" not in told
    assert told.isprintable()


@pytest.mark.parametrize(
    "text", ["host", "ftp://host", "http://", "http://user:x/y@host", "http://h:99999", "http://[h", "http://u:a b@h"]
)
def test_an_address_that_libraries_would_stumble_over_is_none(text):
    assert not is_address(text)


@pytest.mark.parametrize(
    "text", ["http://host", "https://u:p@host:1/path?q=1", "http://[::1]:80", "http://127.0.0.1:1"]
)
def test_an_address_of_http_is_one(text):
    assert is_address(text)


@pytest.mark.parametrize(
    ("seconds", "units", "text"),
    [
        (0.04, 4, "0.0 s"), (8.31, 4, "8.3 s"), (9.96, 4, "10 s"), (59.4, 4, "59 s"), (60, 4, "1 min"), (1500, 2, "25 min"),
        (4328, 4, "1 h 12 min 8 s"), (3690, 2, "1 h 1 min"), (3608, 4, "1 h 8 s"), (86_400 * 3 + 14_401, 2, "3 d 4 h"),
    ],
)  # fmt: skip
def test_a_duration_has_its_largest_units(seconds, units, text):
    assert duration(seconds, units) == text
