"""Binary formats of the values that this package and its Lua scripts exchange and store.

An entry is a waiting request as it lies in a queue. Terms are the options of one submission. A run is one life of a
crawl, from its first request until nothing is left. A shard is one of the parts into which the keys are divided.

Fixed: all formats, the order of fields and arguments included. Running frontiers have values of these formats, so a
change needs a change of the scripts, and another `FORMAT` in `identity`.
"""

import hashlib
import secrets
import struct
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from gossamer.errors import BadInput, FrontierIncompatible
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Order, Rate, Run, Terms
from gossamer.model.growth import Growth, PatternCount
from gossamer.model.request import MAX_PAYLOAD_BYTES, Batch, Lease, request_id, request_id_prefix
from gossamer.policy.cache import BoundedCache

# Parts of an entry; entries.lua has the same. An entry is a header, then either the URL, or (if it is extended) a tail
# header, the URL and a payload.
_HEADER = struct.Struct(">BBHBH")  # flags, attempt, depth, number of the terms (high byte, low bytes)
_TAIL = struct.Struct(">8sH")  # identity, length of the URL
_EXTENDED = 1  # flag: the URL is behind a tail header, and a payload may follow
_SUSPECT = 8  # flag of a stored entry with which workers died: length and text of their names follow the header
_SUSPECT_LENGTH_BYTES = 2
_BROWSER = ",browser"  # behind a spider's name: the lane `browser`; lanes.lua has the same
_NO_IDENTITY = bytes(8)
"""Stored identity of an entry that only its spider and URL distinguish."""

_GROUP_PAYLOAD_BYTES = 4 * MAX_PAYLOAD_BYTES
"""Payload that one call adds (about). More bytes make a call longer, and the shard executes no other call meanwhile.
Must be at least MAX_PAYLOAD_BYTES, or a request could not be added."""


class _CrawlRow(msgspec.Struct, array_like=True, frozen=True):
    """Stored form of a crawl: an array in this order, whose first three fields scripts read, too."""

    appid: str
    crawlid: str
    pool: str
    lifo: bool
    max_pages: int | None
    rate: tuple[int, float, bool] | None
    concurrency: int | None
    idle_ms: int = 0
    keep_failed: bool = False
    keep_all_failed: bool = False


_pack = msgspec.msgpack.Encoder().encode
_decode_crawl_row = msgspec.msgpack.Decoder(_CrawlRow).decode
_decode_terms = msgspec.msgpack.Decoder(Terms).decode
_decode_growth = msgspec.msgpack.Decoder(dict[str, tuple[Growth, int, int, str]]).decode
_decode_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turn every error of a decoder into FrontierIncompatible: another version wrote the value. `what` names it."""
    try:
        yield
    except (msgspec.MsgspecError, struct.error, UnicodeDecodeError, LookupError, TypeError, ValueError) as exc:
        raise FrontierIncompatible(f"{what} in it cannot be read ({exc}); use the version that wrote it") from exc


class PackedTerms(msgspec.Struct, frozen=True):
    """Terms of one submission as scripts take them."""

    digest: bytes
    """Name of these terms among those of their crawl: equal terms are stored once."""
    blob: bytes
    """The limits that scripts read, then the terms."""


def pack_terms(terms: Terms) -> PackedTerms:
    """Return terms as scripts take them. Equal terms must give equal bytes."""
    blob = _pack(terms)
    limits = [terms.expires * 1000 or 0, _limit(terms.domain_max_pages), _limit(terms.domain_max_pending)]
    if terms.max_assets is not None:  # left out where there is none, so that most terms stay short
        limits.append(terms.max_assets)
    return PackedTerms(hashlib.blake2b(blob, digest_size=8).hexdigest().encode(), _pack(limits) + blob)


def _limit(value: int | None) -> int | bool:
    """Return a limit as scripts read it: false means none."""
    return False if value is None else value


def terms_memory_bytes(blob: bytes) -> int:
    """Estimate how many bytes terms take in memory, packed and unpacked. For the bounds of caches only."""
    return 1000 + 9 * len(blob)


def unpack_terms(blob: bytes) -> Terms:
    """Return the terms in a blob without limits before them."""
    with decoding("a submission's terms"):
        return _decode_terms(blob)


def unpack_stored_terms(raw: bytes) -> Terms:
    """Return the terms in a `PackedTerms.blob`."""
    return unpack_terms(unpack_parts(raw, 2)[1])


def pack_crawl(crawl: Crawl) -> bytes:
    """Return the stored form of a crawl. It is short because the servers keep a hash compact while no value in it is
    longer than 64 bytes, and there are many crawls."""
    rate = (crawl.rate.hits, crawl.rate.window_seconds, crawl.rate.moderated) if crawl.rate else None
    lifo = crawl.order is Order.LIFO
    idle_ms = round(crawl.idle_seconds * 1000)
    row = _CrawlRow(
        crawl.id.appid, crawl.id.crawlid, crawl.pool, lifo, crawl.max_pages, rate, crawl.concurrency, idle_ms,
        crawl.keep_failed, crawl.keep_all_failed,
    )  # fmt: skip
    return _pack(row)


def unpack_growth(blob: bytes) -> dict[str, PatternCount]:
    """Return counts of pages that may have no end, by pattern, from their stored form (note_growth.lua)."""
    with decoding("counts of pages"):
        return {pattern: PatternCount(*row) for pattern, row in _decode_growth(blob).items()}


def unpack_crawl(blob: bytes) -> Crawl:
    """Return a crawl from its stored form."""
    with decoding("a crawl"):
        row = _decode_crawl_row(blob)
    return Crawl(
        id=CrawlId(row.appid, row.crawlid),
        pool=row.pool,
        order=Order.LIFO if row.lifo else Order.FIFO,
        max_pages=row.max_pages,
        rate=Rate(*row.rate) if row.rate else None,
        concurrency=row.concurrency,
        idle_seconds=row.idle_ms / 1000,
        keep_failed=row.keep_failed,
        keep_all_failed=row.keep_all_failed,
    )


def hash_fields(row: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of a hash from the flat list that the server sends."""
    return dict(zip(row[::2], row[1::2], strict=True))


