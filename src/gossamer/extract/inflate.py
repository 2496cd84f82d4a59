"""Gzip files (a sitemap that is itself a .gz), piece by piece and within limits."""

import zlib
from collections.abc import Iterator

MAX_BYTES = 50 * 1024 * 1024
"""What a sitemap may be when unpacked (https://www.sitemaps.org/protocol.html)."""

MAX_RATIO = 200
"""Unpacked by packed size, above the first MiB. Sitemaps reach about 50."""

_FREE_BYTES = 1024 * 1024
_PIECE = 64 * 1024
_FIRST_PIECE = 1024
_MAGIC = b"\x1f\x8b"


def is_gzip(body: bytes) -> bool:
    """Whether the body begins as a gzip file does (RFC 1952)."""
    return body.startswith(_MAGIC)


def inflate(body: bytes, *, max_bytes: int = MAX_BYTES, max_ratio: int = MAX_RATIO) -> Iterator[bytes]:
    """The unpacked content of all members, in pieces of at most 64 KiB.

    Ends without an error where the file is broken or a limit is reached: what was unpacked until then counts. At most
    one piece more than a limit is given, so a reader that counts sees that the limit was passed.
    """
    limit = min(max_bytes, max(_FREE_BYTES, max_ratio * len(body)))
    size = 0
    view, at = memoryview(body), 0
    while body.startswith(_MAGIC, at) and size <= limit:
        member = zlib.decompressobj(wbits=31)
        given_bytes = _FIRST_PIECE  # growing: zlib copies what is behind a member's end, and members may be many
        while not member.eof and size <= limit:
            given = view[at : at + given_bytes]
            try:
                piece = member.decompress(given, _PIECE)
            except zlib.error:
                return
            at += len(given) - len(member.unused_data) - len(member.unconsumed_tail)
            given_bytes = min(2 * given_bytes, _PIECE)
            if not piece and not given:
                return
            size += len(piece)
            if piece:
                yield piece
