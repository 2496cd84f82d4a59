"""Import of the requests that scrapy-redis left in Redis. Their pickles are read without running any code.

Fixed: the keys and digests of imported entries, which are stored and tell a repeated import what to skip; the order of
the steps in `_import_batch`, which lets an import be killed and repeated; and the field names of SpiderLeftovers and
ImportResult, which `gossamer migrate --json` prints.
"""

import base64
import datetime
import decimal
import hashlib
import io
import json
import pickle
import re
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from gossamer.errors import BadInput, BadUrl, CrawlRefused
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Order, Run, Terms
from gossamer.model.request import MAX_DEPTH, MAX_PRIORITY, SCRAPY_DEFAULTS, Batch, Payload, pack
from gossamer.model.values import encode, to_packable
from gossamer.policy.scrapy_urls import scrapy_fingerprint
from gossamer.policy.urls import canonical, fingerprint, host, registered_domain, spider_seed
from gossamer.valkey.shards import Shards

MAX_PICKLE_BYTES = 16 * 2**20
"""Size limit of one pickle. Reading a pickle takes several times its size of memory."""


class BadPickle(BadInput):
    """The pickle cannot be read."""

    only_detail = False
    """`str()` of the error begins with the first sentence of this class's docstring, because the reason alone does not
    say what cannot be read. BadInput has only the reason."""


def _latin1_bytes(text: Any, name: Any) -> bytes:
    """Return the bytes that a text stands for. Replaces _codecs.encode, which pickles of protocol 2 and older call for
    every bytes object: they contain it as a Latin-1 text."""
    if not isinstance(text, str) or name != "latin1":
        raise BadPickle("it calls _codecs.encode for something other than bytes")
    return text.encode("latin1")


_ALLOWED_TYPES: Final[dict[tuple[str, str], Any]] = {
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
    # Link texts from the rules of a CrawlSpider: a str subclass, of which a pickle contains only the str.
    ("lxml.etree", "_ElementUnicodeResult"): str,
    ("_codecs", "encode"): _latin1_bytes,
}
"""Everything that a pickle may name. Add only callables that build a plain value from their arguments: a pickle calls
them with arguments of its choice, so any other callable lets the writer of the queue run code here."""


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that refuses everything but plain data and _ALLOWED_TYPES, so that no code of a pickle is run."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED_TYPES[module.replace("__builtin__", "builtins"), name]
        except KeyError:
            raise BadPickle(f"it contains {module}.{name}, which is not plain data") from None

    def persistent_load(self, pid: Any) -> Any:
        raise BadPickle("it refers to an object outside the pickle")


def loads(data: bytes) -> Any:
    """Return the value of a pickle. Raises BadPickle, with the reason, for anything but plain data."""
    if len(data) > MAX_PICKLE_BYTES:
        raise BadPickle(f"it has {len(data):,} bytes; at most {MAX_PICKLE_BYTES:,} are allowed")
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except BadPickle:
        raise
    except Exception as fault:
        raise BadPickle(f"{type(fault).__name__}: {fault}") from None


_BATCH_SIZE = 500
"""Entries of the queue that are imported at once. Larger batches need fewer calls and more memory."""
_IMPORTED = ":migrated"
"""Suffix of the key of a queue under which the digests of imported entries are kept: a set. Must not change, or the
next import would add every request again."""
_DEAD = ":dead"
"""Suffix of the key of a queue under which dead letters are kept: a list of JSON objects (`_dead_letter`). Users read
them, so the suffix and the names of the fields are fixed."""
_KEYS_LOOKED_AT = 100_000
"""Keys of a server that are searched for names of spiders. The server executes no other call meanwhile."""
_GLOB, _ESCAPED = r"([\\*?\[\]])", r"\\\1"
"""Characters that have a meaning in a pattern of keys, and what stands for them."""
_REASONS_KEPT, _REASON_LENGTH = 10, 200
"""Reasons of unreadable entries that a result counts, and the characters of each. A reason may contain a URL, so there
may be as many as entries."""
KEPT_SECONDS = 7 * 86400
"""Lifetime of dead letters, and of the digests of imported entries: an import that is repeated after this time adds the
requests again. May be longer; the digests need memory in Redis until then."""