def pack_policy(policy: DomainPolicy) -> bytes:
    """Return the stored form of a policy, which scripts read by these names. Equal policies must give equal bytes,
    because set_policy.lua compares them."""
    fields = {
        "hits": policy.hits,
        # Rounded, so that a decoded policy packs to the same bytes.
        "window": None if policy.window_seconds is None else round(policy.window_seconds * 1000, 3),
        "moderated": policy.moderated,
        "elastic": policy.elastic,
        "scale": policy.scale,
        "scope": None if policy.scope is None else policy.scope.value,
        "concurrency": policy.concurrency,
        "blacklisted": policy.blacklisted,
        "when_blacklisted": None if policy.when_blacklisted is None else policy.when_blacklisted.value,
    }
    return _pack({name: value for name, value in fields.items() if value is not None})


def unpack_policy(blob: bytes) -> DomainPolicy:
    """Return a policy from its stored form."""
    with decoding("a domain's policy"):
        row = msgspec.msgpack.decode(blob)
        if "window" in row:
            row["window_seconds"] = row.pop("window") / 1000
        return msgspec.convert(row, DomainPolicy)


def stored_name(spider: str, *, render: bool) -> str:
    """Return the name that stands for the spider where requests of this lane are stored. lanes.lua says how."""
    return spider + _BROWSER if render else spider


def lane_names(spiders: Iterable[str], *, plain: bool, browser: bool) -> list[str]:
    """Return the names under which requests of these spiders are stored, those of the lanes that are wanted."""
    return [
        stored_name(spider, render=render)
        for spider in spiders
        for render in (False, True)
        if (browser and spider != ASSET_SPIDER if render else plain)
    ]


def read_name(name: str) -> tuple[str, bool]:
    """Return the spider of a stored name, and whether its requests are to be rendered (lane `browser`)."""
    spider, comma, _ = name.partition(",")  # no spider has a comma in its name
    return spider, bool(comma)


def pack_tail(url: str, payload: bytes | None, identity: bytes) -> bytes:
    """Return an extended entry without its header: identity, URL, payload.

    `identity`: 8 bytes, or empty where spider and URL distinguish the entry. Raises BadInput for a payload that is too
    large.
    """
    if payload is not None and len(payload) > MAX_PAYLOAD_BYTES:
        raise BadInput(f"a request's payload is {len(payload)} bytes, at most {MAX_PAYLOAD_BYTES} fit: {url[:200]}")
    encoded = url.encode()
    return _TAIL.pack(identity or _NO_IDENTITY, len(encoded)) + encoded + (payload or b"")


