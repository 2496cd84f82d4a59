"""Reads a crawl from the frontier, the store of requests, with all that another frontier needs to go on with it.

The frontier is divided into shards by domain. A run is one life of a crawl; terms are the options of one submission.
The crawl is paused: its requests are not handed out, and none is with a worker.

Fixed: requests that wait for a time are read before queues, because a lease for another crawl may move them there.
"""

import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from gossamer.errors import BadInput
from gossamer.frontier.exported import (
    VERSION,
    ExportedCounts,
    ExportedFailures,
    ExportedFingerprints,
    ExportedGrowth,
    ExportedLine,
    ExportedPages,
    ExportedPolicies,
    ExportedQueue,
    ExportedRetries,
    ExportedTasks,
    ExportedTerms,
    ExportHeader,
)
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.identity import FORMAT
from gossamer.frontier.valkey.keys import KeyPattern, home_shard
from gossamer.frontier.valkey.runs import CrawlHome, read_home, try_finish
from gossamer.model.crawl import CrawlId, CrawlState

# Values of one line. More make longer lines, and calls that take a server longer when they are imported.
_FINGERPRINTS_A_LINE = 2000
_ENTRIES_A_LINE = 250
_NAMES_A_LINE = 1000
_READ_AT_ONCE = 500
"""Entries or fields that one call reads."""
_DOMAINS_A_CALL = 100
"""Domains that one call puts back when a crawl goes on."""
_PAUSED, _RUNNING = "p", "r"
"""States of a run on a shard, as pause_run.lua takes them."""
_COUNTED = (b"f", b"F", b"D", b"L", b"T")
"""Letters of the counters (KeyPattern.COUNTERS) of what is done, and of links and attempts."""
_HEADER_BYTES = 7
_SUSPECT = 8
"""Flag of an entry that names workers which died; codec.py has the same."""

T = TypeVar("T")


async def set_paused(commands: ScriptCommands, token: str, *, paused: bool, retention_ms: int) -> bool:
    """Pause a crawl on all of its shards, or let it go on. Returns False for a crawl that does not run."""
    home = await read_home(commands, token)
    if home is None or home.state is not CrawlState.RUNNING:
        return False
    state, changed = _PAUSED if paused else _RUNNING, False
    for shard in home.shards:
        more = True
        while more:
            is_set, more, _ = await commands.call(
                shard, "pause_run", token, home.run, state, _DOMAINS_A_CALL, confirmed=True
            )
            changed = changed or bool(is_set)
    if not paused:  # what was in flight may have been the last
        await try_finish(commands, token, retention_ms=retention_ms)
    return changed


