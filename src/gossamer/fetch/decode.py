"""Decodes content encodings (gzip, brotli and others), within bounds of size and ratio.

A body is decoded in one step when it is complete. Until then it is held encoded, which is the smaller form. No decoder
may ask its library for more than one byte beyond the limit, so that a decompression bomb (a small body that decodes to
gigabytes) costs at most the limit in memory.

Damaged data is kept as far as it can be decoded.
"""

import zlib
from collections.abc import Callable, Iterable
from functools import partial

import brotli
import msgspec
import zstandard

from gossamer.errors import DecodeBomb, DecodeFailed
from gossamer.fetch.exchange import ResponseLimits
from gossamer.fetch.faults import ResponseFault

ACCEPT_ENCODING = "gzip, deflate, br, zstd"
"""Header value sent with every request. It may name only encodings in `_DECODERS`; others arrive undecoded."""

ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
"""Largest window that a decoder has to support. RFC 9659: fixed. A smaller one refuses valid bodies; a larger one lets
a server make the decoder allocate more."""

# Sizes of the first and the largest piece of a gzip body that is passed to zlib at once. Small pieces cost calls, large
# ones cost copies in a body of many members (see `_gunzip`).
_FIRST_PIECE_BYTES = 1024
_LARGEST_PIECE_BYTES = 1024 * 1024

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPED_MAGIC = b"\x2a\x4d\x18"
"""Last three of the four bytes at the beginning of a frame that decoders skip. The first is 0x50 to 0x5F."""
_ZSTD_REPEATED = 1
"""Type of a block that is one byte, repeated."""
# Numbers up to which frames, and blocks of a frame, are looked at to find an early end. More take time.
_MAX_ZSTD_FRAMES = 1000
_MAX_ZSTD_BLOCKS = 1000

# Formats of zlib's `wbits` argument: fixed by zlib.
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_ZLIB_FORMAT = zlib.MAX_WBITS
_BARE_DEFLATE = -zlib.MAX_WBITS


class DecodedBody(msgspec.Struct, frozen=True):
    """Body without its content encodings."""

    body: bytes
    truncated: bool
    """True: the body was cut at the limit, or the encoded data ended early or was damaged."""
    fault: ResponseFault | None = None
    """ResponseFault that did not lose the whole body."""


class _Layer(msgspec.Struct, frozen=True):
    """Result of removing one encoding."""

    output: bytes
    """At most as long as the limit."""
    consumed: int
    """Bytes of the input that the output was made of; all of them where the library does not report it."""
    complete: bool
    """False: the output was cut at the limit, or the input ended early or was damaged."""
    fault: ResponseFault | None = None


class _Broken(Exception):
    """The data is damaged: the library refuses it."""

    def __init__(self, reason: object, salvaged: bytes) -> None:
        """`salvaged`: output up to the damage."""
        super().__init__(str(reason))
        self.salvaged = salvaged


def decode(wire: bytes, encodings: tuple[str, ...], limits: ResponseLimits) -> DecodedBody:
    """Decode `encodings`, listed in the order in which they were applied (as in Content-Encoding), in lower case.

    Unknown encodings are skipped, as browsers do: servers put charsets and `none` there. An empty body is empty in any
    encoding. A body that ends early, is damaged, or decodes to more than `limits.body_bytes`, is returned as far as it
    goes and marked as truncated. Raises DecodeFailed for data of which nothing can be decoded, such as plain text, and
    for too many encodings, DecodeBomb for data that expands too much.
    """
    known = [encoding for encoding in encodings if encoding in _DECODERS]
    if len(known) > limits.encodings:
        raise DecodeFailed(f"{len(known)} content encodings on top of each other")
    body, truncated, fault = wire, False, None
    for encoding in reversed(known):
        if not body:
            break
        layer = _remove(encoding, body, limits.body_bytes)
        if len(layer.output) > limits.bomb_bytes and len(layer.output) > limits.bomb_ratio * layer.consumed:
            raise DecodeBomb(f"{encoding} made {len(layer.output)} bytes of {layer.consumed}")
        body, truncated, fault = layer.output, truncated or not layer.complete, layer.fault or fault
    return DecodedBody(body, truncated, fault)


