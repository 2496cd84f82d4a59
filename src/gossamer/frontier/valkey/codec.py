"""How requests look on the wire between this room and its scripts."""

import hashlib
import secrets
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from gossamer.errors import BadInput, FrontierIncompatible
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Order, Rate, Run, Terms
from gossamer.model.request import Batch, Lease, request_id

MAX_PAYLOAD = 1 << 20
"""Bytes of payload an entry may carry."""

_HEADER = struct.Struct(">BBHBH")  # flags, attempt, depth, number of the terms (high byte, low bytes)
_TAIL = struct.Struct(">8sH")  # identity, length of the URL
_EXTENDED = 1
_SUSPECT = 8
_PLAIN = bytes(8)
"""The identity of an entry that nothing distinguishes but spider and URL."""


class _CrawlRow(msgspec.Struct, array_like=True, frozen=True):
    """A crawl as the servers keep it."""

    appid: str
    crawlid: str
    pool: str
    lifo: bool
    max_pages: int | None
    rate: tuple[int, float, bool] | None
    concurrency: int | None
    idle_ms: int = 0


_pack = msgspec.msgpack.Encoder().encode
_crawl = msgspec.msgpack.Decoder(_CrawlRow).decode
_terms = msgspec.msgpack.Decoder(Terms).decode
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


@contextmanager
def reading(what: str) -> Iterator[None]:
    """What cannot be read was written by another version: FrontierIncompatible, and not the reader's own error."""
    try:
        yield
    except (msgspec.MsgspecError, struct.error, UnicodeDecodeError, LookupError, TypeError, ValueError) as exc:
        raise FrontierIncompatible(f"{what} in it cannot be read ({exc}); use the version that wrote it") from exc


@dataclass(frozen=True, slots=True)
class PackedTerms:
    """One submission's terms as `add` sends them."""

    digest: bytes
    blob: bytes


def pack_terms(terms: Terms) -> PackedTerms:
    blob = _pack(terms)
    limits = _pack((terms.expires * 1000 or 0, _limit(terms.domain_max_pages), _limit(terms.domain_max_pending)))
    return PackedTerms(hashlib.blake2b(blob, digest_size=8).hexdigest().encode(), limits + blob)


def _limit(value: int | None) -> int | bool:
    return False if value is None else value


def weight_of_terms(blob: bytes) -> int:
    """About how many bytes terms take in memory, packed and unpacked."""
    return 1000 + 9 * len(blob)


def unpack_terms(blob: bytes) -> Terms:
    with reading("a submission's terms"):
        return _terms(blob)


def unpack_stored_terms(raw: bytes) -> Terms:
    """From what `PackedTerms.blob` holds: the limits that the scripts read, and the terms."""
    return unpack_terms(unpack_parts(raw, 2)[1])


def pack_crawl(crawl: Crawl) -> bytes:
    """Short, for there are many: the servers keep a hash compact while no value in it is longer than 64 bytes."""
    rate = (crawl.rate.hits, crawl.rate.window_seconds, crawl.rate.moderated) if crawl.rate else None
    lifo = crawl.order is Order.LIFO
    idle_ms = round(crawl.idle_seconds * 1000)
    return _pack(
        _CrawlRow(crawl.id.appid, crawl.id.crawlid, crawl.pool, lifo, crawl.max_pages, rate, crawl.concurrency, idle_ms)
    )


def unpack_crawl(blob: bytes) -> Crawl:
    with reading("a crawl"):
        row = _crawl(blob)
    return Crawl(
        id=CrawlId(row.appid, row.crawlid),
        pool=row.pool,
        order=Order.LIFO if row.lifo else Order.FIFO,
        max_pages=row.max_pages,
        rate=Rate(*row.rate) if row.rate else None,
        concurrency=row.concurrency,
        idle_seconds=row.idle_ms / 1000,
    )


def pack_policy(policy: DomainPolicy) -> bytes:
    names = {
        "hits": policy.hits,
        # Rounded, so that what was read back packs to the same bytes.
        "window": None if policy.window_seconds is None else round(policy.window_seconds * 1000, 3),
        "moderated": policy.moderated,
        "elastic": policy.elastic,
        "scale": policy.scale,
        "scope": None if policy.scope is None else policy.scope.value,
        "concurrency": policy.concurrency,
        "blacklisted": policy.blacklisted,
        "when_blacklisted": None if policy.when_blacklisted is None else policy.when_blacklisted.value,
    }
    return _pack({name: value for name, value in names.items() if value is not None})


def unpack_policy(blob: bytes) -> DomainPolicy:
    with reading("a domain's policy"):
        row = msgspec.msgpack.decode(blob)
        if "window" in row:
            row["window_seconds"] = row.pop("window") / 1000
        return msgspec.convert(row, DomainPolicy)


