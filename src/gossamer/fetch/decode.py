"""Decodes content encodings (gzip, brotli and others), within bounds of size and ratio.

A body is decoded in one step when it is complete. Until then it is held encoded, which is the smaller form.

Safe to change: the sizes of pieces, and the encodings: a further one needs a decoder in `_DECODERS` and its name in
ACCEPT_ENCODING. Fixed: no decoder may ask its library for more than one byte beyond the limit, so that a decompression
bomb (a small body that decodes to gigabytes) costs at most the limit in memory.
"""

import zlib
from collections.abc import Callable, Iterable

import brotli
import msgspec
import zstandard

from gossamer.errors import DecodeBomb, DecodeFailed
from gossamer.fetch.exchange import ResponseLimits

ACCEPT_ENCODING = "gzip, deflate, br, zstd"
"""Header value sent with every request. It may name only encodings in `_DECODERS`; others arrive undecoded."""

ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
"""Largest window that a decoder has to support. RFC 9659: fixed. A smaller one refuses valid bodies; a larger one lets
a server make the decoder allocate more."""

# Sizes of the first and the largest piece of a gzip body that is passed to zlib at once. Tuning only: small pieces cost
# calls, large ones cost copies in a body of many members (see `_gunzip`).
_FIRST_PIECE_BYTES = 1024
_LARGEST_PIECE_BYTES = 1024 * 1024

# Formats of zlib's `wbits` argument: fixed by zlib.
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_ZLIB_FORMAT = zlib.MAX_WBITS
_BARE_DEFLATE = -zlib.MAX_WBITS


class DecodedBody(msgspec.Struct, frozen=True):
    """Body without its content encodings."""

    body: bytes
    truncated: bool
    """True: the body was cut at the limit, or the encoded data ended early."""


class _Layer(msgspec.Struct, frozen=True):
    """Result of removing one encoding."""

    output: bytes
    """At most as long as the limit."""
    consumed: int
    """Bytes of the input that the output was made of; all of them where the library does not report it."""
    complete: bool
    """False: the output was cut at the limit, or the input ended early."""


def decode(wire: bytes, encodings: tuple[str, ...], limits: ResponseLimits) -> DecodedBody:
    """Decode `encodings`, listed in the order in which they were applied (as in Content-Encoding), in lower case.

    Unknown encodings are skipped, as browsers do: servers put charsets and `none` there. An empty body is empty in any
    encoding. A body that ends early, or decodes to more than `limits.body_bytes`, is returned as far as it goes and
    marked as truncated. Raises DecodeFailed for invalid data or too many encodings, DecodeBomb for data that expands
    too much.
    """
    known = [encoding for encoding in encodings if encoding in _DECODERS]
    if len(known) > limits.encodings:
        raise DecodeFailed(f"{len(known)} content encodings on top of each other")
    body, truncated = wire, False
    for encoding in reversed(known):
        if not body:
            break
        layer = _DECODERS[encoding](body, limits.body_bytes)
        if len(layer.output) > limits.bomb_bytes and len(layer.output) > limits.bomb_ratio * layer.consumed:
            raise DecodeBomb(f"{encoding} made {len(layer.output)} bytes of {layer.consumed}")
        body, truncated = layer.output, truncated or not layer.complete
    return DecodedBody(body, truncated)


def parse_encodings(values: Iterable[str]) -> tuple[str, ...]:
    """Return the encodings that all Content-Encoding headers name, in order, in lower case (RFC 9110, section 8.4)."""
    tokens = (token.strip().lower() for value in values for token in value.split(","))
    return tuple(token for token in tokens if token)


def _gunzip(data: bytes, limit: int) -> _Layer:
    """Decode gzip, member by member."""
    output = bytearray()
    view, at = memoryview(data), 0  # `at`: number of bytes that were decoded
    while True:
        inflater = zlib.decompressobj(wbits=_GZIP_FORMAT)
        # A gzip file is a row of members, each compressed by itself. The input is passed in pieces, because zlib copies
        # everything after a member's end: a body of empty members would be copied once for each. The pieces grow,
        # because most bodies are one long member.
        piece_bytes = _FIRST_PIECE_BYTES
        while not inflater.eof and at < len(data) and len(output) <= limit:
            given = view[at : at + piece_bytes]
            try:
                output += inflater.decompress(given, limit + 1 - len(output))
            except zlib.error as exc:
                raise DecodeFailed(f"gzip: {exc}") from exc
            at += len(given) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
            piece_bytes = min(2 * piece_bytes, _LARGEST_PIECE_BYTES)
        # Bytes after the last member are not part of the body (RFC 1952, section 2.2).
        another_member = inflater.eof and data.startswith(b"\x1f\x8b", at)
        if not another_member or len(output) >= limit:
            return _cut(bytes(output), at, limit, ended=inflater.eof and not another_member)


def _inflate(data: bytes, limit: int) -> _Layer:
    """Decode `deflate`, with or without the header of zlib."""
    # "deflate" means zlib's format (RFC 9110, section 8.4.1.2), but some servers send bare deflate data. Zlib's header
    # has the method 8, and is a multiple of 31 (RFC 1950, section 2.2).
    header = int.from_bytes(data[:2], "big")
    has_zlib_header = (header >> 8) & 0x0F == 8 and header % 31 == 0
    inflater = zlib.decompressobj(wbits=_ZLIB_FORMAT if has_zlib_header else _BARE_DEFLATE)
    try:
        # One byte more than the limit distinguishes "just reached" from "exceeded"; and 0 would mean "no limit" to
        # zlib.
        output = inflater.decompress(data, max(limit, 0) + 1)
    except zlib.error as exc:
        raise DecodeFailed(f"deflate: {exc}") from exc
    return _cut(output, len(data) - len(inflater.unconsumed_tail), limit, ended=inflater.eof)


def _unbrotli(data: bytes, limit: int) -> _Layer:
    """Decode brotli."""
    decompressor = brotli.Decompressor()
    output = bytearray()
    try:
        output += decompressor.process(data, output_buffer_limit=limit + 1)
        while len(output) <= limit and not decompressor.is_finished() and not decompressor.can_accept_more_data():
            output += decompressor.process(b"", output_buffer_limit=limit + 1 - len(output))
    except brotli.error as exc:
        raise DecodeFailed(f"br: {exc}") from exc
    # The library takes all its input at once and does not report how much it needed, so the ratio is underestimated.
    return _cut(bytes(output), len(data), limit, ended=decompressor.is_finished())


def _unzstd(data: bytes, limit: int) -> _Layer:
    """Decode zstd, of one or several frames."""
    reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).stream_reader(data, read_across_frames=True)
    try:
        output = reader.read(limit + 1)
    except zstandard.ZstdError as exc:
        raise DecodeFailed(f"zstd: {exc}") from exc
    # This library reports neither its position nor an early end, so an early end is only detected by HTTP framing.
    return _cut(output, len(data), limit, ended=True)


def _cut(output: bytes, consumed: int, limit: int, *, ended: bool) -> _Layer:
    """Cut the output at the limit. `ended`: the input reached its proper end."""
    fits = len(output) <= limit
    return _Layer(output if fits else output[:limit], consumed, complete=fits and ended)


_DECODERS: dict[str, Callable[[bytes, int], _Layer]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
"""Decoder of each encoding, by its name in lower case: takes the encoded bytes and the limit of the output in bytes. A
decoder that is removed leaves such bodies encoded, and then their links are not found."""
