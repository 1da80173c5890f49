"""A stand-in of a store with Prometheus' API: answers instant queries by a part of their text."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


class PromqlDouble:
    """Answers a query with the samples (labels, value) of each key of `answers` that is in it."""

    def __init__(self, answers=(), status=200, body=None):
        self.answers, self.status, self.body = dict(answers), status, body
        self.queries, self.heads, self.paths = [], [], []
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version, wbufsize = "HTTP/1.1", 1 << 16

            def do_POST(self):
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                double.heads.append(dict(self.headers))
                double.paths.append(self.path)
                double.queries.append(parse_qs(text)["query"][0])
                data = double.answer(double.queries[-1]) if double.body is None else double.body
                self.send_response(double.status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, query):
        found = [sample for key, samples in self.answers.items() if key in query for sample in samples]
        rows = [{"metric": labels, "value": [1.0, str(value)]} for labels, value in found]
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
