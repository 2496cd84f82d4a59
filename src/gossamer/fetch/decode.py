"""Decodes content encodings, within bounds of size and ratio.

The body is decoded at once when it is complete. Until then it is held encoded, which is the smaller form, and each
library is asked for no more than the limit, so that a bomb costs at most the limit in memory.
"""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import brotli
import zstandard

from gossamer.errors import DecodeBomb, DecodeFailed
from gossamer.fetch.exchange import ResponseLimits

ACCEPT_ENCODING = "gzip, deflate, br, zstd"
"""Encodings that this module decodes."""

ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
"""Largest window that a decoder has to support (RFC 9659)."""


_FIRST_PIECE = 1024
_LARGEST_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DecodedBody:
    """Body without its content encodings."""

    body: bytes
    truncated: bool
    """True: the body was cut at the limit, or the encoded data ended early."""


@dataclass(frozen=True, slots=True)
class _Layer:
    output: bytes
    consumed: int
    complete: bool


def decode(wire: bytes, encodings: tuple[str, ...], limits: ResponseLimits) -> DecodedBody:
    """Decode `encodings`, listed in the order in which they were applied (as in Content-Encoding), in lower case.

    Unknown encodings are skipped, as browsers do: servers put charsets and `none` there. An empty body is empty in any
    encoding. Data that ends early returns what there is, marked as truncated, and so does data beyond
    `limits.body_bytes`. Raises DecodeFailed for invalid data or too many encodings, DecodeBomb for data that expands
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
    """Return the tokens of all Content-Encoding headers, in order, in lower case (RFC 9110, section 8.4)."""
    tokens = (token.strip().lower() for value in values for token in value.split(","))
    return tuple(token for token in tokens if token)


def _gunzip(data: bytes, limit: int) -> _Layer:
    output = bytearray()
    view, at = memoryview(data), 0
    while True:
        inflater = zlib.decompressobj(wbits=31)
        # In pieces, because zlib copies everything after a member's end: a body of empty members would be copied once
        # for each. The pieces grow, because most bodies are one long member.
        piece = _FIRST_PIECE
        while not inflater.eof and at < len(data) and len(output) <= limit:
            given = view[at : at + piece]
            try:
                output += inflater.decompress(given, limit + 1 - len(output))
            except zlib.error as exc:
                raise DecodeFailed(f"gzip: {exc}") from exc
            at += len(given) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
            piece = min(2 * piece, _LARGEST_PIECE)
        # Members may follow each other (RFC 1952, section 2.2). Other bytes after the end are not part of the body.
        another = inflater.eof and data.startswith(b"\x1f\x8b", at)
        if not another or len(output) >= limit:
            return _cut(bytes(output), at, limit, ended=inflater.eof and not another)


def _inflate_any(data: bytes, limit: int) -> _Layer:
    # "deflate" means zlib's format (RFC 9110, section 8.4.1.2), but some servers send bare deflate data.
    header = int.from_bytes(data[:2], "big")
    zlib_format = header >> 8 & 0x0F == 8 and header % 31 == 0
    return _inflate("deflate", zlib.decompressobj(wbits=15 if zlib_format else -15), data, limit)


def _inflate(name: str, inflater: "zlib._Decompress", data: bytes, limit: int) -> _Layer:
    try:
        # One byte more than the limit tells "just reached" from "exceeded"; and 0 would mean "no limit" to zlib.
        output = inflater.decompress(data, max(limit, 0) + 1)
    except zlib.error as exc:
        raise DecodeFailed(f"{name}: {exc}") from exc
    return _cut(output, len(data) - len(inflater.unconsumed_tail), limit, ended=inflater.eof)


def _unbrotli(data: bytes, limit: int) -> _Layer:
    decompressor = brotli.Decompressor()
    output = bytearray()
    try:
        output += decompressor.process(data, output_buffer_limit=limit + 1)
        while len(output) <= limit and not decompressor.is_finished() and not decompressor.can_accept_more_data():
            output += decompressor.process(b"", output_buffer_limit=limit + 1 - len(output))
    except brotli.error as exc:
        raise DecodeFailed(f"br: {exc}") from exc
    # It takes all its input at once and does not report how much it needed, so the ratio is underestimated here.
    return _cut(bytes(output), len(data), limit, ended=decompressor.is_finished())


def _unzstd(data: bytes, limit: int) -> _Layer:
    reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).stream_reader(data, read_across_frames=True)
    try:
        output = reader.read(limit + 1)
    except zstandard.ZstdError as exc:
        raise DecodeFailed(f"zstd: {exc}") from exc
    # This library reports neither its position nor an early end, so an early end is only detected by HTTP framing.
    return _cut(output, len(data), limit, ended=True)


def _cut(output: bytes, consumed: int, limit: int, *, ended: bool) -> _Layer:
    fits = len(output) <= limit
    return _Layer(output if fits else output[:limit], consumed, complete=fits and ended)


_DECODERS: dict[str, Callable[[bytes, int], _Layer]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate_any,
    "br": _unbrotli,
    "zstd": _unzstd,
}
