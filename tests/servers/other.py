"""lighttpd in front of a folder: a real server of another make."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.program import listen, require, require_path

_CONFIG = """
server.document-root = "{root}"
server.bind = "/dev/stdin"
server.errorlog = "{folder}/lighttpd.log"
server.modules = ("mod_deflate", "mod_redirect", "mod_setenv", "mod_status")
server.max-keep-alive-requests = {keepalive_requests}
index-file.names = ("index.html")
mimetype.assign = (".html" => "text/html", ".txt" => "text/plain", "" => "application/octet-stream")
url.redirect = ("^/moved$" => "/elsewhere")
$HTTP["url"] =~ "\\.html$" {{
  deflate.mimetypes = ("text/html")
  deflate.allowed-encodings = ("{encoding}")
}}
"""


@dataclass(frozen=True)
class Lighttpd:
    """A running one."""

    port: int


@contextmanager
def run_lighttpd(
    root: Path, folder: Path, *, encoding: str = "deflate", keepalive_requests: int = 1000
) -> Iterator[Lighttpd]:
    """Serve `root`, with state in `folder`; HTML is compressed by `encoding` where the client accepts it."""
    program = require("lighttpd")
    require_path("/usr/lib/lighttpd/mod_deflate.so")
    sock = listen()
    config = folder / "lighttpd.conf"
    config.write_text(
        _CONFIG.format(root=root, folder=folder, encoding=encoding, keepalive_requests=keepalive_requests)
    )
    process = subprocess.Popen(
        [program, "-D", "-f", str(config)], stdin=sock, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    port = sock.getsockname()[1]
    sock.close()
    try:
        yield Lighttpd(port)
    finally:
        process.terminate()
        process.wait(10)
