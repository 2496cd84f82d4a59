"""A small web server for the live chart: the page, and the numbers that it asks for once a second."""

import json
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from examples.analytics.batch import live_facts, summary

PAGE = Path(__file__).with_name("chart.html")


class Chart:
    """The server. It listens at once; `port` 0 takes a free one. `results`: the SQLite file, which may be missing."""

    def __init__(self, results: Path, port: int) -> None:
        self.state = "starting"
        """One word or sentence that the page shows."""
        self._results = results
        chart = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/":
                    self._answer("text/html; charset=utf-8", PAGE.read_bytes())
                elif self.path == "/results.json":
                    self._answer("application/json", json.dumps(chart.results()).encode())
                else:
                    self.send_error(404)

            def _answer(self, content_type: str, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Write no log: the page asks once a second."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def results(self) -> dict[str, object]:
        """Return the numbers of the page: the last state that Spark has stored, and the number of its batches."""
        if not self._results.exists():
            return {"state": self.state, "batches": 0, **summary({})}
        try:
            with closing(sqlite3.connect(self._results, timeout=5)) as database:
                batches = database.execute("SELECT count(*) FROM batches").fetchone()[0]
            return {"state": self.state, "batches": batches, **summary(live_facts(self._results))}
        except sqlite3.OperationalError:  # Spark is just making the tables
            return {"state": self.state, "batches": 0, **summary({})}

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
