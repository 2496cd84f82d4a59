"""One budget of bytes for all bodies that are being received, so that many large ones cannot fill the memory."""

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

    Bodies that are complete and still needed count too (`keep`). While there are any nobody is made leader: whoever
    keeps them lets go of them without the receivers' help.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        """Of bodies that are being received."""
        self.kept_bytes = 0
        """Of bodies that are complete, and what was made of them."""
        self._leader: Receiver | None = None
        self._waiting: dict[Receiver, None] = {}

    @property
    def waiting(self) -> int:
        """How many receivers are paused."""
        return len(self._waiting)

    def take(self, receiver: Receiver, count: int) -> None:
        """`receiver` holds `count` more bytes; it is paused if that is too much and another is on its way."""
        self.held_bytes += count
        if self._fits():
            return
        if self._leader is None and not self.kept_bytes:
            self._leader = receiver
        elif self._leader is not receiver and receiver not in self._waiting:
            self._waiting[receiver] = None
            receiver.pause()

    def give_back(self, receiver: Receiver, count: int) -> None:
        """`receiver` is done, well or not, and holds none of its `count` bytes any more. Who can go on is resumed."""
        self.held_bytes -= count
        self._waiting.pop(receiver, None)
        if self._leader is receiver:
            self._leader = None
        self._go_on()

    def keep(self, count: int) -> None:
        """`count` more bytes are needed although their bodies are complete."""
        self.kept_bytes += count

    def let_go(self, count: int) -> None:
        """`count` of the bytes that were kept are needed no more."""
        self.kept_bytes -= count
        self._go_on()

    def pass_on(self, receiver: Receiver) -> None:
        """`receiver` makes no progress: if it is the leader, the first that waits leads in its place."""
        if self._leader is receiver and self._waiting and not self.kept_bytes:
            self._lead_next()

    def _fits(self) -> bool:
        return self.held_bytes + self.kept_bytes <= self.limit_bytes

    def _go_on(self) -> None:
        if not self._waiting:
            return
        if self._fits():
            waiting, self._waiting = self._waiting, {}
            for other in waiting:
                other.resume()
        elif self._leader is None and not self.kept_bytes:
            self._lead_next()

    def _lead_next(self) -> None:
        first = next(iter(self._waiting))
        del self._waiting[first]
        self._leader = first
        first.resume()
