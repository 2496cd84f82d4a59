"""What the frontier holds, all crawls together; pages of it go shard after shard."""

import asyncio
from collections.abc import Sequence

from gossamer.errors import BadInput
from gossamer.frontier.valkey import codec, info
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.finishing import CrawlHome, read_home, unpack_home
from gossamer.frontier.valkey.keys import home_shard
from gossamer.frontier.valkey.session import worker_of
from gossamer.model.crawl import CrawlId, CrawlState, Run, Terms
from gossamer.model.info import AppInfo, Backlog, CrawlInfo, DomainInfo, UrlInfo, WorkerInfo

_TERMS_A_STEP = 200
_RECORDS_A_CALL = 100
_MOST_LOOKED_AT = 2000
"""Crawls that are looked at for a page of those in one state."""


def read_cursor(cursor: str, shards: int, *, begin: str = "") -> tuple[int, str]:
    """The shard a page begins on, and where in it (`begin`: at its start). Raises BadInput for what is no cursor."""
    shard, separator, inner = (cursor or f"0:{begin}").partition(":")
    if not separator or not (shard.isascii() and shard.isdigit()) or int(shard) >= shards:
        raise BadInput(f"not a cursor of an earlier page: {cursor[:100]!r}")
    return int(shard), inner


def next_cursor(shard: int, inner: str, shards: int) -> str:
    """What `read_cursor` reads; '' behind the last shard."""
    return f"{shard}:{inner}" if shard < shards else ""


async def crawls(
    commands: ScriptCommands, *, appid: str | None, cursor: str, limit: int, running: bool = False
) -> tuple[list[CrawlId], str]:
    """About `limit` crawls, none of them twice on a page. `running`: only those that run."""
    at, inner = read_cursor(cursor, commands.count)
    found: dict[CrawlId, None] = {}
    while at < commands.count and len(found) < limit:
        position, blobs = await commands.call(at, "list_crawls", appid or "", inner, limit - len(found), int(running))
        found |= dict.fromkeys(codec.unpack_crawl(blob).id for blob in blobs)
        inner = position.decode()
        if not inner:
            at += 1
    return list(found), next_cursor(at, inner, commands.count)


async def crawl_page(
    commands: ScriptCommands, *, appid: str | None, state: CrawlState | None, cursor: str, limit: int
) -> tuple[list[CrawlInfo], str]:
    """Where about `limit` crawls stand: of one state, or of all. A page may be short or empty and have a next one."""
    found: list[CrawlInfo] = []
    looked_at = 0
    while True:
        size = max(limit - len(found), min(limit, 100))
        page, cursor = await crawls(
            commands, appid=appid, cursor=cursor, limit=size, running=state is CrawlState.RUNNING
        )
        infos = await crawl_infos(commands, page)
        found += [one for one in infos if one is not None and state in (None, one.state)]
        looked_at += len(page)
        if not cursor or len(found) >= limit or looked_at >= _MOST_LOOKED_AT:
            return found, cursor


async def crawl_infos(commands: ScriptCommands, crawls: Sequence[CrawlId]) -> list[CrawlInfo | None]:
    """Where each of these crawls stands, in a few calls for all of them; None for one that is not known."""
    homes = await _homes(commands, crawls)
    found = [_begin_info(home, crawl) if home else None for home, crawl in zip(homes, crawls, strict=True)]
    places = [(shard, index) for index, home in enumerate(homes) if home for shard in home.shards]
    rows = await _hashes(commands, "c", [(shard, crawls[index].token) for shard, index in places])
    for (_, index), row in zip(places, rows, strict=True):
        home, answer, counters = homes[index], found[index], info.pairs(row)
        if home is not None and answer is not None and counters.get(b"run") == home.facts[b"run"]:
            info.count_shard(answer, counters)
    for home, answer in zip(homes, found, strict=True):
        if home is not None and answer is not None:
            info.tell_early_end(answer, home.parts)
    return found


