"""nginx in front of a folder, plain and with TLS, on sockets it inherits."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.certificates import Chain
from tests.servers.program import listen, require

_CONFIG = """
daemon off; {user} worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log notice;
events {{ worker_connections 4096; }}
http {{
  access_log off; server_tokens off; sendfile on; default_type text/html; etag off;
  keepalive_requests {keepalive_requests}; keepalive_timeout 60s;
  client_body_temp_path {folder}/client; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  types {{ text/html html; text/plain txt; image/png png; }}
  server {{
    listen 127.0.0.1:{port} default_server; {tls}
    root {root}; index index.html;
    location /gzip/ {{ alias {root}/; gzip on; gzip_min_length 1; gzip_types *; }}
    location /whole/ {{ alias {root}/; chunked_transfer_encoding off; gzip on; gzip_min_length 1; gzip_types *; }}
    location = /teapot {{ return 418 "short and stout"; }}
    location = /empty {{ return 204; }}
    location = /moved {{ return 301 /elsewhere; }}
    location = /hang-up {{ return 444; }}
    location = /echo {{ default_type text/plain; return 200 "$request_method $http_user_agent $http_authorization"; }}
    location = /again {{ default_type text/plain; return 200 "$connection $connection_requests $ssl_session_reused"; }}
  }}
}}
"""
_TLS = """
    listen 127.0.0.1:{port} ssl{http2} default_server;
    ssl_certificate {certificate}; ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets on;"""


@dataclass(frozen=True)
class Nginx:
    """A running one."""

    port: int
    tls_port: int | None
    pid: int


@contextmanager
def run_nginx(
    root: Path, folder: Path, *, chain: Chain | None = None, keepalive_requests: int = 1_000_000, http2: bool = False
) -> Iterator[Nginx]:
    """Serve `root`, with state in `folder`; with `chain` also by TLS on a second port.

    `/gzip/…` is `/…` compressed, `/whole/…` the same delimited by closing; further paths are in the configuration.
    """
    program = require("nginx")
    sockets = [listen()] + ([listen()] if chain else [])
    ports = [sock.getsockname()[1] for sock in sockets]
    offered = " http2" if http2 else ""
    tls = _TLS.format(port=ports[1], certificate=chain.certificate, key=chain.key, http2=offered) if chain else ""
    config = folder / "nginx.conf"
    config.write_text(
        _CONFIG.format(
            # Its workers would drop to a user who may not read a test's folder.
            user="user root;" if os.geteuid() == 0 else "",
            folder=folder,
            root=root,
            port=ports[0],
            tls=tls,
            keepalive_requests=keepalive_requests,
        )
    )
    fds = [sock.fileno() for sock in sockets]
    process = subprocess.Popen(
        [program, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")],
        # How nginx hands its sockets to its successor in an upgrade; so they listen before it even starts.
        env={**os.environ, "NGINX": "".join(f"{fd};" for fd in fds)},
        pass_fds=fds,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for sock in sockets:
        sock.close()
    try:
        yield Nginx(ports[0], ports[1] if chain else None, process.pid)
    finally:
        process.terminate()
        process.wait(10)
