"""Gzip members (RFC 1952): each unit is one and says its own length, so that a walk over them need not inflate them."""

import struct
import zlib
from collections import deque
from collections.abc import Sequence

from gossamer.sinks.framing import RECENT, Tail, chunks_at, read_at

# Magic, deflate, FEXTRA; no time; no hint; unknown system; 12 bytes of extra field: "GS", 8 bytes long.
_HEAD = b"\x1f\x8b\x08\x04" + b"\0\0\0\0" + b"\0\xff" + struct.pack("<H", 12) + b"GS" + struct.pack("<H", 8)
_LENGTH = struct.Struct("<Q")
_TRAILER = struct.Struct("<II")
_OVERHEAD = len(_HEAD) + _LENGTH.size + _TRAILER.size


class Members:
    """A gzip file of many members. `level` as zlib's, 1 (fast) to 9; 3 takes half the time of 6 for a tenth more."""

    def __init__(self, level: int = 3) -> None:
        self.level = level

    def begins(self, head: bytes) -> bool:
        return b"\x1f\x8b".startswith(head[:2])

    def pack(self, units: Sequence[bytes]) -> bytes:
        parts: list[bytes] = []
        for unit in units:
            deflate = zlib.compressobj(self.level, zlib.DEFLATED, -zlib.MAX_WBITS)
            body = deflate.compress(unit) + deflate.flush()
            parts += (_HEAD, _LENGTH.pack(len(body) + _OVERHEAD), body)
            parts.append(_TRAILER.pack(zlib.crc32(unit), len(unit) & 0xFFFFFFFF))
        return b"".join(parts)

    def count(self, fd: int, start: int, end: int) -> int:
        return 0

    def tail(self, fd: int, start: int, size: int, *, doubt: bool) -> Tail:
        offset = start
        recent: deque[tuple[int, int]] = deque()
        while offset < size:
            head = read_at(fd, offset, len(_HEAD) + _LENGTH.size)
            if head.startswith(_HEAD) and len(head) == len(_HEAD) + _LENGTH.size:
                end = offset + int(_LENGTH.unpack(head[len(_HEAD) :])[0])
                if end - offset < _OVERHEAD or end > size:
                    break
                recent.append((offset, end))
            else:
                # Another program's member: only inflating it tells where it ends.
                end = _inflated_end(fd, offset, size)
                if end < 0:
                    break
            offset = end
            while len(recent) > 1 and recent[0][0] < offset - RECENT:
                recent.popleft()
        if doubt:
            for begin, end in recent:
                if _inflated_end(fd, begin, end) != end:
                    return Tail(begin)
        return Tail(offset)


def _inflated_end(fd: int, offset: int, size: int) -> int:
    """Where the member at `offset` ends; -1 if it is torn or its checksum is wrong."""
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    position = offset
    try:
        for chunk in chunks_at(fd, offset, size):
            position += len(chunk)
            while chunk:
                inflate.decompress(chunk, 1 << 20)  # bounded, so that a bomb in somebody's file stays small
                if inflate.eof:
                    return position - len(inflate.unused_data)
                chunk = inflate.unconsumed_tail
    except zlib.error:
        pass
    return -1