@dataclass(frozen=True, slots=True)
class SpiderLeftovers:
    """Data of one spider that scrapy-redis left in Redis: three keys, and the number of entries of each."""

    queue: str
    """Key of the queue."""
    kind: str
    """Type of the queue: `list` (FIFO or LIFO), `zset` (by priority) or `none` (there is none)."""
    requests: int
    """Number of entries in the queue."""
    dupefilter: str
    """Key of the fingerprints of seen requests."""
    fingerprints: int
    """Number of these fingerprints."""
    start_urls: str
    """Key of the start URLs, as the spider's `redis_key`."""
    start_url_count: int
    """Number of start URLs that the spider has not read."""


@dataclass(slots=True)
class ImportResult:
    """Counts of an import: `read == added + known + imported_before + dead`."""

    read: int = 0
    """Entries of the queue that were read."""
    added: int = 0
    """Requests that were added; in a dry run, requests that would be unless the frontier has seen them."""
    known: int = 0
    """Requests that the frontier (the store of waiting requests) had already seen."""
    imported_before: int = 0
    """Entries that an earlier import had processed."""
    dead: int = 0
    """Entries that could not be read; they are kept as dead letters."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Number of these entries by reason, for the first 10 reasons, each cut after 200 characters."""

    def count_dead(self, reason: str) -> None:
        """Count an entry that could not be read."""
        self.dead += 1
        shown = reason if len(reason) <= _REASON_LENGTH else f"{reason[:_REASON_LENGTH]}…"
        if shown in self.reasons or len(self.reasons) < _REASONS_KEPT:
            self.reasons[shown] = self.reasons.get(shown, 0) + 1


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request that scrapy-redis stored, in Gossamer's terms."""

    url: str
    """In canonical form."""
    priority: int
    depth: int
    unfiltered: bool
    """True: fetch the URL even if it was seen before (Scrapy's `dont_filter`)."""
    payload: Payload
    """The properties of the request that are not in the other fields."""


async def find_leftovers(shards: Shards, *, queue: str, dupefilter: str, start_urls: str) -> SpiderLeftovers:
    """Return what a spider left. Raises FrontierUnavailable, and BadInput for keys of another type."""
    kind, requests = await _type_and_size(shards, queue, {"list": "LLEN", "zset": "ZCARD"})
    _, fingerprints = await _type_and_size(shards, dupefilter, {"set": "SCARD"})
    _, start_url_count = await _type_and_size(shards, start_urls, {"list": "LLEN", "set": "SCARD", "zset": "ZCARD"})
    return SpiderLeftovers(queue, kind, requests, dupefilter, fingerprints, start_urls, start_url_count)


async def find_spiders(shards: Shards, templates: Iterable[str]) -> list[str]:
    """Return the names of spiders that left keys, sorted. `templates`: the keys, with \0 for the spider's name. Looks
    at about 100,000 keys of each server. Raises FrontierUnavailable."""
    found: set[str] = set()
    for template in templates:
        before, name, after = template.partition("\0")
        if name and "\0" not in after:
            pattern = f"{re.sub(_GLOB, _ESCAPED, before)}*{re.sub(_GLOB, _ESCAPED, after)}"
            for _, keys in await shards.everywhere("SCAN", "0", "MATCH", pattern, "COUNT", _KEYS_LOOKED_AT):
                found |= {key.decode(errors="replace")[len(before) : -len(after) or None] for key in keys}
    return sorted(found)


async def _type_and_size(shards: Shards, key: str, size_commands: Mapping[str, str]) -> tuple[str, int]:
    """Return the type of a key and its number of entries; (`none`, 0) if it does not exist. `size_commands`: for each
    type that it may have, the command that counts. Raises BadInput for another type."""
    answer = await shards.command(key, "TYPE", key)
    kind = answer.decode() if isinstance(answer, bytes) else str(answer)
    if kind == "none":
        return kind, 0
    if kind not in size_commands:
        raise BadInput(f"{key} is a {kind}, not a {' or '.join(size_commands)}")
    return kind, int(await shards.command(key, size_commands[kind], key))


