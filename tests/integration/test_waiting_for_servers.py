"""Long-lived commands that start before the servers they need."""

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import crawling
from tests.servers.valkey import Server, standalone


class Started:
    """A command, and what it says on standard error."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            crawling.command(*arguments),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._said = b""

    def says(self, words: str) -> None:
        """Return when it has said them."""
        assert self.process.stderr is not None
        last = time.monotonic() + 60
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while words.encode() not in self._said:
                assert selector.select(last - time.monotonic()), self._said.decode()
                more = os.read(self.process.stderr.fileno(), 65536)
                assert more, f"it ended: {self._said.decode()}"
                self._said += more

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=60)
        self._said += rest
        assert b"Traceback" not in self._said, self._said.decode()
        return self.process.returncode


@pytest.fixture
def late_server() -> Iterator[Server]:
    """Not there yet."""
    with standalone(tcp=True) as server:
        server.stop()
        yield server


@pytest.mark.parametrize(
    ("command", "begun"),
    [
        (["serve", "--port", "0"], "Ctrl-C stops it"),
        (["worker", "--bus", "streams"], "The frontier can be reached now."),
    ],
    ids=["serve", "worker"],
)
def test_a_frontier_that_comes_later(tmp_path: Path, late_server: Server, command: list[str], begun: str) -> None:
    started = Started(tmp_path, *command, "--frontier", late_server.address)
    started.says("Waiting for it; until then, no requests are accepted.")
    late_server.start()
    started.says(begun)
    assert started.stop() == 0


def test_a_bus_that_never_comes(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        started = Started(tmp_path, "up", "--port", "0", "--bus", f"kafka://127.0.0.1:{held.getsockname()[1]}")
        started.says("The bus could not be reached")
        assert started.stop() == 130
