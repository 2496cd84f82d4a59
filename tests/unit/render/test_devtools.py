"""The pipe to a browser."""

import asyncio
import json
import socket
import tracemalloc

import pytest

from gossamer.errors import BrowserCrashed
from gossamer.render.devtools import CommandPipe, DevTools, _decode


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


async def test_a_message_without_end_is_skipped_and_the_next_answer_is_read() -> None:
    ours, browsers = socket.socketpair()
    _, pipe = await asyncio.get_running_loop().connect_write_pipe(CommandPipe, ours)
    reader = asyncio.StreamReader()
    devtools = DevTools(reader, pipe)
    calling = asyncio.ensure_future(devtools.call("Browser.getVersion", seconds=60))
    tracemalloc.start()
    try:
        for _ in range(300):
            reader.feed_data(bytes([120]) * (1 << 20))
            for _ in range(8):
                await asyncio.sleep(0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    reader.feed_data(b'\0{"id": 1, "result": {"product": "Chromium"}}\0')
    assert await calling == {"product": "Chromium"}
    assert peak < 80 << 20
    await devtools.close()
    browsers.close()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r"\ud83d", "\ufffd"),
        (r"\uDE00", "\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\ude00\ud83d\ude00\ud83d", "\ufffd\U0001f600\ufffd"),
        (r"\\ud83d\ude00", "\\ud83d\ufffd"),
        (r"\\\ud83d\ude00\ud83d", "\\\U0001f600\ufffd"),
        (r"\ud83d\\ude00", "\ufffd\\ude00"),
        ("\U0001f600\\ud83d", "\U0001f600\ufffd"),
    ],
)
def test_half_of_a_character_becomes_a_replacement(written: str, text: str) -> None:
    assert _decode(f'{{"result": "{written}"}}'.encode()) == {"result": text}
    assert json.loads(f'"{written}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace") == text
