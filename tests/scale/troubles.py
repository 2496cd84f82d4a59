"""What interrupts a crawl: a server that stands still or is away, a disk without room. Each ends with its block."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.servers import small_disk
from tests.servers.valkey import Server


@contextlib.contextmanager
def frozen(server: Server, _: Path) -> Iterator[None]:
    """Valkey gets SIGSTOP: connections stay open, and nothing answers."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextlib.contextmanager
def away(server: Server, _: Path) -> Iterator[None]:
    """Valkey is shut down in good order, and started on its append-only file afterwards."""
    server.stop()
    yield
    server.start()


@contextlib.contextmanager
def killed(server: Server, _: Path) -> Iterator[None]:
    """Valkey gets SIGKILL, and is started on its append-only file afterwards."""
    server.kill()
    yield
    server.start()


@contextlib.contextmanager
def full(_: Server, place: Path) -> Iterator[None]:
    """There is no room where the output is. Only for a file system made for this."""
    with small_disk.full(place):
        yield
