"""Pauses that an event ends."""

import asyncio
import contextlib


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but not longer than this. Return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
