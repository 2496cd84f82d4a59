"""Bodies that are small on the wire and enormous when they are unpacked, or costly to unpack.

Cases may be added freely; they are built once, when they are first needed, in a second or two together. They must stay
above every limit of a crawler (its largest body, its memory), or a case proves nothing.
"""

import gzip
import struct
import zlib
from collections.abc import Callable
from functools import cache

from gossamer.fakeweb.answer import Answer, Send
from gossamer_fakeweb.hostile.case import Asked, Case, Cases

MIB = 1024 * 1024
_PAGE = b"<p>" + b"boom " * 200
"""Harmless page inside bodies whose packing is the attack."""
_STORED = 30_000
"""Bytes in each block of the endless stream: a multiple of 6, at most 65,535 (RFC 1951, 3.2.4)."""


def repeated(mebibytes: int, wbits: int, filling: bytes = b"\0") -> bytes:
    """Return so many MiB of the byte `filling`, deflated. One MiB is packed and repeated, so a gigabyte takes no time.

    `wbits`: format, as in zlib: 31 gzip, 15 zlib, -15 bare deflate.
    """
    packer = zlib.compressobj(9, wbits=-15)
    head = packer.compress(filling * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    raw = head * mebibytes + packer.flush()
    if wbits == 31:
        # The checksum is wrong, which is noticed only after everything is unpacked.
        return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + raw + struct.pack("<II", 0, mebibytes * MIB % 2**32)
    return raw if wbits < 0 else b"\x78\x9c" + raw + bytes(4)


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def _brotli(body: bytes) -> bytes:
    import brotli

    packed: bytes = brotli.compress(body, quality=1)
    return packed


def _zstd(body: bytes) -> bytes:
    import zstandard

    return zstandard.compress(body, 3)


def _zstd_window() -> bytes:
    """Return a frame that asks for a window of 3.75 TiB."""
    return b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x01\x00\x00" + _zstd(_PAGE)


def _zstd_content_size() -> bytes:
    """Return a frame that announces an exabyte and contains one byte."""
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**60) + struct.pack("<I", 1 << 3 | 1)[:3] + b"x"


def _packed(about: str, encoding: str, make: Callable[[], bytes], *more: tuple[str, str]) -> Case:
    """Return a case with the body that `make` returns, under this Content-Encoding. `more`: further headers."""
    body = cache(make)

    def answer(asked: Asked) -> Answer:
        headers = (("Content-Type", "text/html"), ("Content-Encoding", encoding), *more)
        return Answer(headers=headers, body=body())

    return Case(about, answer)


def _endless(asked: Asked) -> Answer:
    """Return a gzip stream of stored blocks (uncompressed ones) without a last one."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n"
    stored = b"\0" + struct.pack("<HH", _STORED, _STORED ^ 0xFFFF) + b"boom!\n" * (_STORED // 6)
    return Answer(script=(Send(head + b"\x1f\x8b\x08\0\0\0\0\0\0\xff"), Send(stored, times=0)))


def _transferred(asked: Asked) -> Answer:
    """Return a bomb that is packed by Transfer-Encoding instead of Content-Encoding."""
    bomb = repeated(1024, 31)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
    return Answer(script=(Send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(bomb), bomb)),))


CASES: Cases = {
    "gzip-bomb": _packed("2 GB in gzip", "gzip", lambda: repeated(2048, 31)),
    "gzip-members": _packed("1 GB in 1,000 gzip members", "gzip", lambda: _gzip(bytes(MIB)) * 1000),
    "gzip-empty-members": _packed("250,000 empty gzip members", "gzip", lambda: _gzip(b"") * 250_000),
    "gzip-twice": _packed("4 GB in gzip in gzip", "gzip, gzip", lambda: _gzip(repeated(4096, 31))),
    "gzip-thrice": _packed("gzip in gzip in gzip", "gzip, gzip, gzip", lambda: _gzip(_gzip(repeated(4096, 31)))),
    "gzip-ten-times": _packed("ten layers", ", ".join(["gzip"] * 10), lambda: _gzip(_PAGE)),
    "gzip-many-headers": _packed(
        "400 Content-Encoding headers", "gzip", lambda: _gzip(_PAGE), *[("Content-Encoding", "gzip")] * 400
    ),
    "gzip-endless": Case("a gzip stream without end", _endless),
    "gzip-transfer": Case("a bomb as a transfer coding", _transferred),
    "gzip-not": _packed("said to be gzip and is not", "gzip", lambda: _PAGE),
    "gzip-cut": _packed("gzip cut off", "gzip", lambda: repeated(1, 31)[:600]),
    "gzip-in-brotli": _packed("gzip in brotli", "gzip, br", lambda: _brotli(repeated(1024, 31))),
    "gzip-in-zstd": _packed("gzip in zstd", "gzip, zstd", lambda: _zstd(repeated(1024, 31))),
    "gzip-as-brotli": _packed("said to be brotli and is gzip", "br", lambda: _gzip(_PAGE)),
    "deflate-bomb": _packed("2 GB in deflate", "deflate", lambda: repeated(2048, 15)),
    "deflate-raw-bomb": _packed("2 GB in bare deflate", "deflate", lambda: repeated(2048, -15)),
    "deflate-empty": _packed("a million empty blocks", "deflate", lambda: b"\x78\x9c" + b"\0\0\0\xff\xff" * 1_000_000),
    "brotli-bomb": _packed("64 MB in brotli", "br", lambda: _brotli(bytes(64 * MIB))),
    "brotli-twice": _packed("64 MB in brotli in brotli", "br, br", lambda: _brotli(_brotli(bytes(64 * MIB)))),
    "zstd-bomb": _packed("512 MB in zstd", "zstd", lambda: _zstd(bytes(16 * MIB)) * 32),
    "zstd-twice": _packed("512 MB in zstd in zstd", "zstd, zstd", lambda: _zstd(_zstd(bytes(16 * MIB)) * 32)),
    "zstd-window": _packed("a zstd window of terabytes", "zstd", _zstd_window),
    "zstd-size": _packed("a zstd frame that announces an exabyte", "zstd", _zstd_content_size),
    "zstd-skippable": _packed("600,000 zstd frames to skip", "zstd", lambda: b"\x50\x2a\x4d\x18\0\0\0\0" * 600_000),
}