async def first_domains(commands: ScriptCommands, crawls: Sequence[CrawlId], *, limit: int) -> list[list[DomainInfo]]:
    """Of each crawl about `limit` of the domains where requests wait, in a few calls for all of them."""
    homes = await _homes(commands, crawls)
    places = [(shard, index) for index, home in enumerate(homes) if home for shard in home.shards]
    rows = await _hashes(commands, "d", [(shard, crawls[index].token) for shard, index in places], most=limit)
    found: list[list[DomainInfo]] = [[] for _ in crawls]
    for (_, index), row in zip(places, rows, strict=True):
        domains = (info.domain_info(domain, share) for domain, share in info.pairs(row).items())
        found[index] += [domain for domain in domains if domain.by_priority]
    return [domains[:limit] for domains in found]


async def app_info(commands: ScriptCommands, appid: str, *, spider: str) -> AppInfo:
    """One call a shard, however many crawls there are."""
    rows = await commands.everywhere("app_info", appid, spider)
    waiting, domains, crawls = (sum(row[part] for row in rows) for part in range(3))
    return AppInfo(waiting=waiting, crawls=crawls, domains=domains)


def _begin_info(home: CrawlHome, crawl: CrawlId) -> CrawlInfo:
    ended = home.facts.get(b"ended")
    return CrawlInfo(
        crawl=crawl,
        pool=home.crawl.pool,
        state=home.state,
        run=home.run,
        started=float(home.facts.get(b"started", home.facts[b"gen"])) / 1000,
        ended=None if ended is None else float(ended) / 1000,
        domains=0,
        seen=0,
        expires=home.expires,
    )


async def _homes(commands: ScriptCommands, crawls: Sequence[CrawlId]) -> list[CrawlHome | None]:
    places = [(home_shard(crawl.token, commands.count), crawl.token) for crawl in crawls]
    rows = await _hashes(commands, "h", places)
    return [unpack_home(token, row) for (_, token), row in zip(places, rows, strict=True)]


async def _hashes(
    commands: ScriptCommands, kind: str, places: Sequence[tuple[int, str]], *, most: int = 0
) -> list[Sequence[bytes]]:
    """The records of this kind at (shard, token), in order."""
    found: list[Sequence[bytes]] = [()] * len(places)
    by_shard: dict[int, list[int]] = {}
    for index, (shard, _) in enumerate(places):
        by_shard.setdefault(shard, []).append(index)

    async def read(shard: int, part: list[int]) -> None:
        rows = await commands.call(shard, "read_crawls", kind, most, *(places[index][1] for index in part))
        for index, row in zip(part, rows, strict=True):
            found[index] = row

    await asyncio.gather(
        *(
            read(shard, part[first : first + _RECORDS_A_CALL])
            for shard, part in by_shard.items()
            for first in range(0, len(part), _RECORDS_A_CALL)
        )
    )
    return found


async def terms_of(commands: ScriptCommands, crawl: CrawlId, *, most: int) -> list[Terms]:
    """Looked for shard by shard until there are enough."""
    home = await read_home(commands, crawl.token)
    found: dict[bytes, None] = {}
    for shard in home.shards if home else ():
        if len(found) < most:
            found |= dict.fromkeys(await terms_on(commands, shard, crawl.token, most=most))
    return [codec.unpack_stored_terms(raw) for raw in list(found)[:most]]


async def terms_on(commands: ScriptCommands, shard: int, token: str, *, most: int) -> list[bytes]:
    """The terms of a crawl on one shard as they are stored, at least `most` where there are so many."""
    keys, cursor = commands.keys[shard], b"0"
    first = await commands.plain(shard, "HGET", keys.crawl(token), "t")
    found = [] if first is None else [first]
    while len(found) < most:
        cursor, row = await commands.plain(shard, "HSCAN", keys.terms(token), cursor, "COUNT", _TERMS_A_STEP)
        # Beside number -> terms there are digest -> number.
        found += [row[i + 1] for i in range(0, len(row), 2) if not row[i].startswith(b"d")]
        if cursor == b"0":
            break
    return found


async def workers(commands: ScriptCommands, *, heartbeat_ms: int) -> list[WorkerInfo]:
    """By name."""
    found: dict[str, WorkerInfo] = {}
    for row in await commands.everywhere("list_workers", heartbeat_ms):
        for index in range(0, len(row), 3):
            name, silent, leased = worker_of(row[index].decode()), row[index + 1] / 1000, row[index + 2]
            worker = found.setdefault(name, WorkerInfo(name, silent, 0))
            worker.silent_seconds = min(worker.silent_seconds, silent)
            worker.leased += leased
    return [found[name] for name in sorted(found)]


