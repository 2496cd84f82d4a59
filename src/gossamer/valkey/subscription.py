"""Listening to a channel for as long as somebody wants to hear, whatever happens to the connection."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from hiredis import ReplyError

from gossamer.errors import FrontierError
from gossamer.valkey.border import translate
from gossamer.valkey.client import Client
from gossamer.valkey.connection import Connection, Reply, pack
from gossamer.valkey.retrying import pause_seconds

_log = logging.getLogger(__name__)

_SILENCE_SECONDS = 3.0
"""After so long without a word the server is asked for one; after twice that the connection counts as dead."""

_PING = pack((b"PING",))


_GAP: Reply = [b"gap"]


async def messages(
    choose: Callable[[], Awaitable[Client]],
    channel: str,
    ready: asyncio.Event | None = None,
    *,
    listeners: set[Callable[[], None]],
) -> AsyncIterator[bytes | None]:
    """The channel's messages; None where some may be missing. `choose` says whom to ask, anew at each connection.

    `listeners`: who is called when something may have been published that reached nobody; we are, while we listen.
    """
    failures = 0
    while True:
        try:
            heard: asyncio.Queue[Reply | None] = asyncio.Queue()
            connection = await (await choose()).open()
            note_gap = partial(heard.put_nowait, _GAP)
            listeners.add(note_gap)
            try:
                connection.listen(pack((b"SUBSCRIBE", channel)), heard.put_nowait)
                while (reply := await _next(connection, heard)) is not None:
                    if isinstance(reply, ReplyError):
                        raise translate(reply, doing=f"listening to {channel}")
                    if reply[0] == b"message":
                        yield reply[2]
                    elif reply is _GAP:
                        yield None
                    elif reply[0] == b"subscribe":
                        failures = 0
                        if ready is not None:
                            ready.set()
                        yield None
            finally:
                listeners.discard(note_gap)
                await connection.close()
        except FrontierError as exc:
            if not failures:
                _log.warning("not listening to %s for now: %s", channel, exc)
        failures += 1
        await asyncio.sleep(pause_seconds(failures, chance=random.random()))


async def _next(connection: Connection, heard: "asyncio.Queue[Reply | None]") -> Reply | None:
    """The next thing heard; None when the connection ended, or is silent even when asked."""
    for _ in range(2):
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                return await heard.get()
        except TimeoutError:
            connection.tell(_PING)
    return None
