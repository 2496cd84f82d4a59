"""Scrapyd 1.6.0 itself, to compare with, and to make and read its folders."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from tests.servers.pip_programs import program
from tests.servers.scrapyd import until
from tests.servers.valkey import free_ports


@contextlib.contextmanager
def real_scrapyd(folder: Path, conf: str = "") -> Iterator[httpx.Client]:
    """One that runs in this folder until the end of the block; a client of it. It runs one job at a time."""
    [port] = free_ports(1)
    for name in ("logs", "items"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "scrapyd.conf").write_text(
        f"[scrapyd]\nhttp_port = {port}\nitems_dir = items\nmax_proc = 1\npoll_interval = 0.2\n{conf}\n"
    )
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(
            [program("scrapyd", "scrapyd")], cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            # A connection for each request: with some headers Scrapyd sends more than it has announced.
            limits = httpx.Limits(max_keepalive_connections=0)
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits) as client:
                until(lambda: _serves(client), what=lambda: (folder / "log").read_text())
                yield client
        finally:
            left = psutil.Process(server.pid).children(recursive=True)  # Scrapyd leaves its jobs behind
            server.terminate()
            server.wait(30)
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def _serves(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return client.get("/daemonstatus.json").status_code in (200, 401)
    return False
