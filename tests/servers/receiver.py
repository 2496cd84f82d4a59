"""A server that receives webhooks, and answers as it is told."""

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
        self.url = ""


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    """A running receiver."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.events.append(ReceivedEvent(headers, raw))
            self.send_response(found.status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()

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