def _remove(encoding: str, data: bytes, limit: int) -> _Layer:
    """Remove one encoding. Raises DecodeFailed if there is nothing in it."""
    magic = _MAGIC.get(encoding)
    if magic is not None and not magic(data):
        raise DecodeFailed(f"{encoding}: {_NOT_ENCODED}")
    try:
        layer = _DECODERS[encoding](data, limit)
        if layer.complete or len(layer.output) >= limit:
            return layer
        output = layer.output
    except _Broken as error:
        output = error.salvaged[:limit]
        if not output:
            raise DecodeFailed(f"{encoding}: {error}") from error
    if magic is None and _is_text(data):
        # Deflate and brotli have no mark at their beginning, and make some bytes of any text before they notice.
        raise DecodeFailed(f"{encoding}: {_NOT_ENCODED}")
    return _Layer(output, len(data), complete=False, fault=ResponseFault.BODY)


_NOT_ENCODED = "the body is not encoded at all"


def is_plain(body: bytes, encodings: tuple[str, ...]) -> bool:
    """Return whether a body that cannot be decoded is not encoded at all: it lacks the mark with which all data in the
    last known one of these encodings begins, or is a text."""
    magic = next((_MAGIC.get(encoding) for encoding in reversed(encodings) if encoding in _DECODERS), None)
    return _is_text(body) or (magic is not None and not magic(body))


_BINARY = bytes([*range(0x09), 0x0B, *range(0x0E, 0x1B), *range(0x1C, 0x20)])
"""Bytes that no text has: WHATWG MIME sniffing, section 3."""
_NOT_ASCII = bytes(range(0x80, 0x100))
_BYTE_ORDER_MARKS = (b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf")
_SNIFFED_BYTES = 1445
"""Beginning of a body that is looked at: WHATWG MIME sniffing, section 5.2."""


def _is_text(body: bytes) -> bool:
    """Return whether a body begins as a text and not as binary data (WHATWG MIME sniffing, section 7.2)."""
    begin = body[:_SNIFFED_BYTES]
    if begin.startswith(_BYTE_ORDER_MARKS):
        return True
    if begin.translate(None, _BINARY) != begin:
        return False
    # Encoded data that is very short may have no such byte, but is hardly ever of these.
    is_mostly_ascii = 2 * len(begin.translate(None, _NOT_ASCII)) >= len(begin)
    return is_mostly_ascii or begin.decode("utf-8", "ignore").encode() in (begin, begin[:-1], begin[:-2], begin[:-3])


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
        member, earlier = at, len(output)
        # A gzip file is a row of members, each compressed by itself. The input is passed in pieces, because zlib copies
        # everything after a member's end: a body of empty members would be copied once for each. The pieces grow,
        # because most bodies are one long member.
        piece_bytes = _FIRST_PIECE_BYTES
        while not inflater.eof and at < len(data) and len(output) <= limit:
            given = view[at : at + piece_bytes]
            try:
                output += inflater.decompress(given, limit + 1 - len(output))
            except zlib.error as exc:
                from gossamer.fetch.salvage import salvage_deflate  # imported late: hardly any body is damaged

                last = salvage_deflate(view[member:], _GZIP_FORMAT, limit + 1 - earlier)
                raise _Broken(exc, bytes(output[:earlier]) + last) from exc
            at += len(given) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
            piece_bytes = min(2 * piece_bytes, _LARGEST_PIECE_BYTES)
        # Bytes after the last member are not part of the body (RFC 1952, section 2.2).
        another_member = inflater.eof and data.startswith(_GZIP_MAGIC, at)
        if not another_member or len(output) >= limit:
            return _cut(bytes(output), at, limit, ended=inflater.eof and not another_member)


def _inflate(data: bytes, limit: int) -> _Layer:
    """Decode `deflate`, with or without the header of zlib."""
    # "deflate" means zlib's format (RFC 9110, section 8.4.1.2), but some servers send bare deflate data. Zlib's header
    # has the method 8, and is a multiple of 31 (RFC 1950, section 2.2).
    header = int.from_bytes(data[:2], "big")
    has_zlib_header = (header >> 8) & 0x0F == 8 and header % 31 == 0
    wbits = _ZLIB_FORMAT if has_zlib_header else _BARE_DEFLATE
    inflater = zlib.decompressobj(wbits=wbits)
    # One byte more than the limit distinguishes "just reached" from "exceeded"; and 0 would mean "no limit" to zlib.
    most = max(limit, 0) + 1
    try:
        output = inflater.decompress(data, most)
    except zlib.error as exc:
        from gossamer.fetch.salvage import salvage_deflate  # imported late, as above

        raise _Broken(exc, salvage_deflate(memoryview(data), wbits, most)) from exc
    return _cut(output, len(data) - len(inflater.unconsumed_tail), limit, ended=inflater.eof)


def _unbrotli(data: bytes, limit: int) -> _Layer:
    """Decode brotli."""
    decompressor = brotli.Decompressor()
    try:
        output = feed_brotli(decompressor, data, limit + 1)
        ended = decompressor.is_finished()
    except brotli.error as exc:
        from gossamer.fetch.salvage import salvage_brotli  # imported late, as above

        output, ended = salvage_brotli(memoryview(data), limit + 1, feed_brotli)
        if not ended:  # else the library refused only the bytes behind the end
            raise _Broken(exc, output) from exc
    # The library takes all its input at once and does not report how much it needed, so the ratio is underestimated.
    return _cut(output, len(data), limit, ended=ended)


def feed_brotli(decompressor: brotli.Decompressor, data: bytes | memoryview, most: int) -> bytes:
    """Return at most so many bytes of the output, at least one. Raises brotli.error."""
    output: bytes = decompressor.process(data, output_buffer_limit=most)
    while len(output) < most and not decompressor.is_finished() and not decompressor.can_accept_more_data():
        output += decompressor.process(b"", output_buffer_limit=most - len(output))
    return output


def _unzstd(data: bytes, limit: int) -> _Layer:
    """Decode zstd, of one or several frames."""
    frames_end, ended = _zstd_extent(data)
    frames = data[:frames_end]
    try:
        output = _open_zstd(frames).read(limit + 1)
    except zstandard.ZstdError as exc:
        from gossamer.fetch.salvage import salvage_zstd  # imported late, as above

        raise _Broken(exc, salvage_zstd(partial(_open_zstd, frames), limit + 1)) from exc
    return _cut(output, frames_end, limit, ended=ended)


def _open_zstd(data: bytes) -> zstandard.ZstdDecompressionReader:
    return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).stream_reader(data, read_across_frames=True)


