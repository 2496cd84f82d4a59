"""A server that receives webhooks or crawl requests, and answers as it is told."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class ReceivedEvent(NamedTuple):
    """A request that came."""

    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The event."""
        return json.loads(self.raw)


class Receiver:
    """What came, in this order, and the status to answer with."""

    def __init__(self) -> None:
        self.events: list[ReceivedEvent] = []
        self.status = 204
        self.answer = b""
        self.lost = 0
        """Number of requests to come that get no answer: the connection ends."""
        self.url = ""
        self._lock = threading.Lock()

    def loses(self) -> bool:
        """Return whether the present request gets no answer."""
        with self._lock:
            self.lost = max(0, (before := self.lost) - 1)
            return before > 0


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    """A running receiver."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.events.append(ReceivedEvent(headers, raw))
            if found.loses():
                self.close_connection = True
                return
            self.send_response(found.status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", str(len(found.answer)))
            self.end_headers()
            self.wfile.write(found.answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://localhost:{server.server_port}/hook?x=1"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
