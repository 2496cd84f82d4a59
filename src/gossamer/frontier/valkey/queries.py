"""Reads of the frontier's state: crawls, domains, workers, backlogs, one URL. They change nothing.

The frontier's keys are divided into shards by domain; the state of a crawl is on its home shard. A page of a listing
goes from shard to shard; its cursor is "<shard>:<position on that shard>". A run is one life of a crawl; a token is 16
characters that stand for a crawl; a pool is a group of workers with requests of their own.

Fixed: the names and positions of stored fields, which keys.py and the scripts define. A cursor is used for one next
page only, so its form may change.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import msgspec

from gossamer.errors import BadInput
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.keys import KeyPattern, home_shard, shard_of
from gossamer.frontier.valkey.runs import LETTERS, CrawlHome, decode_home, read_home
from gossamer.frontier.valkey.session import worker_of
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import CrawlId, CrawlState, Run, Terms
from gossamer.model.info import (
    AppInfo,
    Backlog,
    CrawlInfo,
    DomainInfo,
    DomainLimit,
    DomainLoad,
    NextRetry,
    SpiderCounts,
    UrlInfo,
    WorkerInfo,
)
from gossamer.model.request import DropReason

# Larger values per call make each call longer, and a shard executes no other call meanwhile. Larger values of the
# others find more, with more calls.
_MAX_TERMS = 100
"""Maximum number of terms (the options of one submission) that `crawl_terms` returns. Its docstring names it, too."""
_TERMS_A_CALL = 200
_RECORDS_A_CALL = 100
"""Records of crawls that one call reads."""
_CRAWLS_LOOKED_AT = 2000
"""Crawls that are looked at for one page of those in one state."""
_LEAST_CRAWLS_READ = 100
"""Minimum number of crawls that `list_crawls` reads at once, even if a page lacks fewer: many may be in another
state."""
_ENTRIES_A_CALL = 1000
"""Entries of a list, or retries, that one call reads."""
_ENTRIES_LOOKED_AT = 100_000
"""Entries of each queue, retries, and failed requests that are searched for one URL. `find_url` names it, too."""

# Letters of the counters (KeyPattern.COUNTERS), and the attributes of SpiderCounts that they are added to. Those of the
# second line have a reason behind the spider's name.
_COUNTERS = {b"a": "added", b"q": "queued", b"l": "later", b"h": "leased", b"f": "fetched"}
_COUNTERS_BY_REASON = {b"F": "failed", b"D": "dropped", b"L": "links_dropped", b"T": "retried"}


# --- pages ------------------------------------------------------------------------------------------------------------


def _read_cursor(cursor: str, shard_count: int, *, begin: str = "") -> tuple[int, str]:
    """Return the shard on which a page begins, and the position there (`begin`: at the start). Raises BadInput for an
    invalid cursor."""
    shard, separator, position = (cursor or f"0:{begin}").partition(":")
    if not separator or not (shard.isascii() and shard.isdigit()) or int(shard) >= shard_count:
        raise BadInput(f"not a cursor of an earlier page: {cursor[:100]!r}")
    return int(shard), position


def _next_cursor(shard: int, position: str, shard_count: int) -> str:
    """Return the cursor of the next page; '' after the last shard."""
    return f"{shard}:{position}" if shard < shard_count else ""


# --- crawls -----------------------------------------------------------------------------------------------------------


def _info_from_home(home: CrawlHome, crawl: CrawlId) -> CrawlInfo:
    """Return what the home record says of a crawl, with counters of 0."""
    ended = home.fields.get(b"ended")
    generation = home.fields[b"gen"]  # about the time at which the first run with this seen-set began
    started = home.fields.get(b"started", generation)
    return CrawlInfo(
        crawl=crawl,
        pool=home.crawl.pool,
        state=home.state,
        run=home.run,
        started=float(started) / 1000,
        first_started=(min(float(generation), float(started)) if home.run > 1 else float(started)) / 1000,
        ended=None if ended is None else float(ended) / 1000,
        domains=0,
        seen=0,
        options=home.crawl,
        expires=home.expires,
    )


def _add_counters(info: CrawlInfo, counters: Mapping[bytes, bytes]) -> None:
    """Add one shard's counters of a crawl."""
    info.domains += int(counters.get(b"doms", 0))
    info.seen += int(counters.get(b"n", 0)) - int(counters.get(b"double", 0))
    info.repairs += int(counters.get(b"w", 0))
    info.is_rebuilt |= b"rebuild" in counters
    info.is_paused |= counters.get(b"st") == b"p"
    info.kept_failed += int(counters.get(b"k", 0))
    info.forgotten_failed += int(counters.get(b"v", 0))
    if packed := counters.get(b"g"):
        info.growing |= codec.unpack_growth(packed)
    for field, value in counters.items():
        kind, _, rest = field.partition(b":")
        if not rest:  # not a counter of a spider
            continue
        if kind in _COUNTERS:
            name = _COUNTERS[kind]
            for part in _parts_of(info, rest):
                setattr(part, name, getattr(part, name) + int(value))
        elif kind in _COUNTERS_BY_REASON:
            stored_name, _, reason = rest.rpartition(b":")
            for part in _parts_of(info, stored_name):
                counts = getattr(part, _COUNTERS_BY_REASON[kind])
                counts[reason.decode()] = counts.get(reason.decode(), 0) + int(value)
        elif kind == b"p":
            priority = int(rest.rpartition(b":")[2])
            info.queued_by_priority[priority] = info.queued_by_priority.get(priority, 0) + int(value)


