"""The pipe to a browser."""

import asyncio
import socket

import pytest

from gossamer.errors import BrowserCrashed
from gossamer.render.devtools import CommandPipe


def test_a_message_to_a_browser_whose_end_of_the_pipe_is_closed_says_that_it_has_ended() -> None:
    """Its other pipe, which tells DevTools, may be closed later; until then messages are written."""
    uvloop = pytest.importorskip("uvloop")  # whose closed transports raise RuntimeError

    async def write_until_refused() -> None:
        ours, browsers = socket.socketpair()
        _, pipe = await asyncio.get_running_loop().connect_write_pipe(CommandPipe, ours)
        browsers.close()
        while True:
            assert pipe.write(b"{}\0")
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(BrowserCrashed, match="ended"):
        runner.run(write_until_refused())
