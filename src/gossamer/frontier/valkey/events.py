"""The ends of runs, kept on each crawl's home shard until somebody says that the world was told."""

import asyncio
from collections.abc import Sequence

from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Commands
from gossamer.frontier.valkey.finishing import carry_out, left_for_later
from gossamer.frontier.valkey.placing import home_shard
from gossamer.model.crawl import CrawlEvent, CrawlState

_KINDS = {b"f": CrawlState.FINISHED, b"s": CrawlState.STOPPED, b"e": CrawlState.EXPIRED}
_AT_ONCE = 500
_PUBLISHER_MS = 5000
"""For so long after it got events a publisher is the only one that gets a shard's events."""


async def untold(commands: Commands, *, limit: int, shard: int | None, publisher: str) -> list[CrawlEvent]:
    """The oldest of a shard (None: of all), oldest first."""
    shards = range(commands.count) if shard is None else (shard,)
    pages = await asyncio.gather(
        *(commands.call(one, "events_page", limit, publisher, _PUBLISHER_MS) for one in shards)
    )
    found = [
        _event(page[index].decode(), float(page[index + 1]) / 1000, page[index + 2])
        for page in pages
        for index in range(0, len(page), 3)
    ]
    return sorted(found, key=lambda event: (event.at, event.crawl, event.run, event.event_id))[:limit]


def _event(event_id: str, at: float, raw: bytes) -> CrawlEvent:
    """From msgpack values one behind the other: kind, run, spider, purged, crawl."""
    kind, run, spider, purged, crawl = codec.unpack_parts(raw, 5)
    with codec.reading("an event"):
        return CrawlEvent(
            event_id=event_id,
            kind=_KINDS[kind],
            crawl=codec.unpack_crawl(crawl).id,
            run=codec.unpack_number(run),
            spider=spider.decode(),
            at=at,
            purged=codec.unpack_number(purged),
        )


async def forget(commands: Commands, events: Sequence[CrawlEvent]) -> None:
    """They were told."""
    by_shard: dict[int, list[str]] = {}
    for event in events:
        by_shard.setdefault(home_shard(event.crawl.token, commands.count), []).append(event.event_id)
    await asyncio.gather(
        *(
            commands.call(shard, "events_told", *ids[first : first + _AT_ONCE])
            for shard, ids in by_shard.items()
            for first in range(0, len(ids), _AT_ONCE)
        )
    )


async def expire_due(
    commands: Commands, *, limit: int, mark_ms: int, retention_ms: int, shard: int | None = None
) -> int:
    """Stop as expired what is due on a shard (None: on all); how many parts. A crawl whose shards are not told here,
    because one of them does not answer, is told by housekeeping."""
    total, turn = 0, asyncio.Semaphore(16)
    at, end = (0, commands.count) if shard is None else (shard, shard + 1)

    async def tell(token: bytes) -> None:
        async with turn:
            with left_for_later():
                await carry_out(commands, token.decode(), retention_ms=retention_ms)

    while at < end and total < limit:
        shards = range(at, min(at + 8, end)) if limit - total >= 8 else range(at, at + 1)
        share = max(1, (limit - total) // len(shards))
        replies = await asyncio.gather(*(commands.call(s, "expire", share, mark_ms, retention_ms) for s in shards))
        total += sum(reply[0] for reply in replies)
        await asyncio.gather(*(tell(token) for reply in replies for token in reply[2:]))
        if not any(reply[1] for reply in replies):
            at += len(shards)
    return total
