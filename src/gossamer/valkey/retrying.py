"""Waiting out a server that is away: the same call again, later and later, up to a bound."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gossamer.errors import FrontierUnavailable

T = TypeVar("T")

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 5.0
_DOUBLINGS = 20  # more would overflow nothing, but mean nothing either


def pause_seconds(attempt: int, *, chance: float) -> float:
    """How long to wait after the `attempt`-th failure (from 1): doubling up to 5 s, of which `chance` (0..1) takes up
    to half away, so that a thousand workers do not come back in the same instant."""
    longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(attempt - 1, _DOUBLINGS))
    return longest * (1.0 - 0.5 * chance)


async def retrying(
    call: Callable[[], Awaitable[T]],
    *,
    on_trouble: Callable[[FrontierUnavailable, int], None] | None = None,
    give_up_seconds: float | None = None,
    chance: Callable[[], float] = random.random,
) -> T:
    """Repeat `call` until it does not raise FrontierUnavailable; it must be one that may be repeated.

    `on_trouble` hears of every failure at once, before the pause, with its number from 1. After `give_up_seconds`
    (None: never) the last failure is raised. Cancelling ends it between two calls or within one.
    """
    loop = asyncio.get_running_loop()
    last = None if give_up_seconds is None else loop.time() + give_up_seconds
    attempt = 0
    while True:
        try:
            return await call()
        except FrontierUnavailable as exc:
            attempt += 1
            if on_trouble is not None:
                on_trouble(exc, attempt)
            pause = pause_seconds(attempt, chance=chance())
            if last is not None and loop.time() + pause > last:
                raise
        await asyncio.sleep(pause)
