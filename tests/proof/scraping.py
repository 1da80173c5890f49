"""A Prometheus that runs, and an agent that it scrapes."""

import http.client
import json
import subprocess
import urllib.parse

import yaml
from tests.ports import free_port

LONG = 60.0


class Prometheus:
    """A server with its data in `folder`, and its HTTP API."""

    def __init__(self, programs, folder, target, *, rules=(), **scrape):
        self.port, self.log = free_port(), (folder / "prometheus.log").open("wb")
        job = {"job_name": "chipwatch", "static_configs": [{"targets": [target]}], **scrape}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [job],
        }
        config |= {"rule_files": [str(rule) for rule in rules]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.process = subprocess.Popen(
            [programs / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(LONG)
        self.log.close()

    def ask(self, path, **query):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
            return json.loads(connection.getresponse().read()).get("data")
        except (ConnectionRefusedError, json.JSONDecodeError):  # it starts
            return None
        finally:
            connection.close()

    def value(self, query, at=None):
        """Return the value of the one series of a query, or None."""
        found = (self.ask("query", query=query, **({"time": at} if at else {})) or {}).get("result") or []
        return float(found[0]["value"][1]) if len(found) == 1 else None


def start(agent, port, *words, **env):
    return agent.start(
        "--sink", "prometheus", "--sink", "stdout", "--format", "json", *words,
        env={"CHIPWATCH_SINKS__PROMETHEUS__LISTEN": f"127.0.0.1:{port}", **env},
    )  # fmt: skip