def pack_tail(url: str, payload: bytes | None, identity: bytes) -> bytes:
    """An entry behind its header, extended: 8 bytes of identity (empty: none beyond spider and URL), URL, payload."""
    if payload is not None and len(payload) > MAX_PAYLOAD:
        raise BadInput(f"a request's payload is {len(payload)} bytes, at most {MAX_PAYLOAD} fit: {url[:200]}")
    encoded = url.encode()
    return _TAIL.pack(identity or _PLAIN, len(encoded)) + encoded + (payload or b"")


def batch_arguments(batch: Batch) -> list[bytes | str | int]:
    """The arguments of one batch for `add`: extended entries where anything needs it."""
    payloads = batch.payloads
    extended = batch.unfiltered or (payloads is not None and any(p is not None for p in payloads))
    head: list[bytes | str | int] = [
        batch.spider,
        batch.domain,
        batch.priority,
        batch.depth,
        1 if batch.unfiltered else 0,
        1 if extended else 0,
        len(batch.urls),
    ]
    rest: list[bytes | str | int] = [b""] * (2 * len(batch.urls))
    rest[::2] = batch.fingerprints
    if not extended:
        rest[1::2] = batch.urls
    else:
        for index, url in enumerate(batch.urls):
            identity = (
                secrets.token_bytes(8)
                if batch.unfiltered
                else batch.fingerprints[index].to_bytes(8, "big", signed=True)
            )
            rest[2 * index + 1] = pack_tail(url, payloads[index] if payloads else None, identity)
    return head + rest


def split_batches(
    batches: Sequence[Batch], most: int, *, most_bytes: int = 4 * MAX_PAYLOAD
) -> Iterator[list[tuple[int, int, Batch]]]:
    """Groups of (index of the batch, offset in it, part), each with at most `most` URLs and about so many bytes of
    payload, so that a call takes the server a bounded time."""
    group: list[tuple[int, int, Batch]] = []
    room, bytes_left = most, most_bytes
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
                group, room, bytes_left = [], most, most_bytes
    if group:
        yield group


def _fitting(payloads: Sequence[bytes | None], bytes_left: int) -> tuple[int, int]:
    """How many come before the bytes are used up, that one included; and what is left of them."""
    for count, payload in enumerate(payloads, 1):
        bytes_left -= len(payload or b"")
        if bytes_left <= 0:
            return count, 0
    return len(payloads), bytes_left


def _part(batch: Batch, first: int, end: int) -> Batch:
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
    )


def decode_entry(entry: bytes) -> tuple[int, int, int, int, str, bytes | None, bytes]:
    """(deaths, attempt, depth, number of the terms, URL, payload, identity)."""
    flags, attempt, depth, high, low = _HEADER.unpack_from(entry)
    number = high << 16 | low
    deaths = flags >> 1 & 3
    rest = 7
    if flags & _SUSPECT:  # as it is stored: names of workers come first
        rest = 9 + int.from_bytes(entry[7:9])
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
        b"" if identity == _PLAIN else identity,
    )


def unpack_parts(raw: bytes, count: int) -> list[bytes]:
    """So many msgpack values, one behind the other, each as its bytes (a string without its header: it may be no
    text). Raises FrontierIncompatible when they are not so many."""
    with reading("a request"):
        parts = _raws(bytes((0x90 | count,)) + raw)
        if len(parts) != count:
            raise ValueError(f"{len(parts)} parts, not {count}")
        return [_unwrapped(bytes(part)) for part in parts]


def unpack_number(part: bytes) -> int:
    """One of `unpack_parts` that is a whole number."""
    with reading("a request"):
        return int(msgspec.msgpack.decode(part))


def _unwrapped(part: bytes) -> bytes:
    kind = part[0]
    if 0xA0 <= kind <= 0xBF:
        return part[1:]
    return part[{0xD9: 2, 0xDA: 3, 0xDB: 5}.get(kind, 0) :]


LEASE_ROW = 9
"""Fields of a lease in a reply."""


def decode_lease(shard: int, row: Sequence[Any], run: Run, terms: Terms, *, worker: str, charged: float) -> Lease:
    """A lease from its row of a reply: id, token, run, spider, domain, priority, entry, start and even gap in us."""
    try:  # not `reading`: this is done for every request
        deaths, attempt, depth, _, url, payload, identity = decode_entry(row[6])
    except (struct.error, UnicodeDecodeError) as exc:
        raise FrontierIncompatible(f"a request in it cannot be read ({exc}); use the version that wrote it") from exc
    spider = row[3].decode()
    spacing: int = row[8]
    return Lease(
        id=int(row[0]),
        shard=shard,
        worker=worker,
        run=run,
        spider=spider,
        domain=row[4].decode(),
        priority=int(row[5]),
        depth=depth,
        attempt=attempt,
        deaths=deaths,
        url=url,
        payload=payload,
        terms=terms,
        request_id=request_id(run, identity or f"{spider}\0{url}".encode()),
        identity=identity,
        charged=charged,
        ahead_seconds=row[7] / 1_000_000,
        spacing_seconds=spacing / 1_000_000 if spacing > 0 else 0.0,
        blacklisted=spacing < 0,
    )
