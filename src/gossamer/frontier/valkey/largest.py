"""Which crawl takes most of a full server's memory: an estimate that costs the same whatever is there."""

import asyncio
import re
from collections import Counter

from gossamer.errors import FrontierFull
from gossamer.frontier.valkey import codec, info
from gossamer.frontier.valkey.commands import Commands

_SAMPLE = 128
"""Keys looked at. A large crawl has one for every few hundred URLs that it saw and for every domain where some wait."""
_CANDIDATES = 3
_OF_A_CRAWL = re.compile(rb":\{\d+\}:[cdhqs]:([\w=-]{16})")


async def full(commands: Commands, shard: int, error: FrontierFull) -> FrontierFull:
    """The same error, and which crawl seems to fill the memory."""
    largest = await largest_crawl(commands, shard)
    return FrontierFull(f"{error.detail}; the largest seems to be {largest}") if largest else error


async def largest_crawl(commands: Commands, shard: int) -> str:
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


async def _size(commands: Commands, token: str, shard: int) -> tuple[int, str]:
    """What waits counts for more than what is only remembered: about its weight in bytes."""
    key = commands.keys[shard].crawl(token)
    row = info.pairs(await commands.plain(shard, "HGETALL", key))
    if b"crawl" not in row:
        return 0, ""
    seen = int(row.get(b"n", 0))
    waiting = sum(int(count) for field, count in row.items() if field.startswith((b"q:", b"l:")))
    name = codec.unpack_crawl(row[b"crawl"]).id
    return 10 * seen + 100 * waiting, f"{name} ({waiting:,} URLs wait and {seen:,} are remembered on this shard)"
