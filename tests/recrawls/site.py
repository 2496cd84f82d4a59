"""A site whose pages change when the program says so, and a log of its answers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ChangingSite:
    """Pages with versions, which a thread serves with validators."""

    def __init__(self, pages: int) -> None:
        self.versions: dict[str, int | None] = {f"/{number}": 1 for number in range(pages)}
        """By path: version of the page; None: it is gone."""
        self.visits: list[tuple[float, str]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.visits.append((time.time(), self.path))
                version = 1 if self.path == "/" else site.versions.get(self.path)
                tag = f'"{version}"'
                status = 404 if version is None else 304 if self.headers.get("If-None-Match") == tag else 200
                body = site.body(self.path, version).encode() if status == 200 else b""
                self.send_response(status)
                if version is not None:
                    self.send_header("ETag", tag)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that are killed

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def body(self, path: str, version: int | None) -> str:
        """The HTML of a page in this version. The first one links to all others."""
        links = "".join(f'<a href="{other}">x</a>' for other in self.versions) if path == "/" else ""
        return f"<html><body><main>{path} in version {version}{links}</main></body></html>"


@contextmanager
def serving(pages: int) -> Iterator[ChangingSite]:
    """The site, as long as this lasts."""
    site = ChangingSite(pages)
    thread = threading.Thread(target=site.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.server.shutdown()
        site.server.server_close()
        thread.join()
