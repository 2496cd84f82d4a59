"""Decodes a complete body in pieces, so that a large one is never in memory as a whole.

`decode.py` does the same in one step, with its library's output in memory, and repairs damaged data. Here the reader of
the pieces keeps what came before the damage.
"""

import zlib
from collections.abc import Callable, Iterator

import brotli
import zstandard

from gossamer.errors import DecodeBomb, DecodeFailed
from gossamer.fetch.decode import ZSTD_WINDOW_BYTES, decode, feed_brotli
from gossamer.fetch.exchange import ResponseLimits
from gossamer.fetch.salvage import salvage_brotli, salvage_zstd
from gossamer.net.inflating import inflate_piece

_PIECE_BYTES = 64 * 1024
_HELD_BACK_BYTES = 1024 * 1024
"""Output that brotli and zstd may hold back when they fail. Less loses it."""
_GZIP_START = b"\x1f\x8b"  # RFC 1952, section 2.3.1
_ZSTD_START = b"\x28\xb5\x2f\xfd"  # RFC 8878, section 3.1.1
# Formats of zlib's `wbits` argument: fixed by zlib.
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_BARE_DEFLATE = -zlib.MAX_WBITS

_MAX_RATIO = 200
"""Largest ratio of decoded to sent bytes beyond `_FREE_BYTES`. Must stay well above 50, which large lists of URLs
reach."""
_FREE_BYTES = 2 * 1024 * 1024


def decoded_pieces(wire: bytes, encodings: tuple[str, ...], limits: ResponseLimits) -> Iterator[bytes]:
    """Yield a body without its `encodings` (see `decode`) in pieces of about 64 KiB. `limits` hold for several
    encodings on top of each other, which are decoded in one step.

    Raises DecodeFailed where the data are damaged or end early, and DecodeBomb where they expand too much.
    """
    known = [encoding for encoding in encodings if encoding in _PIECES]
    if len(known) > 1:
        wire, known = decode(wire, encodings, limits).body, []
    size = 0
    for piece in _PIECES[known[0]](wire) if known and wire else _slices(wire):
        size += len(piece)
        if size > max(_FREE_BYTES, _MAX_RATIO * len(wire)):
            raise DecodeBomb(f"{known[0]} made {size} bytes of {len(wire)}")
        yield piece


def _slices(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), _PIECE_BYTES):
        yield data[at : at + _PIECE_BYTES]


def _gunzip(data: bytes) -> Iterator[bytes]:
    """Decode gzip, member by member. Data that are not gzip are taken as they are."""
    if not data.startswith(_GZIP_START):
        yield from _slices(data)
        return
    view, at = memoryview(data), 0
    while data.startswith(_GZIP_START, at):
        inflater = zlib.decompressobj(wbits=_GZIP_FORMAT)
        given_bytes = 1024  # small at first, because zlib copies the rest in which a member ends
        while not inflater.eof:
            given = view[at : at + given_bytes]
            piece, error = inflate_piece(inflater, given, _PIECE_BYTES)
            if error is not None:
                yield piece
                raise DecodeFailed(f"gzip: {error}")
            at += len(given) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
            given_bytes = min(2 * given_bytes, _PIECE_BYTES)
            if piece:
                yield piece
            elif not given and not inflater.eof:
                raise DecodeFailed("gzip: it ends early")


def _inflate(data: bytes) -> Iterator[bytes]:
    """Decode `deflate`, with or without the header of zlib (see `decode.py`)."""
    header = int.from_bytes(data[:2], "big")
    has_zlib_header = (header >> 8) & 0x0F == 8 and header % 31 == 0
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS if has_zlib_header else _BARE_DEFLATE)
    rest: bytes | memoryview = memoryview(data)
    while not inflater.eof:
        given, rest = rest[:_PIECE_BYTES], rest[_PIECE_BYTES:]
        piece, error = inflate_piece(inflater, given, _PIECE_BYTES)
        while piece:
            yield piece
            if error is not None:
                break
            piece, error = inflate_piece(inflater, inflater.unconsumed_tail, _PIECE_BYTES)
        if error is not None:
            raise DecodeFailed(f"deflate: {error}")
        if not given and not inflater.eof:
            raise DecodeFailed("deflate: it ends early")


def _unbrotli(data: bytes) -> Iterator[bytes]:
    """Decode brotli."""
    decompressor = brotli.Decompressor()
    made = 0
    try:
        for given in _slices(data):
            piece = decompressor.process(given, output_buffer_limit=_PIECE_BYTES)
            while piece:
                made += len(piece)
                yield piece
                # It may hold output although it accepts more data.
                piece = (
                    b"" if decompressor.is_finished() else decompressor.process(b"", output_buffer_limit=_PIECE_BYTES)
                )
            if decompressor.is_finished():
                return
    except brotli.error as exc:
        yield salvage_brotli(memoryview(data), made + _HELD_BACK_BYTES, feed_brotli)[0][made:]
        raise DecodeFailed(f"br: {exc}") from exc
    raise DecodeFailed("br: it ends early")


def _unzstd(data: bytes) -> Iterator[bytes]:
    """Decode zstd, of one or several frames. Data that are not zstd are taken as they are."""
    if not data.startswith(_ZSTD_START):
        yield from _slices(data)
        return

    def opened() -> zstandard.ZstdDecompressionReader:
        return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).stream_reader(
            data, read_across_frames=True
        )

    reader, made = opened(), 0
    try:
        while piece := reader.read(_PIECE_BYTES):
            made += len(piece)
            yield piece
    except zstandard.ZstdError as exc:
        yield salvage_zstd(opened, made + _HELD_BACK_BYTES)[made:]
        raise DecodeFailed(f"zstd: {exc}") from exc


_PIECES: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
"""Decoder of each encoding, by its name in lower case: those of `decode.py`."""