def _parts_of(info: CrawlInfo, stored_name: bytes) -> list[SpiderCounts]:
    """Return the counts that requests under this name belong to: their spider's, and those of the lane `browser`."""
    spider, render = codec.read_name(stored_name.decode())
    part = info.spiders.setdefault(spider, SpiderCounts())
    return [part, info.rendering] if render else [part]


def _set_early_end(info: CrawlInfo, parts: Mapping[str, str]) -> None:
    """Set the state of a finished run to stopped or expired where each part that had requests was stopped or has
    expired.

    `parts`: spider -> letter of how its part ended.
    """
    letters = {parts.get(spider, "") for spider, counts in info.spiders.items() if counts.added}  # "": ended by itself
    if info.state is CrawlState.FINISHED and letters and "" not in letters:
        all_expired = letters == {LETTERS[CrawlState.EXPIRED]}
        info.state = CrawlState.EXPIRED if all_expired else CrawlState.STOPPED


async def _read_homes(commands: ScriptCommands, crawls: Sequence[CrawlId]) -> list[CrawlHome | None]:
    """Return the home records of these crawls, in order; None for an unknown crawl."""
    places = [(home_shard(crawl.token, commands.count), crawl.token) for crawl in crawls]
    rows = await _read_records(commands, KeyPattern.HOME, places)
    return [decode_home(token, row) for (_, token), row in zip(places, rows, strict=True)]


async def _read_records(
    commands: ScriptCommands, pattern: KeyPattern, places: Sequence[tuple[int, str]], *, max_fields: int = 0
) -> list[Sequence[bytes]]:
    """Return the hashes of this pattern at the places (shard, token), in the same order. `max_fields`: for SHARES,
    about how many fields of each hash; 0: all."""
    records: list[Sequence[bytes]] = [()] * len(places)
    by_shard: dict[int, list[int]] = {}  # positions in `places`
    for index, (shard, _) in enumerate(places):
        by_shard.setdefault(shard, []).append(index)

    async def read(shard: int, part: list[int]) -> None:
        tokens = [places[index][1] for index in part]
        rows = await commands.call(shard, "read_crawls", pattern.kind, max_fields, *tokens)
        for index, row in zip(part, rows, strict=True):
            records[index] = row

    await asyncio.gather(
        *(
            read(shard, part[first : first + _RECORDS_A_CALL])
            for shard, part in by_shard.items()
            for first in range(0, len(part), _RECORDS_A_CALL)
        )
    )
    return records