async def backlog(commands: ScriptCommands) -> list[Backlog]:
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
    commands: ScriptCommands, spider: str, *, cursor: str, limit: int
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


_LOOK_AT = 100_000
_PAGE = 1000


async def find(
    commands: ScriptCommands, shard: int, run: Run, *, spider: str, domain: str, url: str, fingerprint: int
) -> UrlInfo:
    """Looks into the seen-set, then where a request can be: its queues, the retries, the workers' leases."""
    keys, token = commands.keys[shard], run.crawl.id.token
    seen = bool(await commands.call(shard, "is_seen", token, fingerprint))
    answer = UrlInfo(seen=seen, place="unknown")
    blocked, due, ahead = await commands.call(shard, "domain_due", run.crawl.pool, spider, domain)
    answer.blocked_until = float(blocked) / 1000 if blocked else None
    if not seen:
        return answer
    answer.place = "done"
    entry = _QueuedEntry(token, run.number, spider, url)
    row = await commands.plain(shard, "HGET", keys.shares(token), domain)
    priorities = sorted(info.domain_info(domain.encode(), row).by_priority, reverse=True) if row else []
    for priority in priorities:
        key = keys.queue(token, spider, domain, priority)
        for first in range(0, _LOOK_AT, _PAGE):
            entries = await commands.plain(shard, "LRANGE", key, first, first + _PAGE - 1)
            for offset, packed in enumerate(entries):
                if entry.is_in(packed):
                    answer.place, answer.priority, answer.position = "queued", priority, first + offset
                    answer.due = float(due) / 1000 if due else None
                    return answer
            if len(entries) < _PAGE:
                break
    cursor, looked = b"0", 0
    while True:
        cursor, page = await commands.plain(shard, "ZSCAN", keys.later, cursor, "COUNT", _PAGE)
        for member, score in info.pairs(page).items():
            if entry.is_later(member):
                answer.place, answer.due = "later", (float(score) + float(ahead)) / 1000
                return answer
        looked += _PAGE
        if cursor == b"0" or looked >= _LOOK_AT:
            break
    for holders in (keys.workers, keys.dead):
        for worker in await commands.plain(shard, "ZRANGE", holders, 0, -1):
            leases = info.pairs(await commands.plain(shard, "HGETALL", keys.leases(worker.decode())))
            if any(entry.is_leased(raw) for name, raw in leases.items() if name != b"last"):
                answer.place, answer.held_by = "leased", worker_of(worker.decode())
                return answer
    return answer


class _QueuedEntry:
    """One request, to be recognised wherever it is kept."""

    def __init__(self, token: str, run: int, spider: str, url: str) -> None:
        self._token, self._spider, self._encoded = token.encode(), spider.encode(), url.encode()
        self._run, self._url = run, url

    def is_in(self, entry: bytes) -> bool:
        return self._encoded in entry and codec.decode_entry(entry)[4] == self._url

    def is_later(self, member: bytes) -> bool:
        """Of a retry: token, run, priority, spider, domain, entry."""
        if not self._may_be_in(member):
            return False
        token, run, _, spider, _, entry = codec.unpack_parts(member, 6)
        return self._is_mine(token, run, spider) and self.is_in(entry)

    def is_leased(self, raw: bytes) -> bool:
        """Of a lease: run, token, priority, spider, domain, scope, entry, two of its last hop, its start, and the
        even gap."""
        if not self._may_be_in(raw):
            return False
        run, token, _, spider, _, _, entry, *_ = codec.unpack_parts(raw, 11)
        return self._is_mine(token, run, spider) and self.is_in(entry)

    def _may_be_in(self, raw: bytes) -> bool:
        """Reads nothing: most that is looked at is something else."""
        return self._encoded in raw and self._token in raw

    def _is_mine(self, token: bytes, run: bytes, spider: bytes) -> bool:
        return (token, spider) == (self._token, self._spider) and codec.unpack_number(run) == self._run
