"""Gzip files (a sitemap that is itself a .gz), piece by piece and within limits."""

import zlib
from collections.abc import Iterator

MAX_BYTES = 50 * 1024 * 1024
"""What a sitemap may be when unpacked (https://www.sitemaps.org/protocol.html)."""

MAX_RATIO = 200
"""Unpacked by packed size, above the first MiB. Sitemaps reach about 50."""

_FREE_BYTES = 1024 * 1024
_PIECE = 64 * 1024


def is_gzip(body: bytes) -> bool:
    """Whether the body begins as a gzip file does (RFC 1952)."""
    return body.startswith(b"\x1f\x8b")


def inflate(body: bytes, *, max_bytes: int = MAX_BYTES, max_ratio: int = MAX_RATIO) -> Iterator[bytes]:
    """The unpacked content of all members, in pieces of at most 64 KiB.

    Ends without an error where the file is broken or a limit is reached: what was unpacked until then counts. At most
    one piece more than a limit is given, so a reader that counts sees that the limit was passed.
    """
    limit = min(max_bytes, max(_FREE_BYTES, max_ratio * len(body)))
    size = 0
    rest = body
    while is_gzip(rest) and size <= limit:
        member = zlib.decompressobj(wbits=31)
        while not member.eof and size <= limit:
            try:
                piece = member.decompress(rest, _PIECE)
            except zlib.error:
                return
            rest = member.unused_data if member.eof else member.unconsumed_tail
            if not piece and not rest:
                return
            size += len(piece)
            if piece:
                yield piece