def _zstd_extent(data: bytes) -> tuple[int, bool]:
    """Return the end of the frames at the beginning of `data`, and whether the last one is complete (RFC 8878, section
    3.1). The library reports neither an early end nor its position."""
    at, size = 0, len(data)
    for _ in range(_MAX_ZSTD_FRAMES):
        if at >= size or not _is_zstd(data, at):
            break
        end = _zstd_frame_end(data, at)
        if end > size:
            return size, False
        at = end
    else:
        return size, True  # more than any server sends
    return at, True


def _zstd_frame_end(data: bytes, at: int) -> int:
    """Return the end of the frame that begins here; beyond the end of `data`: it is not complete."""
    size = len(data)
    if at + 8 > size:
        return size + 1
    if not data.startswith(_ZSTD_MAGIC, at):  # a frame that is skipped
        return at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")
    flags = data[at + 4]
    is_single = flags >> 5 & 1
    at += 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3] + (is_single, 2, 4, 8)[flags >> 6]
    for _ in range(_MAX_ZSTD_BLOCKS):
        if at + 3 > size:
            return size + 1
        block = int.from_bytes(data[at : at + 3], "little")
        at += 3 + (1 if block >> 1 & 3 == _ZSTD_REPEATED else block >> 3)
        if block & 1:  # the last one
            return at + (4 if flags >> 2 & 1 else 0)  # a checksum
    return size


def _cut(output: bytes, consumed: int, limit: int, *, ended: bool) -> _Layer:
    """Cut the output at the limit. `ended`: the input reached its proper end."""
    fits = len(output) <= limit
    return _Layer(output if fits else output[:limit], consumed, complete=fits and ended)


def _is_gzip(data: bytes) -> bool:
    return data.startswith(_GZIP_MAGIC)


def _is_zstd(data: bytes, at: int = 0) -> bool:
    is_skipped = data.startswith(_ZSTD_SKIPPED_MAGIC, at + 1) and 0x50 <= data[at] <= 0x5F
    return is_skipped or data.startswith(_ZSTD_MAGIC, at)


_MAGIC: dict[str, Callable[[bytes], bool]] = {"gzip": _is_gzip, "x-gzip": _is_gzip, "zstd": _is_zstd}
"""By encoding: returns whether data begins as all data in it does. Other encodings have no such mark."""

_DECODERS: dict[str, Callable[[bytes, int], _Layer]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
"""Decoder of each encoding, by its name in lower case: takes the encoded bytes and the limit of the output in bytes. A
decoder that is removed leaves such bodies encoded, and then their links are not found."""