class CrawlExport:
    """Lines of one crawl. The crawl is paused, and no worker has a request of it."""

    def __init__(self, commands: ScriptCommands, home: CrawlHome, *, secret: int) -> None:
        self._commands = commands
        self._home = home
        self._token = home.token
        self._secret = secret
        self._terms: dict[bytes, int] = {}
        """Numbers of the terms in the export."""
        self._numbers: list[dict[int, int]] = [{} for _ in range(commands.count)]
        """By shard: number of terms there -> number in the export."""
        self._kept: Counter[str] = Counter()
        """Kept failures by their counter."""
        self._later: set[int] = set()
        """Hashes of the requests that wait for a time."""

    @classmethod
    async def of(cls, commands: ScriptCommands, crawl: CrawlId, *, secret: int) -> "CrawlExport":
        """Return the export of a paused crawl. Raises BadInput for one that does not run, or of which a spider's part
        has ended."""
        home = await read_home(commands, crawl.token)
        if home is None or home.state is not CrawlState.RUNNING:
            raise BadInput(f"the crawl {crawl} is {home.state.value if home else 'unknown'}: nothing of it waits.")
        if home.parts:
            raise BadInput(f"parts of the crawl {crawl} were stopped: {', '.join(home.parts)}. It cannot be exported.")
        return cls(commands, home, secret=secret)

    async def lines(self) -> AsyncIterator[ExportedLine]:
        """Yield all lines but the last one, in the order in which they are imported: what the crawl has had, then what
        it has done, then what waits."""
        yield self._header()
        shards = self._home.shards
        for shard in shards:
            async for terms in self._terms_on(shard):
                yield terms
        for shard in shards:
            async for seen in self._seen_on(shard):
                yield seen
        for shard in shards:
            async for failures in self._failures_on(shard):
                yield failures
        yield await self._counts()
        if growth := await self._growth():
            yield ExportedGrowth(patterns=growth)
        for shard in shards:
            async for found in self._domains_on(shard):
                yield found
        async for tasks in self._tasks():
            yield tasks
        for shard in shards:
            async for retries in self._retries_on(shard):
                yield retries
            async for queue in self._queues_on(shard):
                yield queue

    def _header(self) -> ExportHeader:
        home = self._home
        identity = home.crawl.id
        return ExportHeader(
            version=VERSION,
            frontier=FORMAT,
            export=secrets.token_hex(8),
            appid=identity.appid,
            crawlid=identity.crawlid,
            secret=str(self._secret),
            shards=self._commands.count,
            crawl=codec.pack_crawl(home.crawl),
            run=home.run,
            generation=home.generation,
            started=int(float(home.fields.get(b"started", home.fields[b"gen"]))),
            expires=home.expires,
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def _key(self, shard: int, pattern: KeyPattern, **names: Any) -> str:
        return self._commands.keys[shard].key(pattern, token=self._token, **names)

    async def _counters(self, shard: int) -> dict[bytes, bytes]:
        """Return the counters of the run on a shard. Empty: the shard is in no or another run."""
        key = self._key(shard, KeyPattern.COUNTERS)
        row = codec.hash_fields(await self._commands.plain(shard, "HGETALL", key))
        run, generation = row.get(b"run", b"0"), row.get(b"gen", b"0")
        return row if (int(run), int(generation)) == (self._home.run, self._home.generation) else {}

    async def _fields(self, shard: int, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
        """Yield field and value of a hash, each once."""
        cursor: Any = 0
        seen: set[int] = set()
        while True:
            cursor, page = await self._commands.plain(shard, "HSCAN", key, cursor, "COUNT", _READ_AT_ONCE)
            for field, value in codec.hash_fields(page).items():
                if hash(field) not in seen:
                    seen.add(hash(field))
                    yield field, value
            if int(cursor) == 0:
                return

    async def _elements(self, shard: int, key: str) -> AsyncIterator[bytes]:
        """Yield the elements of a list."""
        at = 0
        while page := await self._commands.plain(shard, "LRANGE", key, at, at + _READ_AT_ONCE - 1):
            for element in page:
                yield element
            at += len(page)

    # --- what the crawl has had and done ------------------------------------------------------------------------------

    async def _terms_on(self, shard: int) -> AsyncIterator[ExportedTerms]:
        stored = {}
        async for field, value in self._fields(shard, self._key(shard, KeyPattern.TERMS)):
            if not field.startswith(b"d"):
                stored[int(field)] = value
        if first := (await self._counters(shard)).get(b"t"):
            stored[1] = first
        for number, packed in stored.items():
            if packed not in self._terms:
                self._terms[packed] = len(self._terms) + 1
                yield ExportedTerms(number=self._terms[packed], packed=packed)
            self._numbers[shard][number] = self._terms[packed]

    async def _seen_on(self, shard: int) -> AsyncIterator[ExportedFingerprints]:
        counters = await self._counters(shard)
        if only := counters.get(b"s"):
            yield ExportedFingerprints(shard=shard, values=[int(only)])
            return
        values: list[int] = []
        for bucket in range(int(counters.get(b"b", 1)) if counters else 0):
            key = self._key(shard, KeyPattern.SEEN, generation=self._home.generation, bucket=bucket)
            values += map(int, await self._commands.plain(shard, "SMEMBERS", key))
            while len(values) >= _FINGERPRINTS_A_LINE:
                yield ExportedFingerprints(shard=shard, values=values[:_FINGERPRINTS_A_LINE])
                del values[:_FINGERPRINTS_A_LINE]
        if values:
            yield ExportedFingerprints(shard=shard, values=values)

    async def _failures_on(self, shard: int) -> AsyncIterator[ExportedFailures]:
        groups: dict[tuple[str, str, str, int, int], list[bytes]] = {}
        async for row in self._elements(shard, self._key(shard, KeyPattern.FAILED)):
            counter, priority, spider, domain, entry = codec.unpack_parts(row, 5)
            name = counter.decode()
            self._kept[name] += 1
            place = (name, spider.decode(), domain.decode(), codec.unpack_number(priority), self._number(shard, entry))
            groups.setdefault(place, []).append(_bare(entry))
        for (name, its_spider, its_domain, its_priority, terms), entries in groups.items():
            for some in _parts(entries):
                yield ExportedFailures(
                    counter=name, spider=its_spider, domain=its_domain, priority=its_priority, terms=terms, entries=some
                )

    async def _counts(self) -> ExportedCounts:
        fields: Counter[str] = Counter()
        pages = 0
        for shard in self._home.shards:
            for field, value in (await self._counters(shard)).items():
                letter, colon, _ = field.partition(b":")
                if (colon and letter in _COUNTED) or field in (b"v", b"w"):
                    fields[field.decode()] += int(value)
                elif field == b"Y":
                    pages += int(value)
        fields.subtract(self._kept)
        return ExportedCounts(fields={name: count for name, count in fields.items() if count}, pages=pages)

    async def _growth(self) -> dict[str, tuple[str, int, int, str]]:
        found = {}
        for shard in self._home.shards:
            if packed := (await self._counters(shard)).get(b"g"):
                for name, one in codec.unpack_growth(packed).items():
                    found[name] = (one.growth.value, one.pages, one.depth, one.example)
        return found

    async def _domains_on(self, shard: int) -> AsyncIterator[ExportedLine]:
        """Yield what the crawl has on the domains of a shard, besides its requests, and the operator's policies."""
        pages: dict[str, int] = {}
        policies: dict[str, bytes] = {}
        policy_key = self._commands.keys[shard].key(KeyPattern.POLICY)
        async for domain, row in self._fields(shard, self._key(shard, KeyPattern.SHARES)):
            fetched = msgspec.msgpack.decode(row)[1]
            if fetched:
                pages[domain.decode()] = int(fetched)
            policy = await self._commands.plain(shard, "HGET", policy_key, b"d:" + domain)
            if policy:
                policies[domain.decode()] = policy
            if len(pages) >= _NAMES_A_LINE:
                yield ExportedPages(domains=pages)
                pages = {}
        if pages:
            yield ExportedPages(domains=pages)
        if policies:
            yield ExportedPolicies(domains=policies)

    async def _tasks(self) -> AsyncIterator[ExportedTasks]:
        home = home_shard(self._token, self._commands.count)
        names: list[str] = []
        async for field, value in self._fields(
            home, self._key(home, KeyPattern.ONCE, generation=self._home.generation)
        ):
            if not value:  # else a process is doing it
                names.append(field.decode())
        for some in _parts(names, _NAMES_A_LINE):
            yield ExportedTasks(names=some)

    # --- what waits ---------------------------------------------------------------------------------------------------

    def _number(self, shard: int, entry: bytes) -> int:
        """Return the number of an entry's terms in the export."""
        return self._numbers[shard][codec.decode_entry(entry)[3]]

    async def _retries_on(self, shard: int) -> AsyncIterator[ExportedRetries]:
        *_, time_ms = await self._commands.call(shard, "pause_run", self._token, self._home.run, _PAUSED, 0)
        now = float(time_ms)
        key = self._commands.keys[shard].key(KeyPattern.LATER)
        cursor: Any = 0
        found: dict[tuple[str, str, int, int], tuple[list[bytes], list[float]]] = {}
        seen: set[int] = set()
        while True:
            cursor, page = await self._commands.plain(shard, "ZSCAN", key, cursor, "COUNT", _READ_AT_ONCE)
            for member, due in codec.hash_fields(page).items():
                token, run, priority, spider, domain, entry = codec.unpack_parts(member, 6)
                is_mine = token.decode() == self._token and codec.unpack_number(run) == self._home.run
                if not is_mine or hash(member) in seen:
                    continue
                seen.add(hash(member))
                place = (spider.decode(), domain.decode(), codec.unpack_number(priority))
                self._later.add(hash((*place, entry)))
                entries, waits = found.setdefault((*place, self._number(shard, entry)), ([], []))
                entries.append(_bare(entry))
                waits.append(max(0.0, float(due) - now))
            if int(cursor) == 0:
                break
        for (its_spider, its_domain, its_priority, terms), (entries, waits) in found.items():
            for some, some_waits in zip(_parts(entries), _parts(waits), strict=True):
                yield ExportedRetries(
                    spider=its_spider, domain=its_domain, priority=its_priority, terms=terms, entries=some,
                    waits=some_waits,
                )  # fmt: skip

    async def _queues_on(self, shard: int) -> AsyncIterator[ExportedQueue]:
        async for domain_bytes, row in self._fields(shard, self._key(shard, KeyPattern.SHARES)):
            domain, share = domain_bytes.decode(), msgspec.msgpack.decode(row)
            for at in range(2, len(share), 3):
                spider, priority = str(share[at]), share[at + 1]
                if not isinstance(priority, int):  # those that wait for a time
                    continue
                key = self._key(shard, KeyPattern.QUEUE, spider=spider, domain=domain, priority=priority)
                terms, entries = 0, list[bytes]()
                async for entry in self._elements(shard, key):
                    if hash((spider, domain, priority, entry)) in self._later:
                        continue  # it came here from those that waited for a time
                    number = self._number(shard, entry)
                    if entries and (number != terms or len(entries) >= _ENTRIES_A_LINE):
                        yield ExportedQueue(
                            spider=spider, domain=domain, priority=priority, terms=terms, entries=entries
                        )
                        entries = []
                    terms = number
                    entries.append(_bare(entry))
                if entries:
                    yield ExportedQueue(spider=spider, domain=domain, priority=priority, terms=terms, entries=entries)


def _bare(entry: bytes) -> bytes:
    """Return an entry without names of workers that died with it: the other frontier does not know them."""
    if not entry[0] & _SUSPECT:
        return entry
    rest = _HEADER_BYTES + 2 + int.from_bytes(entry[_HEADER_BYTES : _HEADER_BYTES + 2])
    return bytes((entry[0] & ~_SUSPECT,)) + entry[1:_HEADER_BYTES] + entry[rest:]


def _parts(values: Sequence[T], size: int = _ENTRIES_A_LINE) -> Iterator[list[T]]:
    """Yield values in parts."""
    for first in range(0, len(values), size):
        yield list(values[first : first + size])
