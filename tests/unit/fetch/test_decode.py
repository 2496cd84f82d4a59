"""Content encodings: what was encoded comes back, in any nesting; broken or hostile data ends within the limits."""

import contextlib
import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import DecodeBomb, DecodeFailed
from gossamer.fetch.decode import DecodedBody, decode, parse_encodings
from gossamer.fetch.exchange import ResponseLimits
from gossamer.fetch.faults import ResponseFault

LIMITS = ResponseLimits(body_bytes=10_000, bomb_bytes=5_000, bomb_ratio=100)


def raw_deflate(data: bytes) -> bytes:
    """Without zlib's header."""
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


ENCODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


@given(st.binary(min_size=1, max_size=3000), st.lists(st.sampled_from(sorted(ENCODERS)), max_size=3))
def test_what_was_encoded_comes_back(body: bytes, encodings: list[str]) -> None:
    """In the order that Content-Encoding lists."""
    wire = body
    for encoding in encodings:
        wire = ENCODERS[encoding](wire)
    assert decode(wire, tuple(encodings), LIMITS) == DecodedBody(body, truncated=False)


@given(st.binary(min_size=1, max_size=3000))
def test_raw_deflate_is_understood(body: bytes) -> None:
    """Some servers mean this by "deflate"; it is told from zlib's by the header."""
    wire = raw_deflate(body)
    looks_like_zlib = wire[0] & 0x0F == 8 and int.from_bytes(wire[:2], "big") % 31 == 0
    if not looks_like_zlib:
        assert decode(wire, ("deflate",), LIMITS) == DecodedBody(body, truncated=False)


@given(st.binary(max_size=400), st.lists(st.sampled_from(sorted(ENCODERS)), max_size=4))
def test_noise_is_decoded_or_refused(wire: bytes, encodings: list[str]) -> None:
    """Never another exception, never more than the limit."""
    with contextlib.suppress(DecodeFailed, DecodeBomb):
        assert len(decode(wire, tuple(encodings), LIMITS).body) <= LIMITS.body_bytes


@pytest.mark.parametrize("encoding", sorted(ENCODERS))
def test_beyond_the_limit_it_is_cut(encoding: str) -> None:
    """Unless it expands so much that it can only be meant to hurt."""
    words = b" ".join(b"%x" % (number * 2654435761 % 2**32) for number in range(3000))
    decoded = decode(ENCODERS[encoding](words), (encoding,), LIMITS)
    assert decoded == DecodedBody(words[:10_000], truncated=True)
    with pytest.raises(DecodeBomb):
        decode(ENCODERS[encoding](bytes(1_000_000)), (encoding,), LIMITS)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_exactly_the_limit_is_whole(encoding: str) -> None:
    """One byte more is not."""
    words = b" ".join(b"%x" % (number * 2654435761 % 2**32) for number in range(3000))
    assert not decode(ENCODERS[encoding](words[:10_000]), (encoding,), LIMITS).truncated
    assert decode(ENCODERS[encoding](words[:10_001]), (encoding,), LIMITS).truncated


def test_a_stream_that_ends_early_gives_what_there_is() -> None:
    """As browsers show it."""
    noise = zlib.compress(b"seed") * 100
    wire = gzip.compress(b"".join(b"%x" % (number * 2654435761) for number in range(500)) + noise)
    decoded = decode(wire[: len(wire) // 2], ("gzip",), LIMITS)
    assert decoded.truncated
    assert decoded.body.startswith(b"0")


@given(st.binary(min_size=1, max_size=3000), st.sampled_from(sorted(ENCODERS)), st.data())
def test_what_ends_early_or_is_broken_gives_what_comes_before(body: bytes, encoding: str, data: st.DataObject) -> None:
    """Never anything else, unless the damage is such that no decoder can notice it."""
    wire = ENCODERS[encoding](body)
    kept = data.draw(st.integers(1, len(wire) - 1))
    try:
        decoded = decode(wire[:kept], (encoding,), LIMITS)
    except DecodeFailed:
        return  # it looks like plain text
    assert decoded.truncated or decoded.body == body
    assert body.startswith(decoded.body)
    assert (decoded.fault is None) is not decoded.truncated
    with contextlib.suppress(DecodeFailed, DecodeBomb):
        broken = decode(wire[:kept] + data.draw(st.binary(max_size=100)), (encoding,), LIMITS)
        assert broken.body.startswith(decoded.body) or encoding == "zstd"


@given(st.binary(min_size=1, max_size=3000), st.sampled_from(sorted(ENCODERS)), st.binary(min_size=1, max_size=300))
def test_bytes_behind_the_end_do_not_matter(body: bytes, encoding: str, rest: bytes) -> None:
    """Unless they begin another member or frame."""
    if not rest.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")) and rest[1:4] != b"\x2a\x4d\x18":
        assert decode(ENCODERS[encoding](body) + rest, (encoding,), LIMITS) == DecodedBody(body, truncated=False)


def test_damage_in_a_large_body_loses_nothing_before_it() -> None:
    """Wherever in the pieces that the libraries get it is."""
    large = b" ".join(b"%x" % (number * 2654435761 % 2**32) for number in range(300_000))
    packed, deflated, brotlied = zlib.compressobj(wbits=31), zlib.compressobj(), brotli.Compressor(quality=1)
    beginnings = {
        "gzip": packed.compress(large) + packed.flush(zlib.Z_SYNC_FLUSH),
        "deflate": deflated.compress(large) + deflated.flush(zlib.Z_SYNC_FLUSH),
        "br": brotlied.process(large) + brotlied.flush(),
        "zstd": zstandard.compress(large) + zstandard.compress(b"")[:4],
    }
    for encoding, wire in beginnings.items():
        decoded = decode(wire + b"\xff" * 99, (encoding,), ResponseLimits())
        assert decoded == DecodedBody(large, truncated=True, fault=ResponseFault.BODY), encoding


def test_tokens_are_split_and_lowered() -> None:
    """Over several headers, in order."""
    assert parse_encodings(["GZIP, br", "", " zstd ,"]) == ("gzip", "br", "zstd")


@pytest.mark.timeout(10)
def test_a_quarter_of_a_million_empty_members_are_soon_read() -> None:
    """Copying the rest for each of them would take half a minute, in which nothing else happened."""
    whole = gzip.compress(b"") * 250_000 + gzip.compress(b"end")
    assert decode(whole, ("gzip",), ResponseLimits()) == DecodedBody(b"end", truncated=False)
