"""What becomes of a request in whose place a middleware has put another: a redirect, a retry, a detour."""

from dataclasses import replace

import msgspec

from gossamer.commit.patience import Patience
from gossamer.frontier.base import Hop, Leaseholder
from gossamer.model.outcome import Dropped, Outcome
from gossamer.model.payload import pack, unpack
from gossamer.model.request import Settlement
from gossamer.scrapy.entries import Entries
from gossamer.scrapy.live import Live


async def move(live: Live, settlement: Settlement, entries: Entries, holder: Leaseholder, patience: Patience) -> bool:
    """Turn `settlement` into what the move asks for. True: a hit is granted, the lease goes on with the successor now.

    Inside the domain it stays one request: back to the front with the successor in its payload, later for a retry of
    the same. A redirect marks its target as seen, as Scrapy does, and may go on at once where a hit is free. To another
    domain or spider it goes as a new entry of the same request id. Raises LeaseLost.
    """
    assert live.successor is not None
    request, entry = live.successor
    lease = live.lease
    if entry.domain != lease.domain or entry.spider != lease.spider:
        known = unpack(lease.payload).request_id or lease.request_id
        renamed = msgspec.structs.replace(unpack(entry.payload), request_id=known)
        live.add(replace(entry, payload=pack(renamed)), unfiltered=request.dont_filter)
        settlement.outcome, settlement.reason = Outcome.DROPPED, str(Dropped.MOVED)
        return False
    payload = entries.payload(request, url=lease.url) or b""
    settlement.payload = payload
    if entry.fingerprint == entries.name(live.request).fingerprint:
        settlement.outcome = Outcome.RETRY
        return False
    settlement.outcome = Outcome.FORWARDED
    if request.dont_filter:
        return False
    hop = await patience.frontier(
        lambda: holder.hop(lease, fingerprint=entry.fingerprint, payload=payload), shard=lease.shard
    )
    if hop is Hop.SEEN:
        settlement.outcome, settlement.reason, settlement.payload = Outcome.DROPPED, str(Dropped.DUPLICATE), None
    return hop is Hop.GRANTED
