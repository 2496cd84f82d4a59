"""Bodies decoded in pieces: the same as in one step, without the memory."""

import contextlib
import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from gossamer.errors import DecodeBomb, DecodeFailed
from gossamer.fetch.decode import decode
from gossamer.fetch.exchange import ResponseLimits
from gossamer.fetch.piecewise import decoded_pieces

LIMITS = ResponseLimits(body_bytes=100 * 1024 * 1024)


def bare_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip, two members": ("x-gzip", lambda body: gzip.compress(body[:1000]) + gzip.compress(body[1000:])),
    "gzip, bytes behind the end": ("gzip", lambda body: gzip.compress(body) + b"\0\0"),
    "deflate": ("deflate", zlib.compress),
    "deflate without a header": ("deflate", bare_deflate),
    "br": ("br", lambda body: brotli.compress(body, quality=4)),
    "zstd": ("zstd", zstandard.compress),
    "zstd, two frames": ("zstd", lambda body: zstandard.compress(body[:1000]) + zstandard.compress(body[1000:])),
    "none": ("identity", bytes),
}

CHOICES = random.Random(7)
BODIES = {
    "empty": b"",
    "short": b"x",
    "text": b"".join(b"<url><loc>http://a.test/%d</loc></url>\n" % CHOICES.getrandbits(40) for _ in range(20_000)),
    "random": CHOICES.randbytes(300_000),
}


def decoded(wire: bytes, *encodings: str) -> bytes:
    pieces = list(decoded_pieces(wire, encodings, LIMITS))
    assert all(0 < len(piece) <= 128 * 1024 for piece in pieces)
    return b"".join(pieces)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("body", BODIES)
def test_the_pieces_are_the_body(encoder: str, body: str) -> None:
    name, encode = ENCODERS[encoder]
    wire = encode(BODIES[body])
    assert decoded(wire, name) == BODIES[body] == decode(wire, (name,), LIMITS).body


def test_unknown_encodings_do_not_count_and_several_are_taken_off() -> None:
    body = BODIES["text"]
    assert decoded(gzip.compress(body), "utf-8", "gzip") == body
    assert decoded(brotli.compress(gzip.compress(body)), "gzip", "br") == body


@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name not in ("none", "zstd", "zstd, two frames")])
def test_what_comes_before_the_end_of_the_data_is_there(encoder: str) -> None:
    name, encode = ENCODERS[encoder]
    wire, found = encode(BODIES["text"]), []
    with pytest.raises(DecodeFailed):
        found.extend(decoded_pieces(wire[: len(wire) // 2], (name,), LIMITS))
    read = b"".join(found)
    assert len(read) > len(BODIES["text"]) // 4
    assert BODIES["text"].startswith(read)


DAMAGES = {
    "in the middle": lambda wire: wire[: len(wire) // 2] + bytes(byte ^ 255 for byte in wire[len(wire) // 2 :]),
    "of the checksum": lambda wire: wire[:-8] + bytes(byte ^ 255 for byte in wire[-8:]),
    "by a missing end": lambda wire: wire[: -len(wire) // 3],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("length", [20_000, 1_000_000])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_what_comes_before_a_damage_is_there_as_in_a_page(encoding: str, length: int, damage: str) -> None:
    """Also where a library fails in the only piece, and returns nothing of it."""
    body = BODIES["text"][:length]
    wire, found = DAMAGES[damage](ENCODERS[encoding][1](body)), []
    with contextlib.suppress(DecodeFailed):
        found.extend(decoded_pieces(wire, (encoding,), LIMITS))
    usable = b""
    with contextlib.suppress(DecodeFailed):
        usable = decode(wire, (encoding,), LIMITS).body
    assert len(b"".join(found)) >= len(usable)
    assert b"".join(found)[: len(usable)] == usable


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_that_is_not_encoded_is_taken_as_it_is(encoding: str) -> None:
    assert decoded(BODIES["text"], encoding) == BODIES["text"]


@pytest.mark.parametrize("encoder", ["gzip", "deflate", "br", "zstd"])
def test_neither_a_bomb_nor_a_large_body_fills_the_memory(encoder: str) -> None:
    name, encode = ENCODERS[encoder]
    bomb = encode(b"\0" * 60_000_000)
    honest = encode(b"".join(b"%d" % CHOICES.getrandbits(30) + b"x" * 100 for _ in range(200_000)))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeBomb):
            sum(map(len, decoded_pieces(bomb, (name,), LIMITS)))
        assert sum(map(len, decoded_pieces(honest, (name,), LIMITS))) > 20_000_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024
