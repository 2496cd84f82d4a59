"""What scrapy-redis left in Redis, read into the frontier: requests of its queue, one entry each."""

import base64
import datetime
import decimal
import hashlib
import io
import json
import pickle
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gossamer.errors import BadInput, BadUrl
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import Crawl, CrawlId, Order, Run, Terms
from gossamer.model.request import SCRAPY_DEFAULTS, Batch, Payload, pack
from gossamer.model.values import encode, plain
from gossamer.policy.scrapy_urls import scrapy_fingerprint
from gossamer.policy.urls import canonical, fingerprint, host, registered_domain, spider_seed
from gossamer.valkey.shards import Shards

MOST_BYTES = 16 * 2**20

_TYPES: Final[dict[tuple[str, str], Any]] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): bytearray,
    ("builtins", "complex"): complex,
    ("collections", "OrderedDict"): OrderedDict,
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "date"): datetime.date,
    ("datetime", "time"): datetime.time,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
    # Of the rules of a CrawlSpider: text that knows what it stood in. str is all that is left of it in a pickle.
    ("lxml.etree", "_ElementUnicodeResult"): str,
    ("_codecs", "encode"): lambda text, name: _latin(text, name),
}
"""All that a pickle may name. Each only makes a value of what it is given."""


class BadPickle(BadInput):
    """This pickle cannot be read."""

    only_detail = False


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _TYPES[module.replace("__builtin__", "builtins"), name]
        except KeyError:
            raise BadPickle(f"it names {module}.{name}, which is no plain data") from None

    def persistent_load(self, pid: Any) -> Any:
        raise BadPickle("it refers to something outside")


def loads(data: bytes) -> Any:
    """The value. Raises BadPickle, with the reason, for whatever is not plain data."""
    if len(data) > MOST_BYTES:
        raise BadPickle(f"it has {len(data):,} bytes; at most {MOST_BYTES:,} are read")
    try:
        return _Plain(io.BytesIO(data)).load()
    except BadPickle:
        raise
    except Exception as fault:
        raise BadPickle(f"{type(fault).__name__}: {fault}") from None


def _latin(text: Any, name: Any) -> bytes:
    # How bytes travel in pickles of protocol 2 and older.
    if not isinstance(text, str) or name != "latin1":
        raise BadPickle("it names _codecs.encode for something else than bytes")
    return text.encode("latin1")


AT_ONCE = 500
KEPT_SECONDS = 7 * 86400
"""How long it is remembered what was imported, and how long dead letters are kept."""

_MOST_PRIORITY = 60_000


@dataclass(frozen=True, slots=True)
class SpiderLeftovers:
    """What is there of one spider."""

    queue: str
    """Its key."""
    kind: str
    """list, zset or none."""
    requests: int
    dupefilter: str
    fingerprints: int
    start_urls: str
    messages: int


@dataclass(slots=True)
class ImportResult:
    """What became of the requests."""

    read: int = 0
    added: int = 0
    known: int = 0
    """Duplicates of what the frontier has seen."""
    before: int = 0
    """Imported by an earlier run of this."""
    dead: int = 0


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request as scrapy-redis stored it, read."""

    url: str
    """Canonical."""
    priority: int
    depth: int
    unfiltered: bool
    payload: Payload


async def look(shards: Shards, *, queue: str, dupefilter: str, start_urls: str) -> SpiderLeftovers:
    """What is there. Raises FrontierUnavailable, and BadInput for keys that are not scrapy-redis's."""
    kind = await _kind(shards, queue, {"list": "LLEN", "zset": "ZCARD"})
    seen = await _kind(shards, dupefilter, {"set": "SCARD"})
    start = await _kind(shards, start_urls, {"list": "LLEN", "set": "SCARD", "zset": "ZCARD"})
    return SpiderLeftovers(queue, kind[0], kind[1], dupefilter, seen[1], start_urls, start[1])


async def _kind(shards: Shards, key: str, counted: Mapping[str, str]) -> tuple[str, int]:
    answer = await shards.command(key, "TYPE", key)
    kind = answer.decode() if isinstance(answer, bytes) else str(answer)
    if kind == "none":
        return kind, 0
    if kind not in counted:
        raise BadInput(f"{key} is a {kind}, not a {' or '.join(counted)}")
    return kind, int(await shards.command(key, counted[kind], key))


