"""A request that a lane is done with, and everything that must happen before and with its settlement."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from gossamer.model.record import Output
from gossamer.model.request import Batch, Settlement

_PAGE_BYTES = 2048
_LINK_BYTES = 300
"""Of one link beside its characters."""

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

    def links_size(self) -> int:
        """About how many bytes it keeps in memory once it is written, on the high side."""
        batches = self.batches
        payloads = sum(len(payload or b"") for batch in batches for payload in batch.payloads or ())
        urls = sum(_LINK_BYTES + len(url) for batch in batches for url in batch.urls)
        return _PAGE_BYTES + urls + payloads

    def written(self) -> None:
        """Its outputs are durable, or it is given up: let go of them. May be repeated."""
        self.outputs = ()
        freed, self.freed = self.freed, None
        if freed:
            freed()
