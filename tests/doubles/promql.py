"""A stand-in of a store with Prometheus' API: answers queries by a part of their text."""

import json
from urllib.parse import parse_qs

from tests.doubles.web import WebDouble, give


class PromqlDouble(WebDouble):
    """
    Answers a query with the samples (labels, value) of each key of `answers` that is in it.

    The value of a range is a mapping from steps before its end to values.
    """

    def __init__(self, answers=(), status=200, body=None):
        self.answers, self.status, self.body = dict(answers), status, body
        self.queries, self.heads, self.paths, self.spans = [], [], [], []
        super().__init__(version="1.1")

    def handle(self, http):
        text = http.rfile.read(int(http.headers["Content-Length"])).decode()
        self.heads.append(dict(http.headers))
        self.paths.append(http.path)
        self.spans.append({key: words[0] for key, words in parse_qs(text).items()})
        self.queries.append(self.spans[-1].pop("query"))
        give(http, self.status, self.answer(self.queries[-1]) if self.body is None else self.body)

    def answer(self, query):
        found = [sample for key, samples in self.answers.items() if key in query for sample in samples]
        end, step = (int(self.spans[-1].get(key, 0)) for key in ("end", "step"))
        rows = [
            {"metric": labels, "values": [[end - step * back, text] for back, text in value.items()]}
            if isinstance(value, dict) else {"metric": labels, "value": [1.0, str(value)]} for labels, value in found
        ]  # fmt: skip
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()