# --- terms ------------------------------------------------------------------------------------------------------------


async def stored_terms(commands: ScriptCommands, shard: int, token: str, *, limit: int) -> list[bytes]:
    """Return the packed terms of a crawl on one shard; `limit` of them or a few more, where there are so many."""
    keys, cursor = commands.keys[shard], b"0"
    first = await commands.plain(shard, "HGET", keys.key(KeyPattern.COUNTERS, token=token), "t")
    found = [] if first is None else [first]
    key = keys.key(KeyPattern.TERMS, token=token)
    while len(found) < limit:
        cursor, row = await commands.plain(shard, "HSCAN", key, cursor, "COUNT", _TERMS_A_CALL)
        # The hash has number -> terms, and digest -> number.
        found += [row[i + 1] for i in range(0, len(row), 2) if not row[i].startswith(b"d")]
        if cursor == b"0":
            break
    return found


# --- domains ----------------------------------------------------------------------------------------------------------


def _waiting_domains(row: Sequence[bytes]) -> list[DomainInfo]:
    """Return the domains with waiting requests from a crawl's shares."""
    domains = (decode_share(domain, share) for domain, share in codec.hash_fields(row).items())
    return [domain for domain in domains if domain.by_priority]


_LATER = "l"
"""Stored before the priority of requests that wait for a retry."""


def decode_share(domain: bytes, row: bytes) -> DomainInfo:
    """Decode a row of a crawl's shares: [pages reserved, pages fetched, spider, priority, count, ...]. The priority of
    requests that wait for a retry begins with `l`. The pages in the result are those reserved: fetched or under way."""
    with codec.decoding("a domain's record"):
        share = msgspec.msgpack.decode(row)
        found = DomainInfo(domain.decode(), pages=int(share[0]))
        for index in range(2, len(share), 3):
            name, place, count = str(share[index]), str(share[index + 1]), int(share[index + 2])
            spider, render = codec.read_name(name)
            found.rendering += count if render else 0
            priority = int(place.removeprefix(_LATER))
            if place.startswith(_LATER):
                found.later += count
            else:
                found.queued += count
            found.by_priority[priority] = found.by_priority.get(priority, 0) + count
            by_priority = found.by_spider.setdefault(spider, {})
            by_priority[priority] = by_priority.get(priority, 0) + count
        return found


# --- workers and backlogs ---------------------------------------------------------------------------------------------


# --- one URL ----------------------------------------------------------------------------------------------------------


_DROP_REASONS = {b"s": DropReason.STOPPED, b"e": DropReason.EXPIRED, b"b": DropReason.BUDGET}
"""Reason for which requests are dropped, by the letter for the end of their crawl or part. As END_REASONS in
`end_reasons.lua`; after the run has finished, only the counters have the reason."""


