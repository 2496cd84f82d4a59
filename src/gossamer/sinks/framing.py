"""Framing of batches in a file: readers see one stream, and writers find the end of the last whole unit.

A writer that is killed leaves a torn tail. The next writer must find where the whole units end, and must not trust
bytes that a page may have put into its own body. So it walks the units from a known start and never searches backwards
for a pattern of bytes (only in plain JSON Lines is a newline proof enough). ADR 0004 has the reasons.
"""

import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import zstandard

from gossamer.model.record import Output

_LENGTH = struct.Struct("<Q")


RECENT = 16 * 1024 * 1024
"""Bytes at the end of a file whose contents are checked when it is first opened. A power cut can leave the last batch
with its full length and zeros inside; earlier batches were flushed before it was begun. A larger value takes longer; of
a batch that is larger than this, only the end is checked."""

CHUNK = 64 * 1024
_ZSTD_LEVEL = 3
_GZIP_LEVEL = 3
"""Compression levels, free to change. Level 3 of gzip takes half the time of level 6 and a tenth more space."""


@dataclass(frozen=True, slots=True)
class Tail:
    """End of the whole units of a file."""

    end: int
    separator: bytes = b""
    """Bytes that must be written before the next batch."""


class Framing(Protocol):
    """One way to write units to a file. A unit is a group of whole lines, or one archive record."""

    def accepts(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes (a few, or all of it) may have this framing."""

    def pack(self, units: Sequence[bytes]) -> bytes:
        """Return the bytes to append for these units."""

    def count(self, fd: int, start: int, end: int) -> int:
        """Return the number of whole records in a part of a batch; 0 where parts of a batch cannot be read."""

    def tail(self, fd: int, start: int, size: int, *, verify: bool) -> Tail:
        """Return the end of the last whole unit between the offsets `start` (where a unit begins) and `size`.

        With `verify`, the contents of the last `RECENT` bytes are checked too, not only the units' lengths.
        """


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of files to which batches can be appended."""

    suffix: str
    framing: Callable[[], Framing]
    encode: Callable[[Sequence[Output]], list[bytes]]
    """Returns the units of a batch."""
    head: Callable[[], list[bytes]] = list
    """Returns the units that a new file begins with."""
    wants_wire: bool = False
    """As in `Sink.wants_wire`."""


def read_at(fd: int, offset: int, length: int) -> bytes:
    """Return `length` bytes from `offset`, fewer only where the file ends."""
    parts = []
    while length > 0 and (part := os.pread(fd, length, offset)):
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return b"".join(parts)


def chunks_at(fd: int, offset: int, end: int) -> Iterator[bytes]:
    """Yield the file from `offset` to `end` in chunks."""
    while offset < end and (part := os.pread(fd, min(CHUNK, end - offset), offset)):
        yield part
        offset += len(part)


# A skippable frame (RFC 8878, section 3.1.2) of 12 bytes: a signature and the length of the data frame that follows.
# Readers skip it.
_HEAD = struct.pack("<II", 0x184D2A5A, 12) + b"GSMR"
_PREFIX = len(_HEAD) + _LENGTH.size


class _MeasuredUnits:
    """Base of the framings whose units begin with a header that holds their length.

    Units of other programs have no such header; their ends are found by decompressing them.
    """

    _head: bytes
    """First bytes of a header; the length follows them."""
    _unmeasured: int
    """Bytes of a unit that its stored length does not include."""
    _shortest: int
    """Length of the shortest unit."""

    def _foreign_end(self, fd: int, offset: int, size: int) -> int:
        """Return the end of another program's unit at `offset`; -1 if it is torn or no unit."""
        raise NotImplementedError

    def _is_whole(self, fd: int, begin: int, end: int) -> bool:
        """Return whether the unit decompresses, with the right checksum, to exactly `end`."""
        raise NotImplementedError

    def count(self, fd: int, start: int, end: int) -> int:
        return 0

    def tail(self, fd: int, start: int, size: int, *, verify: bool) -> Tail:
        prefix = len(self._head) + _LENGTH.size
        offset = start
        recent: deque[tuple[int, int]] = deque()
        while offset < size:
            head = read_at(fd, offset, prefix)
            if head.startswith(self._head) and len(head) == prefix:
                end = offset + self._unmeasured + int(_LENGTH.unpack(head[len(self._head) :])[0])
                if end - offset < self._shortest or end > size:
                    break
                recent.append((offset, end))
            else:
                end = self._foreign_end(fd, offset, size)
                if end < 0:
                    break
            offset = end
            while len(recent) > 1 and recent[0][0] < offset - RECENT:
                recent.popleft()
        if verify:
            for begin, end in recent:
                if not self._is_whole(fd, begin, end):
                    return Tail(begin)
        return Tail(offset)


class ZstdFrames(_MeasuredUnits):
    """Framing of a zstd file: each unit is a frame."""

    _head, _unmeasured, _shortest = _HEAD, _PREFIX, _PREFIX

    def __init__(self) -> None:
        self._compress = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress

    def accepts(self, head: bytes) -> bool:
        return b"\x28\xb5\x2f\xfd".startswith(head[:4]) or b"\x2a\x4d\x18".startswith(head[1:4])

    def pack(self, units: Sequence[bytes]) -> bytes:
        parts: list[bytes] = []
        for unit in units:
            frame = self._compress(unit)
            parts += (_HEAD, _LENGTH.pack(len(frame)), frame)
        return b"".join(parts)

    def _foreign_end(self, fd: int, offset: int, size: int) -> int:
        return _foreign_end(fd, offset, size)

    def _is_whole(self, fd: int, begin: int, end: int) -> bool:
        return _frame_end(fd, begin + _PREFIX, end) == end


def _foreign_end(fd: int, offset: int, size: int) -> int:
    """Return the end of the frame at `offset` that another program wrote; -1 if it is torn or no frame."""
    head = read_at(fd, offset, 8)
    if len(head) == 8 and head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5:
        end = offset + 8 + int(struct.unpack("<I", head[4:])[0])
        return end if end <= size else -1
    return _frame_end(fd, offset, size)


def _frame_end(fd: int, offset: int, size: int) -> int:
    """Return the end of the data frame at `offset`; -1 if it is torn or its checksum is wrong."""
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


# Header of a gzip member (RFC 1952): magic, deflate, FEXTRA; no time; no hint; unknown system; 12 bytes of extra field:
# "GS", 8 bytes long, for the length of the member.
_MEMBERS_HEAD = b"\x1f\x8b\x08\x04" + b"\0\0\0\0" + b"\0\xff" + struct.pack("<H", 12) + b"GS" + struct.pack("<H", 8)
_TRAILER = struct.Struct("<II")
_OVERHEAD = len(_MEMBERS_HEAD) + _LENGTH.size + _TRAILER.size


class GzipMembers(_MeasuredUnits):
    """Framing of a gzip file: each unit is a member."""

    _head, _unmeasured, _shortest = _MEMBERS_HEAD, 0, _OVERHEAD

    def accepts(self, head: bytes) -> bool:
        return b"\x1f\x8b".startswith(head[:2])

    def pack(self, units: Sequence[bytes]) -> bytes:
        parts: list[bytes] = []
        for unit in units:
            deflate = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
            body = deflate.compress(unit) + deflate.flush()
            parts += (_MEMBERS_HEAD, _LENGTH.pack(len(body) + _OVERHEAD), body)
            parts.append(_TRAILER.pack(zlib.crc32(unit), len(unit) & 0xFFFFFFFF))
        return b"".join(parts)

    def _foreign_end(self, fd: int, offset: int, size: int) -> int:
        return _inflated_end(fd, offset, size)

    def _is_whole(self, fd: int, begin: int, end: int) -> bool:
        return _inflated_end(fd, begin, end) == end


def _inflated_end(fd: int, offset: int, size: int) -> int:
    """Return the end of the member at `offset`; -1 if it is torn or its checksum is wrong."""
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    position = offset
    try:
        for chunk in chunks_at(fd, offset, size):
            position += len(chunk)
            while chunk:
                inflate.decompress(chunk, 1 << 20)  # bounded, so that a decompression bomb takes little memory
                if inflate.eof:
                    return position - len(inflate.unused_data)
                chunk = inflate.unconsumed_tail
    except zlib.error:
        pass
    return -1


class PlainLines:
    """Framing of an uncompressed JSON Lines file."""

    def accepts(self, head: bytes) -> bool:
        return head.lstrip()[:1] in (b"", b"{")

    def pack(self, units: Sequence[bytes]) -> bytes:
        return b"".join(units)

    def count(self, fd: int, start: int, end: int) -> int:
        return sum(chunk.count(b"\n") for chunk in chunks_at(fd, start, end))

    def tail(self, fd: int, start: int, size: int, *, verify: bool) -> Tail:
        if verify:
            size = _first_nul(fd, max(start, size - RECENT), size)
        end = _after_last_newline(fd, start, size)
        # A whole record without its newline is the last line of another program, or of ours, torn at its last byte.
        if end < size and _is_json(read_at(fd, end, size - end)):
            return Tail(size, separator=b"\n")
        return Tail(end)


def _first_nul(fd: int, start: int, end: int) -> int:
    offset = start
    for chunk in chunks_at(fd, start, end):
        found = chunk.find(b"\0")
        if found >= 0:
            return offset + found
        offset += len(chunk)
    return end


def _after_last_newline(fd: int, start: int, end: int) -> int:
    while end > start:
        begin = max(start, end - CHUNK)
        found = read_at(fd, begin, end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return start


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True