class ScrapyRedisImport:
    """One run of it. Nothing is taken away from where it was; it may be repeated, and goes on where it was."""

    def __init__(self, shards: Shards, left: SpiderLeftovers, frontier: Frontier, crawl: Crawl, *, spider: str) -> None:
        self._shards = shards
        self._left = left
        self._frontier = frontier
        self._crawl = crawl
        self._spider = spider
        self._seed = spider_seed(frontier.secret, spider)
        self._run: Run | None = None
        self._copies: Counter[bytes] = Counter()
        self.done = ImportResult()

    async def run(self, *, dry: bool = False, say: Callable[[ImportResult], None] | None = None) -> ImportResult:
        """Import all, or (dry) only read it. `say` hears of every step. Raises FrontierError and CrawlRefused."""
        async for rows in self._rows():
            await self._step(rows, dry=dry)
            if say is not None:
                say(self.done)
        return self.done

    async def _rows(self) -> AsyncIterator[list[bytes]]:
        """In the order in which they are to be added: the one that came first into its queue first."""
        key, count = self._left.queue, self._left.requests
        for start in range(0, count, AT_ONCE):
            if self._left.kind == "zset":
                yield await self._shards.command(key, "ZRANGE", key, start, start + AT_ONCE - 1)
            else:
                rows = await self._shards.command(key, "LRANGE", key, -start - AT_ONCE, -start - 1)
                yield rows[::-1]

    async def _step(self, rows: Sequence[bytes], *, dry: bool) -> None:
        key = f"{self._left.queue}:migrated"
        marks = [self._mark(row) for row in rows]
        known = await self._shards.command(key, "SMISMEMBER", key, *marks) if marks else []
        batches: dict[tuple[str, int, int, bool], Batch] = {}
        letters: list[bytes] = []
        for row, before in zip(rows, known, strict=True):
            self.done.read += 1
            if before:
                self.done.before += 1
                continue
            try:
                request = read_request(row)
            except BadInput as fault:
                self.done.dead += 1
                letters.append(_letter(row, fault.detail or str(fault)))
                continue
            self._append(batches, request)
        if dry:
            self.done.added += sum(len(batch.urls) for batch in batches.values())
            return
        if batches:
            await self._add(list(batches.values()))
        if letters:
            dead = f"{self._left.queue}:dead"
            await self._shards.command(dead, "RPUSH", dead, *letters)
            await self._shards.command(dead, "EXPIRE", dead, KEPT_SECONDS)
        if marks:
            await self._shards.command(key, "SADD", key, *marks)
            await self._shards.command(key, "EXPIRE", key, KEPT_SECONDS)

    async def _add(self, batches: list[Batch]) -> None:
        if self._run is None:
            self._run = await self._frontier.open_crawl(self._crawl)
        added = await self._frontier.add(self._run, Terms(), batches, seeds=True)
        self.done.added += added.added
        self.done.known += added.duplicates

    def _append(self, batches: dict[tuple[str, int, int, bool], Batch], request: StoredRequest) -> None:
        domain = registered_domain(host(request.url))
        priority = request.priority if self._left.kind == "zset" else 0
        where = (domain, priority, request.depth, request.unfiltered)
        batch = batches.get(where)
        if batch is None:
            batch = batches[where] = Batch(
                self._spider, domain, priority, request.depth, payloads=[], unfiltered=request.unfiltered
            )
        payload = request.payload
        mark = scrapy_fingerprint(request.url, method=payload.method, body=payload.body)
        batch.urls.append(request.url)
        batch.fingerprints.append(fingerprint(mark, seed=self._seed))
        batch.payloads.append(pack(payload))  # type: ignore[union-attr]

    def _mark(self, row: bytes) -> bytes:
        """A list may hold equal entries, so they are numbered."""
        digest = imported_digest(self._frontier.secret, self._crawl.id, row)
        self._copies[digest] += 1
        return digest + self._copies[digest].to_bytes(4, "big")


async def forget_imported(shards: Shards, queue: str, row: bytes, *, secret: int, crawl: CrawlId) -> bool:
    """Return whether this entry of a queue was imported into the crawl before. It is asked once for an entry."""
    mark = imported_digest(secret, crawl, row) + (1).to_bytes(4, "big")
    return bool(await shards.command(f"{queue}:migrated", "SREM", f"{queue}:migrated", mark))


def imported_digest(secret: int, crawl: CrawlId, row: bytes) -> bytes:
    """Return the digest of an entry brought into this very crawl: a wrong name may be righted later."""
    return hashlib.blake2b(row, digest_size=16, key=secret.to_bytes(8, "big") + crawl.token.encode()).digest()


def read_request(row: bytes) -> StoredRequest:
    """Read a request as scrapy-redis pickled it, or as JSON. No code runs for what is in it. Raises BadInput."""
    fields = _fields(row)
    try:
        url = canonical(fields["url"])
    except KeyError:
        raise BadInput("it has no url") from None
    except (BadUrl, TypeError, AttributeError) as fault:
        raise BadInput(f"{fields['url']!r}: {fault}") from None
    method = fields.pop("method", "GET")
    body = fields.get("body") or b""
    body = body.encode() if isinstance(body, str) else body
    if not isinstance(method, str) or not isinstance(body, bytes):
        raise BadInput("its method or body is of the wrong type")
    priority = fields.get("priority") or 0
    meta = fields.get("meta")
    depth = meta.get("depth", 0) if isinstance(meta, dict) else 0
    kept = {
        name: value for name, value in fields.items() if name not in SCRAPY_DEFAULTS or value != SCRAPY_DEFAULTS[name]
    }
    if kept["url"] == url:
        del kept["url"]
    if method != "GET":
        kept.pop("body", None)
    elif body:
        kept["body"] = body
    try:
        stored = encode({name: plain(value, name) for name, value in kept.items()})
        whole = int(priority)
    except (ValueError, TypeError, OverflowError) as fault:
        raise BadInput(str(fault)) from None
    return StoredRequest(
        url,
        max(-_MOST_PRIORITY, min(whole, _MOST_PRIORITY)),
        depth if type(depth) is int and 0 <= depth < 2**16 else 0,
        bool(fields.get("dont_filter")),
        Payload(method=method, body=body if method != "GET" else b"", scrapy=stored),
    )


def crawl_of(*, appid: str, crawlid: str, order: Order) -> Crawl:
    """The crawl as a Scrapy project of that name joins it."""
    identity = CrawlId(appid, crawlid)
    return Crawl(id=identity, pool=f"scrapy-{identity.token}", order=order)


def _fields(row: bytes) -> dict[str, Any]:
    if row.lstrip()[:1] == b"{":
        try:
            found = json.loads(row)
        except ValueError as fault:
            raise BadInput(f"it is no JSON: {fault}") from None
    else:
        found = loads(row)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise BadInput("it is no request")
    return found


def _letter(row: bytes, reason: str) -> bytes:
    return msgspec.json.encode({"reason": reason, "at": time.time(), "request_base64": base64.b64encode(row).decode()})
