"""An ECS task's metadata endpoint on loopback, version 4, with documents shaped as real ones (tests/fixtures/ecs)."""

from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.doubles.web import WebDouble, give

FIXTURES = Path(__file__).parents[1] / "fixtures" / "ecs"
CONTAINER_ID = "/v4/9781c248-0edd-4cdb-9a93-f63cb662a5d3"


class Ecs(WebDouble):
    """The endpoint of one container of a task; its answers may be changed while it runs."""

    def __init__(self, platform: str) -> None:
        """Be on `ec2` or `fargate`."""
        self.answers = {
            CONTAINER_ID: (200, (FIXTURES / f"container-{platform}.json").read_bytes()),
            f"{CONTAINER_ID}/task": (200, (FIXTURES / f"task-{platform}.json").read_bytes()),
        }
        self.requests: list[str] = []
        super().__init__()
        self.url += CONTAINER_ID

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        self.requests.append(http.path)
        give(http, *self.answers.get(http.path, (404, b"404 page not found")), Content_Type="application/json")