class _UrlSearch:
    """Search for one request of a run on its shard."""

    def __init__(self, commands: ScriptCommands, shard: int, run: Run, *, spider: str, url: str) -> None:
        self._commands = commands
        self._shard = shard
        self._keys = commands.keys[shard]
        self._token, self._run = run.crawl.id.token, run.number
        self._spider, self._url = spider, url
        self._names = [codec.stored_name(spider, render=render) for render in (False, True)]
        self.stored_name = spider
        """Name under which the request is stored, once it is found: that of its lane."""
        self._token_bytes, self._url_bytes = self._token.encode(), url.encode()
        self.entry: bytes | None = None
        """Entry of the request, once it is found where it waits or is held."""
        self.is_cut = False
        """True: more requests wait than were searched."""

    async def in_queues(self, domain: str) -> tuple[int, int] | None:
        """Return priority and position of the request in the domain's queues. None: it is not among the entries that
        are looked at."""
        shares = self._keys.key(KeyPattern.SHARES, token=self._token)
        row = await self._commands.plain(self._shard, "HGET", shares, domain)
        share = decode_share(domain.encode(), row) if row else DomainInfo(domain)
        names = self._names if share.rendering else self._names[:1]
        for priority in sorted(share.by_priority, reverse=True):
            for name in names:
                key = self._keys.key(KeyPattern.QUEUE, token=self._token, spider=name, domain=domain, priority=priority)
                async for position, entry in self._elements(key):
                    if self._has_url(entry):
                        self.stored_name = name
                        return priority, position
        return None

    async def _elements(self, key: str) -> AsyncIterator[tuple[int, bytes]]:
        """Yield position and value of the elements of a list, as many as are looked at."""
        for first in range(0, _ENTRIES_LOOKED_AT, _ENTRIES_A_CALL):
            page = await self._commands.plain(self._shard, "LRANGE", key, first, first + _ENTRIES_A_CALL - 1)
            for offset, element in enumerate(page):
                yield first + offset, element
            if len(page) < _ENTRIES_A_CALL:
                return
        self.is_cut = True

    async def in_retries(self) -> float | None:
        """Return when the request is retried, in ms of the shard's time. None: it does not wait for a retry."""
        key, cursor, looked_at = self._keys.key(KeyPattern.LATER), b"0", 0
        while True:
            cursor, page = await self._commands.plain(self._shard, "ZSCAN", key, cursor, "COUNT", _ENTRIES_A_CALL)
            for member, due in codec.hash_fields(page).items():
                if self._is_retry(member):
                    return float(due)
            looked_at += _ENTRIES_A_CALL
            if cursor == b"0":
                return None
            if looked_at >= _ENTRIES_LOOKED_AT:
                self.is_cut = True
                return None

    async def in_leases(self) -> str | None:
        """Return the worker that holds the request. None: no worker does."""
        plain, shard = self._commands.plain, self._shard
        for pattern in (KeyPattern.WORKERS, KeyPattern.DEAD):
            for session in await plain(shard, "ZRANGE", self._keys.key(pattern), 0, -1):
                name = session.decode()
                leases = await plain(shard, "HGETALL", self._keys.key(KeyPattern.LEASES, worker=name))
                if any(self._is_lease(raw) for field, raw in codec.hash_fields(leases).items() if field != b"last"):
                    return worker_of(name)
        return None

    async def early_end(self) -> str | None:
        """Return the reason for which the shard has dropped all waiting requests of the spider: their entries stay in
        the queues for a moment. Empty: one of several reasons. None: it has not dropped them."""
        key, spider = self._keys.key(KeyPattern.COUNTERS, token=self._token), self._spider
        counters = [f"D:{self.stored_name}:{reason}" for reason in _DROP_REASONS.values()]
        fields = ("run", "st", f"st:{spider}", *counters)
        run, state, part, *dropped = await self._commands.plain(self._shard, "HMGET", key, *fields)
        if run is None or int(run) != self._run:
            return None
        if state == b"b" and spider == ASSET_SPIDER:  # a page budget that is used up does not end the assets
            state = b"r"
        if (reason := _DROP_REASONS.get(state) or _DROP_REASONS.get(part)) is not None:
            return reason
        if state != b"f":
            return None
        reasons = [reason for reason, count in zip(_DROP_REASONS.values(), dropped, strict=True) if count]
        return reasons[0] if len(reasons) == 1 else ""

    async def terms(self, number: int) -> Terms | None:
        """Return the terms with this number on the shard. None: they are deleted."""
        token, plain = self._token, partial(self._commands.plain, self._shard)
        raw = await plain("HGET", self._keys.key(KeyPattern.TERMS, token=token), number)
        if raw is None and number == 1:  # the first terms are stored with the counters where they are short
            raw = await plain("HGET", self._keys.key(KeyPattern.COUNTERS, token=token), "t")
        return None if raw is None else codec.unpack_stored_terms(raw)

    async def in_failures(self) -> str:
        """Return the reason of the request's last failure. Empty: it is not among the failed requests that its crawl
        keeps. Each of them is: counter, priority, spider, domain, entry; the counter ends with the reason."""
        async for _, row in self._elements(self._keys.key(KeyPattern.FAILED, token=self._token)):
            if self._url_bytes in row:
                counter, _, spider, _, entry = codec.unpack_parts(row, 5)
                if spider.decode() in self._names and codec.entry_url(entry) == self._url:
                    return counter.decode().rpartition(":")[2]
        return ""

    def _has_url(self, entry: bytes) -> bool:
        """Return whether an entry is of the URL, and if so, keep it."""
        if self._url_bytes not in entry or codec.entry_url(entry) != self._url:
            return False
        self.entry = entry
        return True

    def _is_retry(self, member: bytes) -> bool:
        """Return whether a member of LATER is the request: token, run, priority, spider, domain, entry."""
        if not self._may_be_in(member):
            return False
        token, run, _, name, _, entry = codec.unpack_parts(member, 6)
        return self._is_request(token, run, name, entry)

    def _is_lease(self, raw: bytes) -> bool:
        """Return whether a stored lease is of the request: run, token, priority, spider, domain, scope, entry, and four
        fields that do not matter here (see `taken` in lease.lua)."""
        if not self._may_be_in(raw):
            return False
        run, token, _, name, _, _, entry, *_ = codec.unpack_parts(raw, 11)
        return self._is_request(token, run, name, entry)

    def _may_be_in(self, raw: bytes) -> bool:
        """Exclude most values without decoding them."""
        return self._url_bytes in raw and self._token_bytes in raw

    def _is_request(self, token: bytes, run: bytes, name: bytes, entry: bytes) -> bool:
        """Return whether this is the request, in either lane; if so, keep its entry and its name."""
        if token != self._token_bytes or codec.unpack_number(run) != self._run:
            return False
        stored_name = name.decode()
        if stored_name not in self._names or not self._has_url(entry):
            return False
        self.stored_name = stored_name
        return True


