"""The contract of an output: what is written is durable when `write` returns, and nothing is settled before that."""

from collections.abc import Sequence
from typing import Protocol

from gossamer.model.record import Output


class Sink(Protocol):
    """Where records go. One process may call `write` from several tasks at once; every process opens its own sink."""

    @property
    def wants_wire(self) -> bool:
        """Whether `Output.wires` should be filled: only an archive of the exchange needs those bytes."""

    async def write(self, outputs: Sequence[Output]) -> None:
        """Append the batch, in this order; return when all of it survives a power cut. An empty batch does nothing.

        `SinkFull`: no room. Nothing of this batch counts, and the same batch may be written again once there is room.
        `SinkError`: it cannot be written at all (permission, a directory in its place, a broken disk). It may be
        repeated too, should somebody mend that. A call that is cancelled may still write its batch.
        """

    async def close(self) -> None:
        """Finish what is open: wait for writes under way, build or upload what could not be made part by part.

        Repeatable, also after a `SinkError`; what was written is safe either way.
        """
