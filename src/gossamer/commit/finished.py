"""A request that a lane is done with, and everything that must happen before and with its settlement."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from gossamer.model.record import Output
from gossamer.model.request import Batch, Settlement

Confirmed = Callable[[Collection[int]], None]
"""Called once the frontier has answered, with the fingerprints of the outlinks that it rejected: these are not in its
seen-set. All others are."""


@dataclass(slots=True)
class Finished:
    """One lease's end. The outlinks travel under the lease's own run and terms."""

    settlement: Settlement
    outputs: Sequence[Output] = ()
    batches: list[Batch] = field(default_factory=list)
    confirmed: Confirmed | None = None
    size: int = 0
    """About how many bytes it keeps in memory."""
    freed: Callable[[], None] | None = None
    """Told once, when that memory is needed no more, however it ended."""

    def free(self) -> None:
        """It is committed, or given up. May be repeated."""
        freed, self.freed = self.freed, None
        if freed:
            freed()
