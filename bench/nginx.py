"""nginx serving the fake web's pages as files: the same bytes for less CPU."""

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.certificates import write_certificates
from bench.errors import BenchFailed
from bench.websites import Website
from gossamer.fakeweb.answers import Writer
from gossamer.fakeweb.site import Site, SitePage

LONELY = "/alone"
"""The path of one more page, on the first host, which links to nothing: for measuring how crawlers start and end."""
LONELY_PAGE = b"<!DOCTYPE html><html><head><title>Alone</title></head><body><p>Nothing leads on.</p></body></html>"

_ADDRESS = "127.0.0.1"
_STARTS = 5
_START_SECONDS = 10.0
_STOP_SECONDS = 10.0

_CONFIG = """\
{user}
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  log_format sent $bytes_sent;
  access_log {log};
  server_tokens off;
  default_type "text/html; charset=utf-8";
  sendfile on;
  tcp_nopush on;
  keepalive_timeout {keepalive};
  keepalive_requests 1000000000;
  server_names_hash_max_size 4096;
  server_names_hash_bucket_size 128;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
{servers}}}
"""
_SERVER = """\
  server {{
    listen {address}:{port}{ssl};
    server_name {host};
    root {folder}/pages/{host};
{certificate}    location = / {{ rewrite ^ /home break; }}
  }}
"""


class Nginx:
    """One nginx with one website on it."""

    software = "nginx"

    def __init__(self, pid: int, port: int, bytes_log: Path) -> None:
        self.pid = pid
        self.port = port
        self.bytes_log = bytes_log
        """File with a line for each response: its bytes. Only if they are counted."""


@contextlib.contextmanager
def serve_with_nginx(binary: str, website: Website, *, counts_bytes: bool = False) -> Iterator[Nginx]:
    """Write the pages, start nginx, and stop it again however the block ends. Raises BenchFailed."""
    with tempfile.TemporaryDirectory(prefix="bench-site-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        if website.tls:
            write_certificates(folder, Site(website.spec).hosts())
        process, port = _start(binary, website, folder, counts_bytes=counts_bytes)
        stack.callback(_stop, process)
        # The pages name the port, which is known to be free only once nginx has it.
        _write_pages(website, folder / "pages", port)
        yield Nginx(process.pid, port, folder / "sent")


def _start(binary: str, website: Website, folder: Path, *, counts_bytes: bool) -> tuple["subprocess.Popen[bytes]", int]:
    for _ in range(_STARTS):
        with socket.socket() as probe:
            probe.bind((_ADDRESS, 0))
            port: int = probe.getsockname()[1]
        (folder / "nginx.conf").write_text(_config(website, folder, port, counts_bytes=counts_bytes))
        process = subprocess.Popen(
            [binary, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us; we stop it
        )
        if _answers(process, port):
            return process, port
        _stop(process)
    raise BenchFailed(f"nginx did not start: {(folder / 'error.log').read_text().strip()}")


def _config(website: Website, folder: Path, port: int, *, counts_bytes: bool) -> str:
    servers = [
        _SERVER.format(
            address=_ADDRESS,
            port=port,
            ssl=" ssl" if website.tls else "",
            host=host,
            folder=folder,
            certificate=f"    ssl_certificate {folder}/{host}.crt;\n    ssl_certificate_key {folder}/key.pem;\n"
            if website.tls
            else "",
        )
        for host in Site(website.spec).hosts()
    ]
    return _CONFIG.format(
        user="user root;" if os.geteuid() == 0 else "",  # another user could not read our folder
        folder=folder,
        log=f"{folder}/sent sent" if counts_bytes else "off",
        keepalive="1h" if website.spec.keep_alive else "0",
        servers="".join(servers),
    )


def _answers(process: "subprocess.Popen[bytes]", port: int) -> bool:
    last = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < last:
        with contextlib.suppress(OSError):
            socket.create_connection((_ADDRESS, port), timeout=1.0).close()
            return process.poll() is None
        time.sleep(0.01)
    return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _write_pages(website: Website, folder: Path, port: int) -> None:
    site = Site(website.spec, scheme="https" if website.tls else "http", port=port)
    writer = Writer(site)
    for host in range(website.spec.hosts):
        home = folder / site.host(host)
        (home / "p").mkdir(parents=True)
        for number in range(website.spec.pages):
            page = writer.write(SitePage(host, number))
            (home / site.path(number)[1:] if number else home / "home").write_bytes(page)
    (folder / site.host(0) / LONELY[1:]).write_bytes(LONELY_PAGE)
