"""Parts of pages that several browsers follow at a time: each is made once a second, however many ask for it.

Only visitors with the same rights, language and address of the page share a part.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from starlette.responses import Response, StreamingResponse

_SECONDS: Final = 1.0
"""Age up to which a part is shared. Must be below the pause of a page that follows (`live.js`), or a browser may get
the part that it has."""
_MOST: Final = 500
"""Parts that are remembered. More need more memory."""


class SharedParts:
    """The parts that were made last."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._made: OrderedDict[Hashable, tuple[float, asyncio.Task[Response]]] = OrderedDict()
        """By what tells parts apart: the time at which each was begun, and the task that makes it. The oldest first."""

    async def answer(self, key: Hashable, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return the part of this key: one that is young enough, or a new one. A stream is never shared, because it can
        be read once."""
        now = self._monotonic()
        while self._made and (len(self._made) >= _MOST or next(iter(self._made.values()))[0] <= now - _SECONDS):
            self._made.popitem(last=False)
        is_new = key not in self._made
        if is_new:

            async def run() -> Response:
                return await make()

            self._made[key] = (now, asyncio.create_task(run()))
        part = await asyncio.shield(self._made[key][1])  # a browser that leaves does not end it for the others
        return part if is_new or not isinstance(part, StreamingResponse) else await make()

    def __len__(self) -> int:
        return len(self._made)