class ScrapyRedisImport:
    """Import of one spider's requests, while no other process changes the queue. It deletes nothing from the queue. A
    repeated import skips the entries that an earlier one has processed."""

    def __init__(
        self, shards: Shards, leftovers: SpiderLeftovers, frontier: ValkeyFrontier, crawl: Crawl, *, spider: str
    ) -> None:
        self._shards = shards
        self._leftovers = leftovers
        self._frontier = frontier
        self._crawl = crawl
        self._spider = spider
        self._seed = spider_seed(frontier.secret, spider)
        self._run: Run | None = None
        self._copies: Counter[bytes] = Counter()
        """Number of equal entries that were read, by their digest."""
        self.result = ImportResult()

    async def run(
        self, *, dry_run: bool = False, on_progress: Callable[[ImportResult], None] | None = None
    ) -> ImportResult:
        """Import all requests, or only read them (`dry_run`). `on_progress` is called after every batch. Raises
        FrontierError, and CrawlRefused if the crawl or this spider's part of it was stopped or has expired."""
        async for entries in self._entries():
            await self._import_batch(entries, dry_run=dry_run)
            if on_progress is not None:
                on_progress(self.result)
        return self.result

    async def _entries(self) -> AsyncIterator[list[bytes]]:
        """Yield the entries of the queue in batches: of a list the oldest first (scrapy-redis adds them on the left),
        of a zset the highest priority first (the score is the negative priority)."""
        key, count = self._leftovers.queue, self._leftovers.requests
        for start in range(0, count, _BATCH_SIZE):
            if self._leftovers.kind == "zset":
                yield await self._shards.command(key, "ZRANGE", key, start, start + _BATCH_SIZE - 1)
            else:  # -500 to -1, then -1000 to -501, …: from the right end, where the oldest entries are
                newest_first = await self._shards.command(key, "LRANGE", key, -start - _BATCH_SIZE, -start - 1)
                yield newest_first[::-1]

    async def _import_batch(self, entries: Sequence[bytes], *, dry_run: bool) -> None:
        """Import these entries, but those that were imported before. Those that cannot be read become dead letters."""
        imported_key = self._leftovers.queue + _IMPORTED
        digests = [self._digest(entry) for entry in entries]
        are_imported = await self._shards.command(imported_key, "SMISMEMBER", imported_key, *digests) if digests else []
        batches: dict[tuple[str, int, int, bool], Batch] = {}
        dead_letters: list[bytes] = []
        for entry, is_imported in zip(entries, are_imported, strict=True):
            self.result.read += 1
            if is_imported:
                self.result.imported_before += 1
                continue
            try:
                request = read_request(entry)
            except BadInput as fault:
                reason = fault.detail or str(fault)
                self.result.count_dead(reason)
                dead_letters.append(_dead_letter(entry, reason))
                continue
            self._append(batches, request)
        if dry_run:
            self.result.added += sum(len(batch.urls) for batch in batches.values())
            return
        if batches:
            await self._add(list(batches.values()))
        if dead_letters:
            dead_key = self._leftovers.queue + _DEAD
            await self._shards.command(dead_key, "RPUSH", dead_key, *dead_letters)
            await self._shards.command(dead_key, "EXPIRE", dead_key, KEPT_SECONDS)
        if digests:  # must stay last: after a failure before this line, a repeated import reads these entries again
            await self._shards.command(imported_key, "SADD", imported_key, *digests)
            await self._shards.command(imported_key, "EXPIRE", imported_key, KEPT_SECONDS)

    async def _add(self, batches: list[Batch]) -> None:
        """Add the requests to the frontier, and count them. Opens the crawl at the first call."""
        if self._run is None:
            self._run = await self._frontier.open_crawl(self._crawl)
        added = await self._frontier.add(self._run, Terms(), batches, seeds=True)
        if added.rejected:
            reason = next(iter(added.rejected.values()))
            raise CrawlRefused(f"this spider's part of {self._crawl.id} is {reason}")
        self.result.added += added.added
        self.result.known += added.duplicates

    def _append(self, batches: dict[tuple[str, int, int, bool], Batch], request: StoredRequest) -> None:
        """Append a request to the batch of its domain, priority, depth and `unfiltered`."""
        domain = registered_domain(host(request.url))
        priority = request.priority if self._leftovers.kind == "zset" else 0
        group = (domain, priority, request.depth, request.unfiltered)
        batch = batches.get(group)
        if batch is None:
            batch = batches[group] = Batch(
                self._spider, domain, priority, request.depth, payloads=[], unfiltered=request.unfiltered
            )
        payload = request.payload
        request_fingerprint = scrapy_fingerprint(request.url, method=payload.method, body=payload.body)
        batch.urls.append(request.url)
        batch.fingerprints.append(fingerprint(request_fingerprint, seed=self._seed))
        batch.payloads.append(pack(payload))  # type: ignore[union-attr]

    def _digest(self, entry: bytes) -> bytes:
        """Return the digest of an entry and its number among equal entries, because a list may contain an entry several
        times and each is imported."""
        digest = _imported_digest(self._frontier.secret, self._crawl.id, entry)
        self._copies[digest] += 1
        return _numbered(digest, self._copies[digest])


