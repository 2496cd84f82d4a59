"""One budget of bytes for all bodies that are being received, so that many large ones cannot fill the memory."""

import asyncio
from typing import Protocol


class Receiver(Protocol):
    """What can be told to stop reading for a while. Both calls may be repeated."""

    def pause(self) -> None:
        """Take no more bytes off the wire."""

    def resume(self) -> None:
        """Go on."""


class ByteBudget:
    """Counts what is held; when that is too much, all receivers wait but one.

    That one, the leader, is why this cannot deadlock: it always goes on until its body is complete, which frees bytes
    or makes another the leader. So at most the budget, one body and one read of each receiver are held.

    Bodies that are complete count too until they are taken up, and what is kept of them then (`retain`). While there
    are any nobody is made leader: they go without the receivers' help. When what is kept takes half of the budget, it
    `is_full`: whoever would make more of the next body than it is, by decoding or reading it, waits (`wait_for_room`).
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        """Of bodies that are being received."""
        self.complete_bytes = 0
        """Of bodies that are complete and not taken up yet; many may be before the first of those who wait goes on."""
        self.retained_bytes = 0
        """Of bodies that are complete, and what was made of them."""
        self._leader: Receiver | None = None
        self._waiting: dict[Receiver, None] = {}
        self._room = asyncio.Event()
        self._room.set()

    @property
    def waiting(self) -> int:
        """How many receivers are paused."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """What is kept takes half of it: the other half is for receiving meanwhile."""
        return 2 * self.retained_bytes >= self.limit_bytes

    async def wait_for_room(self) -> None:
        """Wait until it is not full.

        Several may go on in one turn of the loop: each must keep what it makes before it waits for anything else.
        """
        while self.is_full:
            await self._room.wait()

    def take(self, receiver: Receiver, count: int) -> None:
        """`receiver` holds `count` more bytes; it is paused if that is too much and another is on its way."""
        self.held_bytes += count
        if self._fits():
            return
        if self._leader is None and not self._comes_free:
            self._leader = receiver
        elif self._leader is not receiver and receiver not in self._waiting:
            self._waiting[receiver] = None
            receiver.pause()

    def give_back(self, receiver: Receiver, count: int) -> None:
        """`receiver` failed, and holds none of its `count` bytes any more. Who can go on is resumed."""
        self.held_bytes -= count
        self._remove(receiver)
        self._resume_waiting()

    def complete(self, receiver: Receiver, held: int, size: int) -> None:
        """`receiver`, which holds `held` bytes, has all `size` of its body. Until that is taken up it counts."""
        self.held_bytes -= held
        self.complete_bytes += size
        self._remove(receiver)

    def consume(self, size: int) -> None:
        """A complete body of `size` bytes counts no more, or as what is kept. Who can go on is resumed."""
        self.complete_bytes -= size
        self._resume_waiting()

    def retain(self, count: int) -> None:
        """`count` more bytes are needed although their bodies are complete."""
        self.retained_bytes += count
        if self.is_full:
            self._room.clear()

    def release(self, count: int) -> None:
        """`count` of the bytes that were kept are needed no more."""
        self.retained_bytes -= count
        if not self.is_full:
            self._room.set()
        self._resume_waiting()

    def yield_lead(self, receiver: Receiver) -> None:
        """`receiver` makes no progress: if it is the leader, the first that waits leads in its place."""
        if self._leader is receiver and self._waiting and not self._comes_free:
            self._lead_next()

    def _fits(self) -> bool:
        return self.held_bytes + self.complete_bytes + self.retained_bytes <= self.limit_bytes

    @property
    def _comes_free(self) -> bool:
        """Something does without the receivers' help."""
        return bool(self.complete_bytes or self.retained_bytes)

    def _remove(self, receiver: Receiver) -> None:
        self._waiting.pop(receiver, None)
        if self._leader is receiver:
            self._leader = None

    def _resume_waiting(self) -> None:
        if not self._waiting:
            return
        if self._fits():
            waiting, self._waiting = self._waiting, {}
            for other in waiting:
                other.resume()
        elif self._leader is None and not self._comes_free:
            self._lead_next()

    def _lead_next(self) -> None:
        first = next(iter(self._waiting))
        del self._waiting[first]
        self._leader = first
        first.resume()
