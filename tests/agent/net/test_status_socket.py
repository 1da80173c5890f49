"""The status socket: bounded, for its owner alone, and never in the way of a tick."""

import os
import socket
import stat
import threading
import time

import pytest

from chipwatch.net import status_socket as module
from chipwatch.net.status_socket import NAME, NoAgent, ask, serve

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")
LONG = 60


@pytest.fixture
def served(tmp_path):
    server = serve(tmp_path, {"status": lambda: {"sent": 7}, "slow": lambda: time.sleep(0.2) or {}})
    assert server is not None
    yield tmp_path
    server.close()


def raw(folder, question):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG)
        connection.connect(str(folder / NAME))
        connection.sendall(question)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def test_a_question_gets_its_answer(served):
    assert ask(served, "status") == {"sent": 7}


def test_only_its_owner_may_open_it(served):
    assert stat.S_IMODE(os.lstat(served / NAME).st_mode) == 0o600


@pytest.mark.parametrize("question", [b"nonsense\n", b"\xff\xfe\n", b"\n", b"x" * 64])
def test_an_unknown_question_is_answered_with_the_list_of_questions(served, question):
    assert b"no such question; choose from: status, slow" in raw(served, question)
    with pytest.raises(NoAgent, match="it has another version"):
        ask(served, "nonsense")


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[" * 200_000, b"[1]", b'{"error": 1}'])
def test_an_invalid_answer_is_reported(tmp_path, body):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / NAME))
        server.listen(1)

        def answer():
            with server.accept()[0] as connection:
                connection.recv(64)
                connection.sendall(body)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NoAgent):
            ask(tmp_path, "status")
        thread.join()


def test_a_client_that_says_nothing_costs_the_others_a_moment(served, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.connect(str(served / NAME))
        assert raw(served, b"status\n") == b'{"sent": 7}\n'


def test_many_clients_at_once_are_all_answered(served):
    answers = []
    clients = [threading.Thread(target=lambda: answers.append(ask(served, "status"))) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(LONG)
    assert answers == [{"sent": 7}] * 8


def test_one_that_was_left_behind_is_replaced(tmp_path):
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / NAME))
    server = serve(tmp_path, {"status": dict})
    assert ask(tmp_path, "status") == {}
    server.close()
    assert not (tmp_path / NAME).exists()
    server.close()


def test_without_an_agent_it_says_where_it_looked(tmp_path):
    with pytest.raises(NoAgent, match=f"no agent answers at {tmp_path / NAME}"):
        ask(tmp_path, "status")


def test_an_agent_that_has_ended_is_named_as_such(tmp_path):
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / NAME))
    with pytest.raises(NoAgent, match="the agent that made it has ended; start `chipwatch`, ask as its user"):
        ask(tmp_path, "status")


def test_a_folder_whose_path_is_too_long_costs_the_socket_alone(tmp_path):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    assert serve(deep, {}) is None


def test_an_answer_without_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_ANSWER", 1000)
    server = serve(tmp_path, {"status": lambda: {"x": "y" * 100_000}})
    with pytest.raises(NoAgent, match="does not finish"):
        ask(tmp_path, "status")
    server.close()