# --- the calls --------------------------------------------------------------------------------------------------------


class FrontierQueries:
    """The part of ValkeyFrontier that reads."""

    _commands: ScriptCommands
    _dead_after_ms: int

    async def crawl_info(self, crawl: CrawlId) -> CrawlInfo | None:
        """Return a crawl's state and counters, at the same cost for any size. None: no such crawl, or past its
        retention."""
        [info] = await self.crawl_infos([crawl])
        return info

    async def latest_run(self, crawl: CrawlId) -> Run | None:
        """Return the crawl's newest run, running or over, as it was opened. None: no such crawl."""
        home = await read_home(self._commands, crawl.token)
        return Run(home.crawl, home.run, home.generation) if home else None

    async def list_crawl_ids(
        self, *, appid: str | None = None, cursor: str = "", limit: int = 100, running: bool = False
    ) -> tuple[list[CrawlId], str]:
        """Return a page of about `limit` crawls of all pools that are known (running, within their retention, or
        stopped or expired), of one application or all; and the cursor of the next page ('' at the end). `running`:
        only those that run.

        The pages contain every crawl that exists throughout, perhaps those that come or go meanwhile, and perhaps a
        crawl twice. In no order. Raises BadInput for an invalid cursor."""
        shard, position = _read_cursor(cursor, self._commands.count)
        found: dict[CrawlId, None] = {}
        while shard < self._commands.count and len(found) < limit:
            next_position, blobs = await self._commands.call(
                shard, "list_crawls", appid or "", position, limit - len(found), int(running)
            )
            found |= dict.fromkeys(codec.unpack_crawl(blob).id for blob in blobs)
            position = next_position.decode()
            if not position:
                shard += 1
        return list(found), _next_cursor(shard, position, self._commands.count)

    async def list_crawls(
        self, *, appid: str | None = None, state: CrawlState | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlInfo], str]:
        """Return a page of about `limit` crawls, of one application or all, in one state or any; and the cursor of the
        next page ('' at the end). Pages are as those of `list_crawl_ids`; a page may be short or empty and have a next
        one.

        The cost does not grow with the number of crawls; running crawls are listed apart."""
        found: list[CrawlInfo] = []
        looked_at = 0
        while True:
            size = max(limit - len(found), min(limit, _LEAST_CRAWLS_READ))
            page, cursor = await self.list_crawl_ids(
                appid=appid, cursor=cursor, limit=size, running=state is CrawlState.RUNNING
            )
            infos = await self.crawl_infos(page)
            found += [info for info in infos if info is not None and state in (None, info.state)]
            looked_at += len(page)
            if not cursor or len(found) >= limit or looked_at >= _CRAWLS_LOOKED_AT:
                return found, cursor

    async def crawl_infos(self, crawls: Sequence[CrawlId]) -> list[CrawlInfo | None]:
        """Return `crawl_info` of each of these crawls, in order, in a few calls for hundreds of them."""
        homes = await _read_homes(self._commands, crawls)
        infos = [_info_from_home(home, crawl) if home else None for home, crawl in zip(homes, crawls, strict=True)]
        # A crawl has a record of counters on each shard that it touched. `places`: shard, and index of the crawl.
        places = [(shard, index) for index, home in enumerate(homes) if home for shard in home.shards]
        rows = await _read_records(
            self._commands, KeyPattern.COUNTERS, [(shard, crawls[index].token) for shard, index in places]
        )
        for (_, index), row in zip(places, rows, strict=True):
            home, info, counters = homes[index], infos[index], codec.hash_fields(row)
            # A shard that is still in an earlier run has nothing of this one.
            if home is not None and info is not None and counters.get(b"run") == home.fields[b"run"]:
                _add_counters(info, counters)
        for home, info in zip(homes, infos, strict=True):
            if home is not None and info is not None:
                _set_early_end(info, home.parts)
        return infos

    async def next_retry(self, crawl: CrawlId) -> NextRetry | None:
        """Return the retry of a crawl that is due first. None: none waits, or 1,000 of other crawls are due before."""
        home = await read_home(self._commands, crawl.token)
        found: list[NextRetry] = []
        for shard in home.shards if home else ():
            key = self._commands.keys[shard].key(KeyPattern.LATER)
            page = await self._commands.plain(shard, "ZRANGE", key, 0, _ENTRIES_A_CALL - 1, "WITHSCORES")
            for member, due in codec.hash_fields(page).items():
                token, run, _, spider, domain, _ = codec.unpack_parts(member, 6)
                if home and (token.decode(), codec.unpack_number(run)) == (crawl.token, home.run):
                    names = (home.crawl.pool, spider.decode(), domain.decode())
                    _, _, clock_offset, _ = await self._commands.call(shard, "domain_due", *names)
                    found.append(NextRetry(domain.decode(), (float(due) + float(clock_offset)) / 1000))
                    break
        return min(found, key=lambda retry: retry.due, default=None)

    async def app_info(self, appid: str, *, spider: str = "") -> AppInfo:
        """Return how much of an application waits, for one spider (empty: all). The cost does not grow with its
        crawls."""
        rows = await self._commands.everywhere("app_info", appid, spider)
        # Each row: waiting requests, domains, crawls.
        waiting, domains, crawls = map(sum, zip(*rows, strict=True))
        return AppInfo(waiting=waiting, crawls=crawls, domains=domains)

    async def first_domains(self, crawls: Sequence[CrawlId], *, limit: int) -> list[list[DomainInfo]]:
        """Return for each crawl at most `limit` of the domains where requests wait. The domains of a stopped crawl are
        listed until their queues are deleted."""
        homes = await _read_homes(self._commands, crawls)
        places = [(shard, index) for index, home in enumerate(homes) if home for shard in home.shards]
        rows = await _read_records(
            self._commands,
            KeyPattern.SHARES,
            [(shard, crawls[index].token) for shard, index in places],
            max_fields=limit,
        )
        found: list[list[DomainInfo]] = [[] for _ in crawls]
        for (_, index), row in zip(places, rows, strict=True):
            found[index] += _waiting_domains(row)
        return [domains[:limit] for domains in found]

    async def crawl_domains(
        self, crawl: CrawlId, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[DomainInfo], str]:
        """Return a page of about `limit` domains with waiting requests, and the cursor of the next page ('' at the
        end)."""
        shard, position = _read_cursor(cursor, self._commands.count, begin="0")
        domains: list[DomainInfo] = []
        while shard < self._commands.count and len(domains) < limit:
            key = self._commands.keys[shard].key(KeyPattern.SHARES, token=crawl.token)
            next_position, row = await self._commands.plain(shard, "HSCAN", key, position, "COUNT", limit)
            domains += _waiting_domains(row)
            position = next_position.decode()
            if position == "0":
                shard += 1
        return domains, _next_cursor(shard, position, self._commands.count)

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers of all pools that sent a heartbeat in time; by name."""
        found: dict[str, WorkerInfo] = {}
        browsers: set[str] = set()
        for row, announced in await self._commands.everywhere("list_workers", self._dead_after_ms):
            browsers.update(name.decode().partition("|")[2] for name in announced)
            # For each session: its name, ms since its last call, number of its leases. A worker has one on each shard.
            for session, silent_ms, leased in zip(row[::3], row[1::3], row[2::3], strict=True):
                name, silent = worker_of(session.decode()), silent_ms / 1000
                worker = found.setdefault(name, WorkerInfo(name, silent, 0))
                worker.silent_seconds = min(worker.silent_seconds, silent)
                worker.leased += leased
        for name in browsers & found.keys():
            found[name].browser = True
        return [found[name] for name in sorted(found)]

    async def backlog(self) -> list[Backlog]:
        """Return for each spider what waits in the queues of all pools, without retries that are not due. The cost does
        not grow with it.

        The number of requests is exact. So is the number of domains, except that domains whose requests all wait for a
        page of their crawl's budget are left out, and those just stopped count until their queues are deleted."""
        found: dict[str, Backlog] = {}
        for row in await self._commands.everywhere("backlog"):
            for group, queued, domains in zip(row[::3], row[1::3], row[2::3], strict=True):
                spider, render = codec.read_name(group.decode().partition("|")[2])  # "<pool>|<spider>"
                part = found.setdefault(spider, Backlog(spider, 0, 0))
                part.queued += int(queued)
                part.rendering += int(queued) if render else 0
                part.domains += domains
        return [found[spider] for spider in sorted(found)]

    async def backlog_domains(
        self, spider: str, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[tuple[str, int]], str]:
        """Return a page of about `limit` domains where requests of this spider wait, with their number (in the first
        1,000 queues there), and the cursor of the next page ('' at the end).

        A domain whose urgency changes meanwhile may be on two pages or on none. Raises BadInput for an invalid
        cursor."""
        shard, position = _read_cursor(cursor, self._commands.count)
        found: dict[str, int] = {}
        while shard < self._commands.count and len(found) < limit:
            next_position, row = await self._commands.call(
                shard, "backlog_domains", spider, position, max(1, limit - len(found))
            )
            for name, count in zip(row[::2], row[1::2], strict=True):  # a domain may be in several pools
                domain = name.decode()
                found[domain] = found.get(domain, 0) + int(count)
            position = next_position.decode()
            if not position:
                shard += 1
        return list(found.items()), _next_cursor(shard, position, self._commands.count)

    async def domain_load(self, domain: str, *, crawl: CrawlId | None = None, spider: str = "link") -> DomainLoad:
        """Return what limits the requests to a domain now: those of a crawl, or (None) of crawls that ask for no rate.
        `spider`: for a policy that counts each spider alone. Where it counts each address alone, the hits are 0."""
        shard = shard_of(domain, self._commands.count)
        token = crawl.token if crawl else ""
        reply = await self._commands.call(shard, "domain_load", domain, spider, token)
        blocked, in_flight, most, is_paused, *rows = reply
        limits = [
            DomainLimit(cause.decode(), hits, float(window_ms) / 1000, used)
            for cause, hits, window_ms, used in zip(*[iter(rows)] * 4, strict=True)
        ]
        return DomainLoad(
            limits=tuple(limits),
            in_flight=in_flight,
            concurrency=most or None,
            blocked_until=float(blocked) / 1000 if blocked else None,
            is_paused=bool(is_paused),
        )

    async def robots_origins(self, domain: str, *, limit: int = 20) -> list[tuple[str, bytes]]:
        """Return the origins of a domain whose robots.txt was saved last, each with its record."""
        shard = shard_of(domain, self._commands.count)
        keys, plain = self._commands.keys[shard], partial(self._commands.plain, shard)
        names = await plain("ZREVRANGE", keys.key(KeyPattern.ROBOTS_OF, domain=domain), 0, limit - 1)
        origins = [name.decode() for name in names]
        records = await asyncio.gather(
            *(plain("GET", keys.key(KeyPattern.ROBOTS, origin=origin)) for origin in origins)
        )
        return [(origin, record) for origin, record in zip(origins, records, strict=True) if record]

    async def find_url(self, run: Run, *, spider: str, domain: str, url: str, fingerprint: int) -> UrlInfo:
        """Return the state of one URL. Searches at most 100,000 entries of each queue, of the retries and of the failed
        requests that the crawl keeps. Of a request that is done, only the fingerprint is left, so how it ended is not
        known, with the two exceptions that `UrlInfo` names."""
        # In this order a request that is leased meanwhile is still found. One that a worker puts back meanwhile may be
        # reported as done.
        shard = shard_of(domain, self._commands.count)
        seen = bool(await self._commands.call(shard, "is_seen", run.crawl.id.token, fingerprint))
        info = UrlInfo(spider=spider, seen=seen, place="unknown")
        blocked, due, clock_offset, rests = await self._commands.call(
            shard, "domain_due", run.crawl.pool, spider, domain
        )
        info.blocked_until = float(blocked) / 1000 if blocked else None
        info.rests = bool(blocked and rests)
        if not seen:
            return info
        search = _UrlSearch(self._commands, shard, run, spider=spider, url=url)
        if (queued := await search.in_queues(domain)) is not None:
            info.place = "queued"
            info.priority, info.position = queued
            if search.stored_name != spider:
                _, due, *_ = await self._commands.call(shard, "domain_due", run.crawl.pool, search.stored_name, domain)
            info.due = float(due) / 1000 if due else None
        elif (retry_at := await search.in_retries()) is not None:
            info.place, info.due = "later", (retry_at + float(clock_offset)) / 1000
        elif (worker := await search.in_leases()) is not None:
            info.place, info.held_by = "leased", worker
        elif not search.is_cut:
            info.place = "done"
            info.failure = await search.in_failures()
        if search.entry is not None:
            info.deaths, info.failed_attempts, _, number, *_ = codec.decode_entry(search.entry)
            info.terms = await search.terms(number)
            info.render = search.stored_name != spider
        if info.waits and (reason := await search.early_end()) is not None:
            return UrlInfo(spider=spider, seen=True, place="done", dropped=reason, terms=info.terms)
        return info

    async def crawl_terms(self, crawl: CrawlId) -> list[Terms]:
        """Return the distinct terms of the submissions to a crawl, those of earlier runs too; at most 100, in no order.
        Empty: no such crawl, or nothing was added."""
        home = await read_home(self._commands, crawl.token)
        found: dict[bytes, None] = {}
        for shard in home.shards if home else ():
            if len(found) < _MAX_TERMS:
                found |= dict.fromkeys(await stored_terms(self._commands, shard, crawl.token, limit=_MAX_TERMS))
        return [codec.unpack_stored_terms(raw) for raw in list(found)[:_MAX_TERMS]]
