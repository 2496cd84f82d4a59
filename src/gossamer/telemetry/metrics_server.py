"""HTTP server of metrics and probes in threads of its own, which answers while the event loop of a worker is busy.

Every other interface is served by `web/server.py`. Fixed: a client holds one of a few threads, for a few seconds.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

_SILENT_SECONDS: Final = 10.0
"""Longest silence of a client, also of one that does not read."""
_CONNECTIONS: Final = 20
"""Connections at a time, of which each has a thread. One more is closed."""


class _RequestHandler(WSGIRequestHandler):
    """Answers one request, and logs none."""

    def setup(self) -> None:
        self.request.settimeout(_SILENT_SECONDS)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """The server. Raises OSError if it cannot listen."""

    daemon_threads = True

    def __init__(self, host: str, port: int, app: Any) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._places = threading.Semaphore(_CONNECTIONS)
        super().__init__((host, port), _RequestHandler)
        self.set_app(app)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve while the context is open."""
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()
            thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: the client is slow, or gone."""
