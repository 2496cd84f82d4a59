"""What a long-lived command needs from elsewhere, waited for when it is not there yet."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gossamer.errors import BusUnavailable, FrontierUnavailable
from gossamer.telemetry.troubles import Troubles

T = TypeVar("T")

_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 5.0


async def arrived(name: str, call: Callable[[], Awaitable[T]], say: Callable[[str], None]) -> T:
    """The call's answer, once the frontier or the bus (`name`, in the sentences) can be reached. That it cannot is said
    at once; the pauses grow from 0.25 to 5 s. Raises whatever else the call raises: a wrong password or a server that
    does not suit does not pass by waiting."""
    troubles = Troubles(say)
    pause = _FIRST_SECONDS
    while True:
        try:
            answer = await call()
        except (FrontierUnavailable, BusUnavailable) as error:
            troubles.begin(name, f"{str(error).rstrip('.')}. Waiting until it is there; nothing is accepted before.")
        else:
            troubles.end(name, f"The {name} is there.")
            return answer
        await asyncio.sleep(pause * (0.5 + 0.5 * random.random()))
        pause = min(pause * 2, _LONGEST_SECONDS)