def pack_batch(batch: Batch) -> bytes:
    """Return a batch as the `add` scripts take it: values in msgpack, one after the other, which they read by position.
    All its entries are extended where one has a payload, or where they are added even when seen."""
    payloads = batch.payloads
    extended = batch.unfiltered or (payloads is not None and any(p is not None for p in payloads))
    head: list[str | int | bool | msgspec.Raw] = [
        stored_name(batch.spider, render=True) if batch.render else batch.spider,
        batch.domain,
        batch.priority,
        batch.depth,
        batch.unfiltered,
        1 if extended else 0,
    ]
    # Fingerprint and tail of each URL in turn. A tail is the URL, or an extended entry without its header.
    rest: list[str | int | bool | msgspec.Raw] = [""] * (2 * len(batch.urls))
    rest[::2] = map(str, batch.fingerprints)  # as text, because Lua's numbers have 53 bits
    if not extended:
        rest[1::2] = batch.urls
        return _without_header(head + rest)
    for index, url in enumerate(batch.urls):
        if batch.unfiltered:
            identity = secrets.token_bytes(8)
        else:
            identity = batch.fingerprints[index].to_bytes(8, "big", signed=True)
        rest[2 * index + 1] = packed_text(pack_tail(url, payloads[index] if payloads else None, identity))
    return _without_header(head + rest)


def pack_values(values: Sequence[object]) -> bytes:
    """Return a list in msgpack, as scripts read it."""
    return _pack(values)


def _without_header(values: Sequence[object]) -> bytes:
    """Return values in msgpack one after the other: a list without its header."""
    count = len(values)
    return _pack(values)[1 if count < 16 else 3 if count < 1 << 16 else 5 :]


def packed_text(raw: bytes) -> msgspec.Raw:
    """Return bytes as a text in msgpack: the library of the scripts does not know msgpack's type for bytes."""
    size = len(raw)
    if size < 32:
        return msgspec.Raw(bytes((0xA0 | size,)) + raw)
    if size < 1 << 8:
        return msgspec.Raw(bytes((0xD9, size)) + raw)
    if size < 1 << 16:
        return msgspec.Raw(b"\xda" + size.to_bytes(2) + raw)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4) + raw)


def split_batches(batches: Sequence[Batch], max_urls: int) -> Iterator[list[tuple[int, int, Batch]]]:
    """Yield groups of (index of the batch, offset in it, part of it) that one call may add, in order. A group has at
    most `max_urls` URLs and about `_GROUP_PAYLOAD_BYTES` of payload."""
    group: list[tuple[int, int, Batch]] = []
    room, bytes_left = max_urls, _GROUP_PAYLOAD_BYTES
    for index, batch in enumerate(batches):
        offset = 0
        while offset < len(batch.urls):
            count = min(room, len(batch.urls) - offset)
            if batch.payloads is not None:
                count, bytes_left = _fitting(batch.payloads[offset : offset + count], bytes_left)
            group.append((index, offset, _part(batch, offset, offset + count)))
            offset += count
            room -= count
            if room == 0 or bytes_left <= 0:
                yield group
                group, room, bytes_left = [], max_urls, _GROUP_PAYLOAD_BYTES
    if group:
        yield group


def _fitting(payloads: Sequence[bytes | None], bytes_left: int) -> tuple[int, int]:
    """Return how many payloads use the bytes up (the one that exceeds them included), and how many bytes are left."""
    for count, payload in enumerate(payloads, 1):
        bytes_left -= len(payload or b"")
        if bytes_left <= 0:
            return count, 0
    return len(payloads), bytes_left


def _part(batch: Batch, first: int, end: int) -> Batch:
    """Return the batch with its URLs from `first` up to `end` only. The part has no name of its own: its caller names
    the call."""
    if first == 0 and end == len(batch.urls):
        return batch
    return Batch(
        batch.spider,
        batch.domain,
        batch.priority,
        batch.depth,
        batch.urls[first:end],
        batch.fingerprints[first:end],
        None if batch.payloads is None else batch.payloads[first:end],
        batch.unfiltered,
        render=batch.render,
    )


