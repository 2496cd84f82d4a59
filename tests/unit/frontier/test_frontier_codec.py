"""What the servers keep, read back; and what another version wrote there, named as such."""

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gossamer.errors import FrontierIncompatible
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.queries import decode_share
from gossamer.model.crawl import BudgetScope, Crawl, CrawlId, DomainPolicy, Order, Rate, Run, Terms
from gossamer.model.request import Batch

CRAWL = Crawl(
    id=CrawlId("app", "one"), order=Order.LIFO, max_pages=3, rate=Rate(2, 1.5), concurrency=4, keep_failed=True
)
CALL = codec.LeaseCall(
    shard=0, worker="w-1", turn=codec.LeaseTurn("shared", ""), charged=0.0, called_ms=1000.0, first_id=1 << 20, last=()
)


def _stored(entry: bytes) -> bytes:
    """A lease as lease.lua stores it: values without the header of an array, strings with that of text."""
    packed = b"".join(map(msgspec.msgpack.encode, (1, CRAWL.id.token, 0, "link", "a.test", "a.test")))
    header = b"\xda" + len(entry).to_bytes(2, "big")
    return packed + header + entry + b"".join(map(msgspec.msgpack.encode, ("", 0, 1005.5, 1000)))


def _lease(entry: bytes) -> Any:
    return codec.decode_lease(CALL, 3, *codec.unpack_lease(_stored(entry)), Run(CRAWL, 1, 1), b"", Terms())


def test_a_crawl_and_a_policy_come_back_as_they_were() -> None:
    for crawl in (CRAWL, Crawl(id=CrawlId("app", "two"), keep_all_failed=True)):
        assert codec.unpack_crawl(codec.pack_crawl(crawl)) == crawl
    policy = DomainPolicy(hits=2, window_seconds=1.5, scale=0.5, scope=BudgetScope.TYPE_IP, blacklisted=True)
    assert codec.unpack_policy(codec.pack_policy(policy)) == policy


@pytest.mark.parametrize(
    "read", [codec.unpack_terms, codec.unpack_crawl, codec.unpack_policy, codec.unpack_lease, _lease]
)
@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x01", b"\x93\x01\x02\x03", b"\x81\x01\x02", b"\x92\xa1a"])
def test_what_another_version_wrote_is_said_to_be_so(read: Callable[[bytes], object], raw: bytes) -> None:
    """No error of whatever reads it."""
    with pytest.raises(FrontierIncompatible, match="version"):
        read(raw)


def test_a_lease_is_read_from_what_the_shard_stores() -> None:
    lease = _lease(struct.pack(">BBHBH", 4, 2, 5, 0, 1) + "http://a.test/ä".encode())
    assert (lease.id, lease.spider, lease.domain, lease.url) == ((1 << 20) + 3, "link", "a.test", "http://a.test/ä")
    assert (lease.deaths, lease.attempt, lease.depth) == (2, 2, 5)
    assert (lease.ahead_seconds, lease.spacing_seconds, lease.blacklisted) == (0.0055, 1.0, False)


def test_a_domains_record_of_another_version_is_said_to_be_so() -> None:
    for raw in (b"", b"\x01", b"\x93\x00\x00\x00", b"\x95\x00\x00\xa1a\xa1b\xa1c"):
        with pytest.raises(FrontierIncompatible, match="version"):
            decode_share(b"a.test", raw)


def test_parts_are_read_whatever_their_bytes() -> None:
    """Strings that are no text, of every length of header."""
    for text in (b"", b"\xff" * 31, b"\xff" * 32, b"\xff" * 300, b"\xff" * 70_000):
        header = next(
            head
            for size, head in (
                (32, bytes((0xA0 | len(text) & 31,))),
                (256, bytes((0xD9, len(text) & 255))),
                (65_536, b"\xda" + (len(text) & 65_535).to_bytes(2, "big")),
                (1 << 32, b"\xdb" + len(text).to_bytes(4, "big")),
            )
            if len(text) < size
        )
        parts = codec.unpack_parts(header + text + msgspec.msgpack.encode(70_000), 2)
        assert parts[0] == text
        assert codec.unpack_number(parts[1]) == 70_000
    with pytest.raises(FrontierIncompatible, match="version"):
        codec.unpack_parts(b"\x01\x02\x03", 2)


def test_leases_of_one_run_share_it_until_its_crawl_is_changed() -> None:
    token = CRAWL.id.token.encode()
    entry = struct.pack(">BBHBH", 0, 0, 0, 0, 1) + b"http://a.test/"
    rows: list[Any] = [0, _stored(entry)]
    terms = [token, 1, msgspec.msgpack.encode(Terms())]
    decoder = codec.LeaseDecoder()

    def run_of(crawl: Crawl) -> Run:
        [lease] = decoder.decode(CALL, rows, [token, b"7", codec.pack_crawl(crawl), *terms])
        return lease.run

    first = run_of(CRAWL)
    assert first == Run(CRAWL, 1, 7)
    assert run_of(CRAWL) is first
    changed = msgspec.structs.replace(CRAWL, rate=Rate(9, 1.0))
    assert run_of(changed) == Run(changed, 1, 7)


@pytest.mark.parametrize("size", [0, 1, 100, 300, 70_000])
def test_a_batch_is_packed_without_bytes_which_the_scripts_cannot_read(size: int) -> None:
    """Values follow each other; a tail of any length is a text."""
    batch = Batch("link", "a.test", -5, 3, ["https://a.test/x"], [-(2**63)], [b"\xff" * size] if size else None)
    packed = codec.pack_batch(batch)
    spider, domain, priority, depth, unfiltered, extended, fingerprint, tail = codec.unpack_parts(packed, 8)
    assert (spider, domain, fingerprint) == (b"link", b"a.test", b"-9223372036854775808")
    assert [codec.unpack_number(part) for part in (priority, depth, extended)] == [-5, 3, int(size > 0)]
    assert unfiltered == b"\xc2"  # false
    identity = batch.fingerprints[0].to_bytes(8, signed=True)
    payload = b"\xff" * size
    assert tail == (codec.pack_tail(batch.urls[0], payload, identity) if size else b"https://a.test/x")
