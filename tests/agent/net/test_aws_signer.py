"""Signatures are botocore's, and what its process finds is taken, within a limit of time."""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles import cloudwatch
from tests.doubles.cloudwatch import KEY, SECRET

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.net import aws_signer
from chipwatch.net.aws_signer import STAMP, AwsAccess, Login, Signer, ask, signature

WORD = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
PATH = st.text("abcXYZ019-._~$&'()*+,;=:@% ü", max_size=20).filter(lambda path: "." not in path)


@given(
    host=st.sampled_from(["https://a.b", "https://a.b:443", "https://a.b:444", "http://a.b:80", "http://u:p@[::1]:9"]),
    path=PATH,
    query=st.lists(st.sampled_from(["a=1", "b=2", "a=0", "A=%20"]), unique=True),
    body=st.binary(max_size=50),
    headers=st.dictionaries(st.sampled_from(["Content-Type", "X-Amz-Target", "User-Agent", "x-b"]), WORD | st.just("a  b")),
    keys=st.tuples(WORD, WORD, WORD | st.just("")),
    service=st.sampled_from(["monitoring", "ec2", "aps"]),
)  # fmt: skip
def test_a_signature_is_that_of_botocore(host, path, query, body, *, headers, keys, service):
    url = f"{host}/{path}{'?' if query else ''}{'&'.join(query)}"
    request = AWSRequest("POST", url, dict(headers), body)
    moment = datetime(2026, 11, 28, 17, 5, 9, tzinfo=UTC)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment.replace(tzinfo=None)):
        SigV4Auth(ReadOnlyCredentials(keys[0], keys[1], keys[2] or None), service, "eu-west-1").add_auth(request)
    ours = {**headers, **signature(url, body, headers, found(*keys), service, f"{moment:{STAMP}}")}
    assert {key.lower(): value for key, value in ours.items()} == {
        key.lower(): value for key, value in request.headers.items()
    }


def found(access_key="A", secret_key="s", token="", renew_at=""):
    return AwsAccess("eu-west-1", access_key, secret_key, token, renew_at)


@pytest.mark.parametrize(("left", "asked"), [(None, 1), (60, 1), (-60, 3)])
def test_credentials_are_found_again_when_it_is_time(monkeypatch, left, asked):
    renew_at = "" if left is None else time.strftime(STAMP, time.gmtime(time.time() + left))
    answers = []
    monkeypatch.setattr(aws_signer, "ask", lambda login: answers.append(login) or found(renew_at=renew_at))
    signer = Signer(Login("eu-west-1"))
    signer.open()
    for _ in range(2):
        assert "Credential=A/" in signer.sign("https://a.b/", b"", {})["Authorization"]
    assert len(answers) == asked


@pytest.fixture
def _own(monkeypatch):
    cloudwatch.isolate(monkeypatch)


@pytest.mark.usefixtures("_own")
def test_botocore_answers_from_a_separate_process(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://host:1")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    assert ask(Login("eu-west-1"))[:6] == ("eu-west-1", KEY, SECRET, "t", "", "http://host:1")


@pytest.mark.usefixtures("_own")
def test_a_lack_has_the_same_words_as_in_this_process(monkeypatch):
    with pytest.raises(Refused, match="no AWS region, nor does instance metadata name one"):
        ask(Login())
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(Refused, match="Partial credentials found in env"):
        ask(Login("eu-west-1"))


@pytest.mark.usefixtures("_own")
def test_a_program_that_hangs_is_ended_with_the_process(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    pid, config = tmp_path / "pid", tmp_path / "config"
    (tmp_path / "program.sh").write_text(f"echo $$ > {pid}; exec sleep 100")
    config.write_text(f"[default]\ncredential_process = sh {tmp_path / 'program.sh'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    code = aws_signer.PROGRAM.replace(
        "import main;", "import main; import chipwatch.net.aws_login as own; own.LIMIT = 2;"
    )
    monkeypatch.setattr(aws_signer, "PROGRAM", code)
    with pytest.raises(Retryable, match="no answer in 60 s"):
        ask(Login("eu-west-1"))
    for _ in range(100):  # the kernel ends it a moment later
        state = Path(f"/proc/{int(pid.read_text())}/stat")
        if not state.exists() or " Z " in state.read_text():
            return
        time.sleep(0.05)
    raise AssertionError("it runs on")


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize("code", ["raise SystemExit(3)", "print('[]x')", "print()"])
def test_a_process_that_fails_is_tried_again(monkeypatch, code):
    monkeypatch.setattr(aws_signer, "PROGRAM", code)
    with pytest.raises(Retryable, match="no answer in 60 s, or a broken one"):
        ask(Login("eu-west-1"))


def test_an_interpreter_that_cannot_be_started_is_named(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(Retryable, match="AWS credentials: /no/such/python: No such file"):
        ask(Login("eu-west-1"))
