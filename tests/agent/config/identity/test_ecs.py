import pytest
from tests.doubles.ecs import CONTAINER_ID
from tests.doubles.ecs import Ecs as Double

from chipwatch.config.identity.platforms import VARIABLE, Ecs

TASK = "0f9de17a6465404e8b1b2356dc13c2f8"


@pytest.fixture
def double():
    with Double("ec2") as made:
        yield made


def values(answer):
    return {word: found.value for word, found in answer.words.items()}


def test_a_task_on_ec2_has_every_value(double):
    source = Ecs({VARIABLE: double.url})
    answer = source.ask(source.words)
    assert values(answer) == {
        "ecs_cluster": "train",
        "ecs_service": "llm",
        "ecs_task": TASK,
        "ecs_task_family": "llm-train",
        "ecs_container": "chipwatch",
        "region": "us-west-2",
        "availability_zone": "us-west-2d",
        "account_id": "123456789012",
    }
    assert answer.words["ecs_task"].origin == f"{double.url}/task"
    assert (answer.trouble, answer.retry) == ("", False)


def test_a_task_on_fargate_has_a_cluster_arn_and_no_service():
    with Double("fargate") as double:
        source = Ecs({VARIABLE: double.url})
        answer = source.ask(source.words)
        assert values(answer)["ecs_cluster"] == "train"
        assert set(source.words) - set(answer.words) == {"ecs_service"}
        assert answer.trouble == f"{double.url}/task lacks ecs_service"
        assert not answer.retry


def test_the_container_is_requested_only_if_wanted(double):
    Ecs({VARIABLE: double.url}).ask(["ecs_cluster"])
    assert double.requests == [f"{CONTAINER_ID}/task"]


def test_outside_a_task_there_is_no_request():
    source = Ecs({})
    assert not source.remote
    assert not source.is_here()
    assert source.ask(["region"]) == ({}, "ECS_CONTAINER_METADATA_URI_V4 is not set", False)


@pytest.mark.parametrize("url", ["https://169.254.170.2/v4/x", "http://ecs.example/v4/x", "http://10.0.0.7/v4/x", "x"])
def test_an_invalid_endpoint_is_refused_with_a_message(url):
    answer = Ecs({VARIABLE: url}).ask(["ecs_task"])
    assert answer.trouble.startswith(f"{VARIABLE}: expected http:// and")
    assert not answer.retry


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (500, b"", "answers 500"),
        (404, b"", "answers 404"),
        (302, b"", "answers 302"),
        (200, b"", "is not ECS metadata"),
        (200, b"{}", "is not ECS metadata"),
        (200, b'{"x": ' + b"[" * 60_000, "is not ECS metadata"),
        (200, b'{"TaskARN": "\xff"}', "is not ECS metadata"),
        (200, b'{"TaskARN": 7}', "is not ECS metadata"),
    ],
)
def test_an_invalid_answer_is_retried(double, status, body, told):
    double.answers[f"{CONTAINER_ID}/task"] = (status, body)
    answer = Ecs({VARIABLE: double.url}).ask(["ecs_task"])
    assert answer == ({}, f"{double.url}/task {told}", True)


def test_an_invalid_task_arn_gives_no_values(double):
    double.answers[f"{CONTAINER_ID}/task"] = (200, b'{"TaskARN": "nonsense", "Family": "f"}')
    assert values(Ecs({VARIABLE: double.url}).ask(["ecs_task"])) == {"ecs_task_family": "f"}


def test_an_endpoint_that_has_gone_is_retried(double):
    double.close()
    answer = Ecs({VARIABLE: double.url}).ask(["ecs_task"])
    assert answer.retry
    assert "cannot be reached" in answer.trouble