async def forget_imported(shards: Shards, queue: str, entry: bytes, *, secret: int, crawl: CrawlId) -> bool:
    """Forget that an entry of a queue was imported into the crawl: the first one, if there are several equal entries.
    Return whether it had been imported."""
    digest = _numbered(_imported_digest(secret, crawl, entry), 1)
    return bool(await shards.command(queue + _IMPORTED, "SREM", queue + _IMPORTED, digest))


def _imported_digest(secret: int, crawl: CrawlId, entry: bytes) -> bytes:
    """Return the digest of an entry, which differs for each crawl, so that a queue can be imported into several.
    `secret`: the frontier's, as its fingerprints use it. A crawl's token is the short form of its id in keys.

    Must not change: entries that were imported before would be imported again."""
    return hashlib.blake2b(entry, digest_size=16, key=secret.to_bytes(8, "big") + crawl.token.encode()).digest()


def _numbered(digest: bytes, copy: int) -> bytes:
    """Return the stored form: the digest, and the number of the copy from 1 in four bytes. Must not change, either."""
    return digest + copy.to_bytes(4, "big")


def read_request(entry: bytes) -> StoredRequest:
    """Return the request in an entry of a queue, a pickle or JSON. No code from the entry is run. Raises BadInput.

    Its URL, priority, depth and `dont_filter` are read for the frontier; whatever else differs from Scrapy's defaults
    becomes the payload, from which a Scrapy process makes the request again."""
    try:
        return _request_of(_fields(entry))
    except BadInput:
        raise
    except Exception as fault:  # the writer of the queue chooses every value
        raise BadInput(str(fault)) from None


def _request_of(fields: dict[str, Any]) -> StoredRequest:
    """Return the request with these fields. Raises BadInput, or any other exception, for values that make none."""
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
    # The payload has the fields with other values than Scrapy's defaults. StoredRequest has the canonical URL, so the
    # payload has it only if it was spelled differently.
    kept = {
        name: value for name, value in fields.items() if name not in SCRAPY_DEFAULTS or value != SCRAPY_DEFAULTS[name]
    }
    if kept["url"] == url:
        del kept["url"]
    # `Payload.body` is sent only with a method other than GET; the body of a GET is kept for Scrapy alone.
    if method != "GET":
        kept.pop("body", None)
    elif body:
        kept["body"] = body
    stored = encode({name: to_packable(value, name) for name, value in kept.items()})
    return StoredRequest(
        url=url,
        priority=max(-MAX_PRIORITY, min(int(priority), MAX_PRIORITY)),
        depth=depth if type(depth) is int and 0 <= depth <= MAX_DEPTH else 0,
        unfiltered=bool(fields.get("dont_filter")),
        payload=Payload(method=method, body=body if method != "GET" else b"", scrapy=stored),
    )


def crawl_of(*, appid: str, crawlid: str, order: Order) -> Crawl:
    """Return the crawl that a Scrapy project with these ids joins. `scrapy.options` makes the same identity and pool
    (group of workers that lease the requests): a difference would hide imported requests from the project."""
    identity = CrawlId(appid, crawlid)
    return Crawl(id=identity, pool=f"scrapy-{identity.token}", order=order)


def _fields(entry: bytes) -> dict[str, Any]:
    """Return the fields of the request in an entry. Raises BadInput."""
    if entry.lstrip()[:1] == b"{":
        try:
            found = json.loads(entry)
        except ValueError as fault:
            raise BadInput(f"it is not JSON: {fault}") from None
    else:
        found = loads(entry)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise BadInput("it is not a request")
    return found


def _dead_letter(entry: bytes, reason: str) -> bytes:
    """Return the dead letter of an entry as JSON. `at` is the present time in Unix seconds. The names of the fields are
    fixed; fields may be added."""
    encoded = base64.b64encode(entry).decode()
    return msgspec.json.encode({"reason": reason, "at": time.time(), "request_base64": encoded})