def decode_entry(entry: bytes) -> tuple[int, int, int, int, str, bytes | None, bytes]:
    """Return (deaths, attempt, depth, number of the terms, URL, payload, identity) of an entry: a tuple, because this
    runs for every leased request."""
    flags, attempt, depth, high, low = _HEADER.unpack_from(entry)
    number = high << 16 | low
    deaths = flags >> 1 & 3  # the flags 2 and 4
    rest = _HEADER.size
    if flags & _SUSPECT:  # only in stored entries: names of workers come first
        names = rest + _SUSPECT_LENGTH_BYTES
        rest = names + int.from_bytes(entry[rest:names])
    if not flags & _EXTENDED:
        return deaths, attempt, depth, number, entry[rest:].decode(), None, b""
    identity, length = _TAIL.unpack_from(entry, rest)
    start = rest + _TAIL.size
    end = start + length
    return (
        deaths,
        attempt,
        depth,
        number,
        entry[start:end].decode(),
        entry[end:] or None,
        b"" if identity == _NO_IDENTITY else identity,
    )


def entry_url(entry: bytes) -> str:
    """Return the URL of an entry."""
    _, _, _, _, url, _, _ = decode_entry(entry)
    return url


def unpack_parts(raw: bytes, count: int) -> list[bytes]:
    """Return the bytes of each of `count` consecutive msgpack values; strings without their header, because they may be
    binary. Raises FrontierIncompatible when there are fewer or more values."""
    with decoding("a request"):
        parts = _decode_raws(bytes((0x90 | count,)) + raw)  # 0x90: header of an array of up to 15 values
        if len(parts) != count:
            raise ValueError(f"{len(parts)} parts, not {count}")
        return [_unwrapped(bytes(part)) for part in parts]


def unpack_number(part: bytes) -> int:
    """Return the integer in one of the parts that `unpack_parts` returned."""
    with decoding("a request"):
        return int(msgspec.msgpack.decode(part))


_STRING_HEADER_BYTES = {0xD9: 2, 0xDA: 3, 0xDB: 5} | dict.fromkeys(range(0xA0, 0xC0), 1)
"""By first byte of a msgpack string: the length of its header. Fixed by msgpack."""


def _unwrapped(part: bytes) -> bytes:
    """Return a string without its header, any other value as it is."""
    return part[_STRING_HEADER_BYTES.get(part[0], 0) :]


LEASE_ROW = 2
"""Number of fields of a lease in a reply of `lease.lua`: its place among the leases of its call, and the lease as it is
stored."""

StoredLease = tuple[int, str, int, str, str, msgspec.Raw, msgspec.Raw, msgspec.Raw, int, float, float]
"""Number of the run, token, priority, spider, domain, scope, entry, fingerprint of the last hop, answer to that, start
(ms), even gap (ms; negative: its domain is blacklisted). Fixed, because lease.lua stores it. Raw: text that is not
needed, or that is binary."""
_decode_stored_lease = msgspec.msgpack.Decoder(StoredLease).decode
_STORED_LEASE_HEADER = b"\x9b"
"""Header of an array of 11 values, which is missing in a stored lease."""


def unpack_lease(packed: bytes) -> tuple[StoredLease, bytes]:
    """Return a lease as it is stored, and its entry. Raises FrontierIncompatible."""
    try:  # not `decoding`: this runs for every request
        stored = _decode_stored_lease(_STORED_LEASE_HEADER + packed)
    except msgspec.MsgspecError as exc:
        raise FrontierIncompatible(f"a lease in it cannot be read ({exc}); use the version that wrote it") from exc
    entry = bytes(stored[6])
    return stored, entry[_STRING_HEADER_BYTES.get(entry[0], 0) :]


class LeaseTurn(NamedTuple):
    """Requests that one lease call asks for. A worker with several turns takes them one after the other."""

    pool: str
    """Crawls whose requests are leased."""
    egress: str
    """Name of the address that they leave from, or of the account that they are counted for."""


class LeaseCall(NamedTuple):
    """A call of lease.lua: what is the same for all leases that it got."""

    shard: int
    worker: str
    """Name of the session that leased."""
    turn: LeaseTurn
    charged: float
    """When the hits were charged, on the process's monotonic clock."""
    called_ms: float
    """Time of the call on the clock of the shard."""
    first_id: int
    """Id of the first lease; those of the others follow."""
    last: Collection[int]
    """Places of leases of whose domain nothing is left for the worker."""


