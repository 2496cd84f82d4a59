"""What takes more than one shard: deciding that a run is finished, ending it early, sharing out its page budget."""

import asyncio

from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Commands
from gossamer.frontier.valkey.placing import home_shard
from gossamer.model.crawl import CrawlState

LETTERS = {CrawlState.STOPPED: "s", CrawlState.EXPIRED: "e", CrawlState.FINISHED: "f"}
SPENT = "b"


def touched_shards(field: bytes | None) -> list[int]:
    """The shards a home record names."""
    return [int(shard) for shard in field.decode().split(",")] if field else []


async def _sum(commands: Commands, token: str, run: bytes, shards: list[int], field: str) -> int:
    rows = await asyncio.gather(
        *(commands.plain(s, "HMGET", commands.keys[s].crawl(token), "run", field) for s in shards)
    )
    return sum(int(row[1] or 0) for row in rows if row[0] == run)


async def try_finish(commands: Commands, token: str, *, retention_ms: int) -> bool:
    """Decide that the run is finished if it is; True for the one who decided. May be called at any time by anyone.

    First all `done` are read, then all `added`: done never runs ahead, so equal sums mean that nothing was open at a
    moment in between. Then every shard closes the run, where additions must ask the home shard first; it decides only
    if nobody asked since its version was read. Whoever dies in between leaves shards closed, which the next addition
    or the next attempt puts right.
    """
    home = home_shard(token, commands.count)
    state, run, version, field = await commands.plain(
        home, "HMGET", commands.keys[home].home(token), "state", "run", "version", "shards"
    )
    shards = touched_shards(field)
    if state != b"running":
        await asyncio.gather(*(commands.plain(s, "ZREM", commands.keys[s].idle, token) for s in shards))
        return False
    done = await _sum(commands, token, run, shards, "Z")
    added = await _sum(commands, token, run, shards, "A")
    if done != added:
        return False
    closed = await asyncio.gather(*(commands.call(s, "close", token, run, retention_ms) for s in shards))
    if not all(closed):
        return False
    return bool(await commands.call(home, "finished", token, run, version or b"0", retention_ms))


async def halt(
    commands: Commands, token: str, letter: str, spider: str, shards: list[int], *, retention_ms: int
) -> int:
    """End a run early on its shards; returns how many waiting requests were dropped."""
    replies = await asyncio.gather(*(commands.call(s, "halt", token, letter, spider, retention_ms) for s in shards))
    if any(len(reply) > 1 for reply in replies):
        await try_finish(commands, token, retention_ms=retention_ms)
    return sum(int(reply[0]) for reply in replies)


async def rebalance(commands: Commands, token: str, shard: int, *, retention_ms: int) -> bool:
    """Get a shard whose requests starve a share of the page budget, or end the run when all of it is used.

    True when there is nothing more to wait for on that shard.
    """
    home = home_shard(token, commands.count)
    run, field, blob = await commands.plain(home, "HMGET", commands.keys[home].home(token), "run", "shards", "crawl")
    if run is None:
        return True
    max_pages = codec.unpack_crawl(blob).max_pages
    if max_pages is None:
        return True
    number = await commands.call(home, "quota", "begin", token, run, 0)
    if number == 0:
        return True
    shards = touched_shards(field)
    rows = await asyncio.gather(*(commands.call(s, "quota", "return", token, run, number) for s in shards))
    if sum(int(row[1]) for row in rows) >= max_pages:
        await halt(commands, token, SPENT, "", shards, retention_ms=retention_ms)
        await try_finish(commands, token, retention_ms=retention_ms)
        return True
    kept = {s: int(row[0]) for s, row in zip(shards, rows, strict=True)}
    ordered = [shard, *(s for s in shards if s != shard)]
    pairs = [part for s in ordered for part in (s, kept.get(s, 0))]
    quota = await commands.call(home, "quota", "grant", token, run, number, max_pages, *pairs)
    if quota <= kept.get(shard, 0):
        return False
    await commands.call(shard, "quota", "take", token, run, number, quota)
    return True
