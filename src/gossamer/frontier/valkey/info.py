"""Reads counters into answers."""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from gossamer.errors import FrontierFull
from gossamer.frontier.valkey import codec, info
from gossamer.frontier.valkey.codec import reading
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.finishing import carry_out, left_for_later
from gossamer.frontier.valkey.keys import home_shard
from gossamer.model.crawl import CrawlEvent, CrawlState
from gossamer.model.info import CrawlInfo, DomainInfo, SpiderCounts

_COUNTERS = {b"a": "added", b"q": "queued", b"l": "later", b"h": "leased", b"f": "fetched"}
_REASONS = {b"F": "failed", b"D": "dropped", b"L": "links_dropped"}


def pairs(row: Sequence[bytes]) -> dict[bytes, bytes]:
    """A hash as the server sends it."""
    return dict(zip(row[::2], row[1::2], strict=True))


def count_shard(answer: CrawlInfo, row: Mapping[bytes, bytes]) -> None:
    """Add one shard's counters of a crawl."""
    answer.domains += int(row.get(b"doms", 0))
    answer.seen += int(row.get(b"n", 0))
    for field, value in row.items():
        kind, _, rest = field.partition(b":")
        if not rest:
            continue
        if kind in _COUNTERS:
            part = answer.spiders.setdefault(rest.decode(), SpiderCounts())
            name = _COUNTERS[kind]
            setattr(part, name, getattr(part, name) + int(value))
        elif kind in _REASONS:
            spider, _, reason = rest.rpartition(b":")
            part = answer.spiders.setdefault(spider.decode(), SpiderCounts())
            counts = getattr(part, _REASONS[kind])
            counts[reason.decode()] = counts.get(reason.decode(), 0) + int(value)
        elif kind == b"p":
            priority = int(rest.rpartition(b":")[2])
            answer.queued_by_priority[priority] = answer.queued_by_priority.get(priority, 0) + int(value)


def tell_early_end(answer: CrawlInfo, parts: Mapping[str, str]) -> None:
    """Name the state of a run that is over by its parts, where each that had requests was stopped or has expired.

    `parts`: spider -> letter of how its part ended.
    """
    letters = {parts.get(spider, "") for spider, counts in answer.spiders.items() if counts.added}
    if answer.state is CrawlState.FINISHED and letters and "" not in letters:
        answer.state = CrawlState.EXPIRED if letters == {"e"} else CrawlState.STOPPED


def domain_info(domain: bytes, row: bytes) -> DomainInfo:
    """One row of a crawl's shares: [reserved, fetched, spider, priority, count, ...]; the priority of what waits for a
    retry begins with `l`."""
    with reading("a domain's record"):
        share = msgspec.msgpack.decode(row)
        found = DomainInfo(domain.decode(), pages=int(share[0]))
        for index in range(2, len(share), 3):
            spider, place, count = str(share[index]), str(share[index + 1]), int(share[index + 2])
            priority = int(place.removeprefix("l"))
            if place.startswith("l"):
                found.later += count
            else:
                found.queued += count
            found.by_priority[priority] = found.by_priority.get(priority, 0) + count
            shares = found.by_spider.setdefault(spider, {})
            shares[priority] = shares.get(priority, 0) + count
        return found


_KINDS = {b"f": CrawlState.FINISHED, b"s": CrawlState.STOPPED, b"e": CrawlState.EXPIRED}
_AT_ONCE = 500
_PUBLISHER_MS = 5000
"""For so long after it got events a publisher is the only one that gets a shard's events."""


async def untold(commands: ScriptCommands, *, limit: int, shard: int | None, publisher: str) -> list[CrawlEvent]:
    """The oldest of a shard (None: of all), oldest first."""
    shards = range(commands.count) if shard is None else (shard,)
    pages = await asyncio.gather(
        *(commands.call(one, "list_events", limit, publisher, _PUBLISHER_MS) for one in shards)
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


async def forget(commands: ScriptCommands, events: Sequence[CrawlEvent]) -> None:
    """They were told."""
    by_shard: dict[int, list[str]] = {}
    for event in events:
        by_shard.setdefault(home_shard(event.crawl.token, commands.count), []).append(event.event_id)
    await asyncio.gather(
        *(
            commands.call(shard, "confirm_events", *ids[first : first + _AT_ONCE])
            for shard, ids in by_shard.items()
            for first in range(0, len(ids), _AT_ONCE)
        )
    )


async def expire_due(
    commands: ScriptCommands, *, limit: int, stop_marker_ms: int, retention_ms: int, shard: int | None = None
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
        replies = await asyncio.gather(
            *(commands.call(s, "expire", share, stop_marker_ms, retention_ms) for s in shards)
        )
        total += sum(reply[0] for reply in replies)
        await asyncio.gather(*(tell(token) for reply in replies for token in reply[2:]))
        if not any(reply[1] for reply in replies):
            at += len(shards)
    return total


_SAMPLE = 128
"""Keys looked at. A large crawl has one for every few hundred URLs that it saw and for every domain where some wait."""
_CANDIDATES = 3
_OF_A_CRAWL = re.compile(rb":\{\d+\}:[cdhqs]:([\w=-]{16})")


async def full(commands: ScriptCommands, shard: int, error: FrontierFull) -> FrontierFull:
    """The same error, and which crawl seems to fill the memory."""
    largest = await largest_crawl(commands, shard)
    return FrontierFull(f"{error.detail}; the largest seems to be {largest}") if largest else error


async def largest_crawl(commands: ScriptCommands, shard: int) -> str:
    """The largest of those that a random choice of keys on this shard's server belongs to, with its size here, for a
    person to read. Empty: none was met."""
    drawn = await asyncio.gather(*(commands.plain(shard, "RANDOMKEY") for _ in range(_SAMPLE)))
    prefix = f"{commands.prefix}:{{".encode()
    tokens: Counter[str] = Counter()
    for key in drawn:
        if key is not None and key.startswith(prefix) and (found := _OF_A_CRAWL.search(key)):
            tokens[found[1].decode()] += 1
    sizes = await asyncio.gather(*(_size(commands, token, shard) for token, _ in tokens.most_common(_CANDIDATES)))
    _, text = max(sizes, default=(0, ""))
    return text


async def _size(commands: ScriptCommands, token: str, shard: int) -> tuple[int, str]:
    """What waits counts for more than what is only remembered: about its weight in bytes."""
    key = commands.keys[shard].crawl(token)
    row = info.pairs(await commands.plain(shard, "HGETALL", key))
    if b"crawl" not in row:
        return 0, ""
    seen = int(row.get(b"n", 0))
    waiting = sum(int(count) for field, count in row.items() if field.startswith((b"q:", b"l:")))
    name = codec.unpack_crawl(row[b"crawl"]).id
    return 10 * seen + 100 * waiting, f"{name} ({waiting:,} URLs wait and {seen:,} are remembered on this shard)"
