"""Streams that the event loop owns are closed once."""

import ast
import asyncio
import os
import socket
from pathlib import Path

import pytest
import uvloop

SOURCES = Path(__file__).parents[3] / "src"
CONNECT = {"connect_read_pipe", "connect_write_pipe"}
OWN = {"sys.stdin"}
"""Standard streams of the process itself, which are closed when it ends."""


def test_no_pipe_is_given_to_the_event_loop() -> None:
    """uvloop closes the descriptor of a file, and then the file: the descriptor may be another thread's by then. It
    closes sockets once."""
    given = [
        ast.unparse(node.args[1])
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CONNECT
    ]
    assert given
    assert not [stream for stream in given if stream not in OWN and ("(" in stream or ".std" in stream)]


class Stream:
    """Pipe that notes whether its descriptor was open when it was closed."""

    was_open: bool | None = None

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        try:
            os.fstat(self._descriptor)
            self.was_open = True
        except OSError:
            self.was_open = False


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_uvloop_closes_pipes_twice_and_sockets_once(kind: str) -> None:
    async def use() -> None:
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        pipe = Stream(read)
        stream = ours if kind == "socket" else pipe
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, stream)
        transport.close()
        await asyncio.sleep(0)
        assert ours.fileno() == -1 if kind == "socket" else pipe.was_open is False
        os.close(write)
        if kind == "socket":
            os.close(read)
        ours.close()
        theirs.close()

    uvloop.run(use())