def decode_lease(
    call: LeaseCall, index: int, stored: StoredLease, entry: bytes, run: Run, id_prefix: bytes, terms: Terms
) -> Lease:
    """Return a lease from what `unpack_lease` returned. `index`: its place among the leases of the call. `id_prefix`:
    `request_id_prefix` of the run."""
    _, _, priority, spider, domain, _, _, _, _, start_ms, spacing_ms = stored
    render = "," in spider
    if render:
        spider, _ = read_name(spider)
    try:
        deaths, attempt, depth, _, url, payload, identity = decode_entry(entry)
    except (struct.error, UnicodeDecodeError) as exc:
        raise FrontierIncompatible(f"a request in it cannot be read ({exc}); use the version that wrote it") from exc
    return Lease(  # by position, because names cost time for every request
        call.first_id + index,
        call.shard,
        call.worker,
        run,
        spider,
        domain,
        priority,
        depth,
        attempt,
        deaths,
        url,
        payload,
        terms,
        request_id(id_prefix, identity or f"{spider}\0{url}".encode()),
        identity,
        call.charged,
        (start_ms - call.called_ms) / 1000 if start_ms > call.called_ms else 0.0,
        spacing_ms / 1000 if spacing_ms > 0 else 0.0,
        call.turn.egress,
        spacing_ms < 0,
        index in call.last,
        render,
    )


_CACHED_RUNS = 5000
"""Decoded runs that are kept. Fewer take less memory, and decode more often."""
_CACHED_TERMS_BYTES = 5 * 1024 * 1024
"""Memory for decoded terms. Less decodes more often."""


class LeaseDecoder:
    """Decodes the leases in replies of lease.lua. Leases of the same run have the same Run object, leases of the same
    submission the same Terms object: the committer groups links by these."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[str, int], tuple[bytes, bytes, Run]] = OrderedDict()
        """By token and number: generation, packed crawl (its rate may be changed), and the run."""
        self._terms: BoundedCache[tuple[bytes, bytes], Terms] = BoundedCache(_CACHED_TERMS_BYTES)
        """By token and packed terms."""

    def decode(self, call: LeaseCall, rows: Sequence[Any], crawls_and_terms: Sequence[Any]) -> list[Lease]:
        """Return the leases of a reply, which has each crawl and each submission's terms once.

        `rows`: LEASE_ROW fields for each lease. `crawls_and_terms`: three values for each, of a crawl its token,
        generation (bytes) and packed crawl, of terms the token, their number (int) and the packed terms.
        """
        generations_and_crawls: dict[str, tuple[bytes, bytes]] = {}
        terms_by_number: dict[tuple[str, int], Terms] = {}
        for i in range(0, len(crawls_and_terms), 3):
            token, version, packed = crawls_and_terms[i : i + 3]
            if isinstance(version, int):
                terms_by_number[token.decode(), version] = self._decode_terms(token, packed)
            else:
                generations_and_crawls[token.decode()] = version, packed
        leases = []
        known: tuple[str, int] | None = None  # token and number of the run of the row before
        for index, packed in zip(rows[::LEASE_ROW], rows[1::LEASE_ROW], strict=True):
            stored, entry = unpack_lease(packed)
            number, token = stored[0], stored[1]
            if known != (token, number):
                known = token, number
                run = self._decode_run(token, number, *generations_and_crawls[token])
                id_prefix = request_id_prefix(run)
            terms_number = entry[4] << 16 | entry[5] << 8 | entry[6]  # as in _HEADER
            its_terms = terms_by_number[token, terms_number]
            leases.append(decode_lease(call, index, stored, entry, run, id_prefix, its_terms))
        return leases

    def _decode_run(self, token: str, number: int, generation: bytes, blob: bytes) -> Run:
        """Return the run of a crawl; the same object as for earlier leases unless its crawl has changed since."""
        key = (token, number)
        known = self._runs.get(key)
        if known is not None:
            known_generation, known_blob, run = known
            if known_generation == generation and known_blob == blob:
                return run
        run = Run(unpack_crawl(blob), number, int(generation))
        self._runs[key] = generation, blob, run
        if len(self._runs) > _CACHED_RUNS:
            self._runs.popitem(last=False)
        return run

    def _decode_terms(self, token: bytes, blob: bytes) -> Terms:
        """Return the terms that are packed in these bytes: the same object for the same bytes of a crawl."""
        key = (token, blob)
        terms = self._terms.get(key)
        if terms is None:
            terms = unpack_terms(blob)
            self._terms.put(key, terms, terms_memory_bytes(blob))
        return terms
