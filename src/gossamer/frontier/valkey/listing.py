"""Pages of what the frontier holds, shard after shard."""

from gossamer.errors import BadInput
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Commands
from gossamer.model.crawl import CrawlId


def read_cursor(cursor: str, shards: int, *, begin: str = "") -> tuple[int, str]:
    """The shard a page begins on, and where in it (`begin`: at its start). Raises BadInput for what is no cursor."""
    shard, separator, inner = (cursor or f"0:{begin}").partition(":")
    if not separator or not (shard.isascii() and shard.isdigit()) or int(shard) >= shards:
        raise BadInput(f"not a cursor of an earlier page: {cursor[:100]!r}")
    return int(shard), inner


def next_cursor(shard: int, inner: str, shards: int) -> str:
    """What `read_cursor` reads; '' behind the last shard."""
    return f"{shard}:{inner}" if shard < shards else ""


async def crawls(commands: Commands, *, appid: str | None, cursor: str, limit: int) -> tuple[list[CrawlId], str]:
    """About `limit` crawls, none of them twice on a page."""
    at, inner = read_cursor(cursor, commands.count)
    found: dict[CrawlId, None] = {}
    while at < commands.count and len(found) < limit:
        position, blobs = await commands.call(at, "crawls", appid or "", inner, limit - len(found))
        found |= dict.fromkeys(codec.unpack_crawl(blob).id for blob in blobs)
        inner = position.decode()
        if not inner:
            at += 1
    return list(found), next_cursor(at, inner, commands.count)
