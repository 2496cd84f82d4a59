"""Memory budget for all bodies that are being received, so that many large ones cannot fill the memory.

Fixed: while no complete or retained body is left to free bytes, one receiver must go on reading even beyond the limit,
or every download would wait for ever; and what one method adds must be taken away by its counterpart (named at each
method), or the budget shrinks for the rest of the process. All calls come from one event loop, so there is no lock.
"""

import asyncio
from typing import Protocol


class Receiver(Protocol):
    """Connection that receives a body and can stop reading for a while. Both methods may be called repeatedly."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Continue reading."""


class ByteBudget:
    """Counts the bytes of bodies. Beyond the limit, all receivers pause but one.

    That one, the leader, prevents deadlocks: it continues until its body is complete, which frees bytes or makes
    another receiver the leader. So the budget holds at most its limit, one body, and one read of each receiver.

    A complete body counts until its caller consumes it. What the caller then keeps of it (the decoded page, its text)
    counts as retained. While there are complete or retained bytes, no receiver is made the leader, because these bytes
    become free without the receivers. When retained bytes take half of the limit, the budget `is_full`: a caller that
    would decode or read the next body, and so retain more, first waits (`wait_for_room`).
    """

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: may be any size above 0; a small one makes downloads take turns, a large one takes memory."""
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        """Bytes of bodies that are being received."""
        self.complete_bytes = 0
        """Bytes of complete bodies that their callers have not consumed yet."""
        self.retained_bytes = 0
        """Bytes that callers keep of consumed bodies, with what they made of them."""
        self._leader: Receiver | None = None
        self._waiting: dict[Receiver, None] = {}  # paused receivers, the one that paused first at the beginning
        self._room = asyncio.Event()
        self._room.set()

    @property
    def waiting(self) -> int:
        """Number of paused receivers."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """True: retained bytes take half of the limit. The other half is left for bodies that are being received."""
        return 2 * self.retained_bytes >= self.limit_bytes

    async def wait_for_room(self) -> None:
        """Wait until the budget is not full.

        Several callers may continue in one turn of the event loop: each must `retain` what it makes before it waits for
        anything else.
        """
        while self.is_full:
            await self._room.wait()

    def take(self, receiver: Receiver, count: int) -> None:
        """Count bytes that `receiver` has read. It is paused if the limit is exceeded, unless it leads.

        Counterpart: `give_back` or `complete`."""
        self.held_bytes += count
        if self._fits():
            return
        if self._leader is None and not self._is_about_to_free:
            self._leader = receiver
        elif self._leader is not receiver and receiver not in self._waiting:
            self._waiting[receiver] = None
            receiver.pause()

    def give_back(self, receiver: Receiver, count: int) -> None:
        """Release the `count` bytes of a receiver whose body failed. Receivers that may continue are resumed."""
        self.held_bytes -= count
        self._remove(receiver)
        self._resume_waiting()

    def complete(self, receiver: Receiver, held: int, size: int) -> None:
        """Record that `receiver`, which took `held` bytes, now has a complete body of `size` bytes.

        Counterpart: `consume`. `held` may be less than `size`: the receiver does not take its last read."""
        self.held_bytes -= held
        self.complete_bytes += size
        self._remove(receiver)

    def consume(self, size: int) -> None:
        """Release a complete body of `size` bytes. Receivers that may continue are resumed."""
        self.complete_bytes -= size
        self._resume_waiting()

    def retain(self, count: int) -> None:
        """Count bytes that stay in memory after their bodies were consumed. Counterpart: `release`."""
        self.retained_bytes += count
        if self.is_full:
            self._room.clear()

    def release(self, count: int) -> None:
        """Release retained bytes."""
        self.retained_bytes -= count
        if not self.is_full:
            self._room.set()
        self._resume_waiting()

    def yield_lead(self, receiver: Receiver) -> None:
        """Pass the lead from a receiver that makes no progress to the first paused one. Any other receiver: no
        effect."""
        if self._leader is receiver and self._waiting and not self._is_about_to_free:
            self._lead_next()

    def _fits(self) -> bool:
        """Return whether all counted bytes are within the limit."""
        return self.held_bytes + self.complete_bytes + self.retained_bytes <= self.limit_bytes

    @property
    def _is_about_to_free(self) -> bool:
        """True: bytes will become free without the receivers, when callers consume or release bodies."""
        return bool(self.complete_bytes or self.retained_bytes)

    def _remove(self, receiver: Receiver) -> None:
        """Forget a receiver whose body has ended. If it led, there is no leader now."""
        self._waiting.pop(receiver, None)
        if self._leader is receiver:
            self._leader = None

    def _resume_waiting(self) -> None:
        """Resume the paused receivers: all if the bytes fit, else one as the leader if nothing else can free bytes."""
        if not self._waiting:
            return
        if self._fits():
            paused, self._waiting = self._waiting, {}
            for receiver in paused:
                receiver.resume()
        elif self._leader is None and not self._is_about_to_free:
            self._lead_next()

    def _lead_next(self) -> None:
        """Make the receiver that paused first the leader, and resume it."""
        first = next(iter(self._waiting))
        del self._waiting[first]
        self._leader = first
        first.resume()
