"""The fetch slots of a worker: so many leases are worked on at once, and never more are taken than can start."""

import asyncio
from collections import deque
from collections.abc import Iterable

from gossamer.model.request import Lease


class Slots:
    """Hands leases to waiting slots. `take` and `done` are the slots' side, `room` and `give` the leaser's."""

    def __init__(self, count: int, *, linger_seconds: float = 0.005) -> None:
        """`linger_seconds`: how long the leaser waits for more slots to get free, so that one call leases for many."""
        self.count = count
        self._linger_seconds = linger_seconds
        self._enough = max(1, count // 4)
        self._waiting: deque[asyncio.Future[Lease]] = deque()
        self._given: deque[Lease] = deque()
        self._freed = asyncio.Event()
        self._freed_enough = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.busy = 0
        """Leases being worked on."""

    @property
    def free(self) -> int:
        """Slots that a lease could start in right now."""
        return max(0, len(self._waiting) - len(self._given))

    @property
    def held(self) -> int:
        """Leases being worked on or about to be."""
        return self.busy + len(self._given)

    async def take(self) -> Lease:
        """The next lease."""
        if self._given:
            self.busy += 1
            return self._given.popleft()
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._freed.set()
        if len(self._waiting) >= self._enough:
            self._freed_enough.set()
        return await future

    def done(self) -> None:
        """The lease taken last by this slot is off its hands."""
        self.busy -= 1
        if not self.held:
            self._idle.set()

    async def room(self) -> int:
        """Wait until slots are free; how many."""
        while not self.free:
            self._freed.clear()
            await self._freed.wait()
        if self.free < self._enough and self.busy:
            self._freed_enough.clear()
            timer = asyncio.get_running_loop().call_later(self._linger_seconds, self._freed_enough.set)
            await self._freed_enough.wait()
            timer.cancel()
        return self.free

    def give(self, leases: Iterable[Lease]) -> None:
        """Start these as soon as the loop comes round."""
        for lease in leases:
            while self._waiting:
                future = self._waiting.popleft()
                if not future.done():
                    # Counted here: until the slot comes round, nobody else would know of this lease.
                    self.busy += 1
                    future.set_result(lease)
                    break
            else:
                self._given.append(lease)
        if self.held:
            self._idle.clear()

    def take_back(self) -> list[Lease]:
        """What was given and not taken."""
        leases = list(self._given)
        self._given.clear()
        if not self.busy:
            self._idle.set()
        return leases

    async def all_idle(self) -> None:
        """Wait until nothing is worked on."""
        await self._idle.wait()
