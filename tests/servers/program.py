"""Programs that a test needs: found, or the test is skipped; in CI a missing one is a failure."""

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest


def require(name: str) -> str:
    """The path of program `name`."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if path is None:
        missing(f"{name} is not installed; run tests/servers/install")
    return path


def require_path(path: str) -> Path:
    """`path`, which must exist."""
    if not Path(path).exists():
        missing(f"{path} does not exist; run tests/servers/install")
    return Path(path)


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def python() -> str:
    """Return the interpreter that runs the commands: GOSSAMER_TEST_PYTHON (see tests/servers/wheel), or the tests'."""
    return os.environ.get("GOSSAMER_TEST_PYTHON") or sys.executable


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition` holds; after a minute the test fails and says `what` did not come."""
    last = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < last, f"in vain: {what}"
        time.sleep(0.005)


def listen() -> socket.socket:
    """A listening socket on a free port of 127.0.0.1, for a server to inherit: nobody has to wait until it is up."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    sock.listen(1024)
    return sock
