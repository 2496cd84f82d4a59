"""Leaves out items whose key another item of the crawl has.

The frontier remembers which request has a key, so this holds for all processes and machines of a crawl. Fixed: a key
belongs to a request, not to one attempt at it. Else a worker that dies between the claim and the write would lose the
item, because the next attempt would find the key taken.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.json_codec import encode_value
from gossamer.model.record import ItemRecord, Output

_KEY_BYTES = 12
"""Length of the digest that stands for a key. Must not change: a crawl that is resumed would write its items again."""


class UniqueItems:
    """Decides which items of finished pages are written."""

    def __init__(self, frontier: ValkeyFrontier, retrier: Retrier) -> None:
        self._frontier = frontier
        self._retrier = retrier
        self.on_repeated: Callable[[int], None] | None = None
        """Called with the number of items of a page that were left out."""

    async def drop_repeated(self, batch: Sequence[FinishedLease]) -> None:
        """Take the items out of the pages' outputs whose keys other requests have. Waits while the frontier is away."""
        pages = [page for page in batch if page.settlement.lease.terms.unique and len(page.outputs) > 1]
        if pages:
            await asyncio.gather(*map(self._drop_repeated_of, pages))

    async def _drop_repeated_of(self, page: FinishedLease) -> None:
        lease, outputs = page.settlement.lease, page.outputs
        keys = [_key_of(output, lease.terms.unique) for output in outputs]
        wanted = list(dict.fromkeys(filter(None, keys)))
        if not wanted:
            return
        granted = await self._retrier.call_frontier(
            lambda: self._frontier.claim_keys(lease.run, wanted, owner=lease.request_id)
        )
        free = {key for key, is_own in zip(wanted, granted, strict=True) if is_own}
        kept: list[Output] = []
        for output, key in zip(outputs, keys, strict=True):
            if key and key not in free:
                continue
            free.discard(key)  # of several items of the page, only the first has it
            kept.append(output)
        page.outputs = kept
        if self.on_repeated is not None and len(kept) < len(outputs):
            self.on_repeated(len(outputs) - len(kept))


def _key_of(output: Output, fields: Sequence[str]) -> str:
    """Return the key of an item, as text; empty: it is no item, or has none of the fields."""
    record = output.record
    if not isinstance(record, ItemRecord):
        return ""
    values: list[Any] = [record.item.get(field) for field in fields]
    if all(value in (None, "", [], {}) for value in values):
        return ""
    return hashlib.blake2b(encode_value(values), digest_size=_KEY_BYTES).hexdigest()
