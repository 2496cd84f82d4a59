"""What the frontier holds, all crawls together; pages of it go shard after shard."""

from gossamer.errors import BadInput
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Commands
from gossamer.frontier.valkey.finishing import read_home
from gossamer.model.crawl import CrawlId, Terms
from gossamer.model.info import Backlog, WorkerInfo

_TERMS_A_STEP = 200


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


async def terms_of(commands: Commands, crawl: CrawlId, *, most: int) -> list[Terms]:
    """Looked for shard by shard until there are enough."""
    home = await read_home(commands, crawl.token)
    found: dict[bytes, None] = {}
    for shard in home.shards if home else ():
        keys, cursor = commands.keys[shard], b"0"
        first = await commands.plain(shard, "HGET", keys.crawl(crawl.token), "t")
        if first is not None:
            found[first] = None
        while len(found) < most:
            key = keys.terms(crawl.token)
            cursor, row = await commands.plain(shard, "HSCAN", key, cursor, "COUNT", _TERMS_A_STEP)
            # Beside number -> terms there are digest -> number.
            found |= dict.fromkeys(row[i + 1] for i in range(0, len(row), 2) if not row[i].startswith(b"d"))
            if cursor == b"0":
                break
    return [codec.unpack_terms(codec.unpack_parts(raw, 2)[1]) for raw in list(found)[:most]]


async def workers(commands: Commands, *, heartbeat_ms: int) -> list[WorkerInfo]:
    """By name."""
    found: dict[str, WorkerInfo] = {}
    for row in await commands.everywhere("seats", heartbeat_ms):
        for index in range(0, len(row), 3):
            name, silent, leased = row[index].decode(), row[index + 1] / 1000, row[index + 2]
            worker = found.setdefault(name, WorkerInfo(name, silent, 0))
            worker.silent_seconds = min(worker.silent_seconds, silent)
            worker.leased += leased
    return [found[name] for name in sorted(found)]


async def backlog(commands: Commands) -> list[Backlog]:
    """By spider."""
    found: dict[str, Backlog] = {}
    for row in await commands.everywhere("backlog"):
        for index in range(0, len(row), 3):
            spider = row[index].decode().partition("|")[2]
            part = found.setdefault(spider, Backlog(spider, 0, 0))
            part.queued += int(row[index + 1])
            part.domains += row[index + 2]
    return [found[spider] for spider in sorted(found)]


async def backlog_domains(
    commands: Commands, spider: str, *, cursor: str, limit: int
) -> tuple[list[tuple[str, int]], str]:
    """About `limit` domains, none of them twice on a page."""
    at, inner = read_cursor(cursor, commands.count)
    found: dict[str, int] = {}
    while at < commands.count and len(found) < limit:
        position, row = await commands.call(at, "backlog_domains", spider, inner, max(1, limit - len(found)))
        for index in range(0, len(row), 2):  # a domain may be in several pools
            domain = row[index].decode()
            found[domain] = found.get(domain, 0) + int(row[index + 1])
        inner = position.decode()
        if not inner:
            at += 1
    return list(found.items()), next_cursor(at, inner, commands.count)
