"""Zstandard frames (RFC 8878): each unit is one with a checksum, after a skippable frame that says its length."""

import struct
from collections import deque
from collections.abc import Sequence

import zstandard

from gossamer.sinks.framing import RECENT, Tail, chunks_at, read_at

# A skippable frame of 12 bytes: our mark and the length of the data frame that follows. Readers pass over it.
_HEAD = struct.pack("<II", 0x184D2A5A, 12) + b"GSMR"
_LENGTH = struct.Struct("<Q")
_PREFIX = len(_HEAD) + _LENGTH.size


class Frames:
    """A zstd file of many frames. `level` as zstd's."""

    def __init__(self, level: int = 3) -> None:
        self._compress = zstandard.ZstdCompressor(level=level, write_checksum=True).compress

    def begins(self, head: bytes) -> bool:
        return b"\x28\xb5\x2f\xfd".startswith(head[:4]) or b"\x2a\x4d\x18".startswith(head[1:4])

    def pack(self, units: Sequence[bytes]) -> bytes:
        parts: list[bytes] = []
        for unit in units:
            frame = self._compress(unit)
            parts += (_HEAD, _LENGTH.pack(len(frame)), frame)
        return b"".join(parts)

    def count(self, fd: int, start: int, end: int) -> int:
        return 0

    def tail(self, fd: int, start: int, size: int, *, doubt: bool) -> Tail:
        offset = start
        recent: deque[tuple[int, int]] = deque()
        while offset < size:
            head = read_at(fd, offset, _PREFIX)
            if head.startswith(_HEAD) and len(head) == _PREFIX:
                end = offset + _PREFIX + int(_LENGTH.unpack(head[len(_HEAD) :])[0])
                if end > size:
                    break
                recent.append((offset, end))
            else:
                end = _foreign_end(fd, offset, size)
                if end < 0:
                    break
            offset = end
            while len(recent) > 1 and recent[0][0] < offset - RECENT:
                recent.popleft()
        if doubt:
            for begin, end in recent:
                if _frame_end(fd, begin + _PREFIX, end) != end:
                    return Tail(begin)
        return Tail(offset)


def _foreign_end(fd: int, offset: int, size: int) -> int:
    """Where the frame at `offset`, which another program wrote, ends; -1 if it is torn or no frame."""
    head = read_at(fd, offset, 8)
    if len(head) == 8 and head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5:
        end = offset + 8 + int(struct.unpack("<I", head[4:])[0])
        return end if end <= size else -1
    return _frame_end(fd, offset, size)


def _frame_end(fd: int, offset: int, size: int) -> int:
    """Where the data frame at `offset` ends; -1 if it is torn or its checksum is wrong."""
    decompress = zstandard.ZstdDecompressor().decompressobj()
    position = offset
    try:
        for chunk in chunks_at(fd, offset, size):
            position += len(chunk)
            decompress.decompress(chunk)
            if decompress.eof:
                return position - len(decompress.unused_data)
    except zstandard.ZstdError:
        pass
    return -1
