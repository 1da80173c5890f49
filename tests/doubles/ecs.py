"""An ECS task's metadata endpoint on loopback, version 4, with documents shaped as real ones (tests/fixtures/ecs)."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

FIXTURES = Path(__file__).parents[1] / "fixtures" / "ecs"
CONTAINER_ID = "/v4/9781c248-0edd-4cdb-9a93-f63cb662a5d3"


class Ecs:
    """The endpoint of one container of a task; its answers may be changed while it runs."""

    def __init__(self, platform: str) -> None:
        """Be on `ec2` or `fargate`."""
        self.answers = {
            CONTAINER_ID: (200, (FIXTURES / f"container-{platform}.json").read_bytes()),
            f"{CONTAINER_ID}/task": (200, (FIXTURES / f"task-{platform}.json").read_bytes()),
        }
        self.requests: list[str] = []
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                double.requests.append(self.path)
                status, body = double.answers.get(self.path, (404, b"404 page not found"))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}{CONTAINER_ID}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
