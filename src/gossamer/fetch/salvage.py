"""Output of damaged compressed data, up to the damage.

A library that fails returns nothing of the piece in which it fails. So the data is decoded once more, in pieces up to
the one with the damage, and that one byte by byte.
"""

import zlib
from collections.abc import Callable
from typing import Protocol

import brotli
import zstandard

_PIECE_BYTES = 4096
_ZSTD_OUTPUT_BYTES = 64 * 1024
"""Pieces of zstd's output, in place of pieces of the data: it makes up to 128 KiB of a few bytes."""


def salvage_deflate(data: memoryview, wbits: int, most: int) -> bytes:
    """Return at most so many bytes of one gzip member, or of deflate data. `wbits`: format, as for zlib."""
    return _salvage(lambda: _Inflater(wbits), data, most)[0]


FeedBrotli = Callable[[brotli.Decompressor, memoryview, int], bytes]
"""Gives data to a decompressor, and returns at most so many bytes of the output."""


def salvage_brotli(data: memoryview, most: int, feed: FeedBrotli) -> tuple[bytes, bool]:
    """Return at most so many bytes of brotli data, and whether its proper end came before the damage."""
    return _salvage(lambda: _Unbrotli(feed), data, most)


def salvage_zstd(open_data: Callable[[], zstandard.ZstdDecompressionReader], most: int) -> bytes:
    """Return at most so many bytes of zstd data. `open_data` opens it at its beginning."""
    output = bytearray()
    for piece_bytes in (_ZSTD_OUTPUT_BYTES, 1):
        reader = open_data()
        output = bytearray(reader.read(len(output))) if output else output
        try:
            while len(output) < most and (piece := reader.read(min(piece_bytes, most - len(output)))):
                output += piece
        except zstandard.ZstdError:
            pass
    return bytes(output)


class _Decoder(Protocol):
    has_ended: bool
    """True: the data has reached its proper end."""

    def feed(self, data: memoryview, most: int) -> bytes:
        """Return at most so many bytes of the output, at least one. Raises the library's error."""


class _Inflater:
    has_ended = False

    def __init__(self, wbits: int) -> None:
        self._inflater = zlib.decompressobj(wbits=wbits)

    def feed(self, data: memoryview, most: int) -> bytes:
        output = self._inflater.decompress(data, most)
        self.has_ended = self._inflater.eof
        return output


class _Unbrotli:
    has_ended = False

    def __init__(self, feed: FeedBrotli) -> None:
        self._feed = feed
        self._decompressor = brotli.Decompressor()

    def feed(self, data: memoryview, most: int) -> bytes:
        output = self._feed(self._decompressor, data, most)
        self.has_ended = self._decompressor.is_finished()
        return output


def _salvage(new_decoder: Callable[[], _Decoder], data: memoryview, most: int) -> tuple[bytes, bool]:
    """Return the output of damaged data, at most so many bytes, and whether its proper end came before the damage."""
    _, good = _feed(new_decoder(), data, 0, _PIECE_BYTES, most)
    decoder = new_decoder()
    output, _ = _feed(decoder, data[:good], 0, _PIECE_BYTES, most)
    rest, _ = _feed(decoder, data, good, 1, most - len(output))
    return output + rest, decoder.has_ended


def _feed(decoder: _Decoder, data: memoryview, at: int, piece_bytes: int, most: int) -> tuple[bytes, int]:
    """Feed data to a decoder in pieces from this position, until it fails, ends, or has made so many bytes. Return the
    output, and the position of the piece in which it failed."""
    output = bytearray()
    while at < len(data) and len(output) < most and not decoder.has_ended:
        try:
            output += decoder.feed(data[at : at + piece_bytes], most - len(output))
        except (zlib.error, brotli.error):
            break
        at += piece_bytes
    return bytes(output), min(at, len(data))
