"""A stand-in of a store with Prometheus' API: answers instant queries by a part of their text."""

import json
from urllib.parse import parse_qs

from tests.doubles.web import WebDouble, give


class PromqlDouble(WebDouble):
    """Answers a query with the samples (labels, value) of each key of `answers` that is in it."""

    def __init__(self, answers=(), status=200, body=None):
        self.answers, self.status, self.body = dict(answers), status, body
        self.queries, self.heads, self.paths = [], [], []
        super().__init__(version="1.1")

    def handle(self, http):
        text = http.rfile.read(int(http.headers["Content-Length"])).decode()
        self.heads.append(dict(http.headers))
        self.paths.append(http.path)
        self.queries.append(parse_qs(text)["query"][0])
        give(http, self.status, self.answer(self.queries[-1]) if self.body is None else self.body)

    def answer(self, query):
        found = [sample for key, samples in self.answers.items() if key in query for sample in samples]
        rows = [{"metric": labels, "value": [1.0, str(value)]} for labels, value in found]
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()
