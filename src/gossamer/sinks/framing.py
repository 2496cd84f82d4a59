"""Framing of batches in a file: readers see one stream, and writers find the end of the last whole unit.

A writer that is killed leaves a torn tail. The next writer must find where the whole units end, and must not trust
bytes that a page may have put into its own body. So it walks the units from a known start and never searches backwards
for a pattern of bytes (only in plain JSON Lines is a newline proof enough). ADR 0004 has the reasons.

A framing writes units: a unit is a group of whole lines, or one archive record. Fixed: every reader of JSON Lines, gzip
or zstd must be able to read the whole file; and `tail` must never return less than what was flushed, because a writer
cuts off everything behind it.
"""

import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec
import zstandard

from gossamer.model.record import Output

_LENGTH = struct.Struct("<Q")  # of a unit, in its header

# Magic numbers: fixed by RFC 1952 and RFC 8878.
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE_MAGIC_REST = b"\x2a\x4d\x18"
"""Bytes 2 to 4 of the magic number of a skippable zstd frame. The first one varies from 0x50 to 0x5f."""
_SKIPPABLE_HEADER = struct.Struct("<4sI")
"""Header of a skippable zstd frame: its magic number, and the length of the rest. Fixed by RFC 8878."""

RECENT = 16 * 1024 * 1024
"""Bytes at the end of a file whose contents are checked when it is first opened. A power cut can leave the last batch
with its full length and zeros inside; earlier batches were flushed before it was begun. A larger value takes longer; of
a batch that is larger than this, only the end is checked."""

CHUNK = 64 * 1024
"""Bytes that are read at once. Larger reads take more memory, smaller ones more system calls."""
_INFLATED_BYTES = 1 << 20
"""Bytes that are decompressed at once, so that a decompression bomb takes little memory. More take that much memory for
each open file, fewer take longer."""
_ZSTD_LEVEL = 3
"""Compression level. Higher ones save space and take time."""
_GZIP_LEVEL = 3
"""Compression level. Level 3 takes half the time of level 6, and a tenth more space."""


class Tail(msgspec.Struct, frozen=True):
    """End of the whole units of a file."""

    end: int
    separator: bytes = b""
    """Bytes that must be written before the next batch."""


class Framing(Protocol):
    """One way to write units to a file. A unit is a group of whole lines, or one archive record."""

    def accepts(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes (a few, or all of it) may have this framing. An empty file
        may have any."""

    def pack(self, units: Sequence[bytes]) -> bytes:
        """Return the bytes to append for these units."""

    def count(self, fd: int, start: int, end: int) -> int:
        """Return the number of whole records in a part of a batch; 0 where parts of a batch cannot be read."""

    def tail(self, fd: int, start: int, size: int, *, verify: bool) -> Tail:
        """Return the end of the last whole unit of the file between the offsets `start` (where a unit begins) and
        `size`.

        With `verify`, the contents of the last `RECENT` bytes are checked too, not only the units' lengths.
        """


class FileFormat(msgspec.Struct, frozen=True):
    """A format of files to which batches can be appended."""

    suffix: str
    """Ending of the names of such files, for example `.jsonl.gz`."""
    framing: Callable[[], Framing]
    """Makes the format's framing."""
    encode: Callable[[Sequence[Output]], list[bytes]]
    """Returns the units of a batch."""
    head: Callable[[], list[bytes]] = list
    """Returns the units that a new file begins with; by default none."""
    wants_wire: bool = False
    """As in `Sink.wants_wire`."""
    wants_text: bool = True
    """As in `Sink.wants_text`."""


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


# Header before each zstd frame: a skippable frame (RFC 8878, section 3.1.2) with 12 bytes, a signature and the length
# of the data frame that follows. Readers skip it. Should stay: units with another header count as another program's,
# whose ends are only found by decompressing them.
_ZSTD_HEADER = struct.pack("<II", 0x184D2A5A, 12) + b"GSMR"
_ZSTD_HEADER_BYTES = len(_ZSTD_HEADER) + _LENGTH.size


class _MeasuredUnits:
    """Base of the framings whose units begin with a header that holds their length. Implements Framing in part.

    Units of other programs have no such header; their ends are found by decompressing them, which takes longer.
    """

    _header: bytes
    """First bytes of a header; the length follows them."""
    _unmeasured_bytes: int
    """Bytes of a unit that its stored length does not include."""
    _shortest_unit: int
    """Bytes of the shortest unit. A length below it is damaged, and 0 would be an endless loop."""

    def _foreign_end(self, fd: int, offset: int, size: int) -> int:
        """Return the end of another program's unit at `offset`; -1 if it is torn or no unit."""
        raise NotImplementedError

    def _is_whole(self, fd: int, begin: int, end: int) -> bool:
        """Return whether the unit decompresses, with the right checksum, to exactly `end`."""
        raise NotImplementedError

    def count(self, fd: int, start: int, end: int) -> int:
        return 0

    def tail(self, fd: int, start: int, size: int, *, verify: bool) -> Tail:
        header_bytes = len(self._header) + _LENGTH.size
        offset = start
        recent: deque[tuple[int, int]] = deque()  # begin and end of our units in the last RECENT bytes
        while offset < size:
            header = read_at(fd, offset, header_bytes)
            if header.startswith(self._header) and len(header) == header_bytes:  # our unit: its header has the length
                (length,) = _LENGTH.unpack(header[len(self._header) :])
                end = offset + self._unmeasured_bytes + int(length)
                if end - offset < self._shortest_unit or end > size:
                    break
                recent.append((offset, end))
            else:  # another program's unit, or the torn beginning of ours
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

    _header, _unmeasured_bytes, _shortest_unit = _ZSTD_HEADER, _ZSTD_HEADER_BYTES, _ZSTD_HEADER_BYTES

    def __init__(self) -> None:
        self._compress = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress

    def accepts(self, head: bytes) -> bool:
        magic = head[: len(ZSTD_MAGIC)]
        return ZSTD_MAGIC.startswith(magic) or ZSTD_SKIPPABLE_MAGIC_REST.startswith(magic[1:])

    def pack(self, units: Sequence[bytes]) -> bytes:
        parts: list[bytes] = []
        for unit in units:
            frame = self._compress(unit)
            parts += (_ZSTD_HEADER, _LENGTH.pack(len(frame)), frame)
        return b"".join(parts)

    def _foreign_end(self, fd: int, offset: int, size: int) -> int:
        head = read_at(fd, offset, _SKIPPABLE_HEADER.size)
        if len(head) == _SKIPPABLE_HEADER.size:
            magic, length = _SKIPPABLE_HEADER.unpack(head)
            if 0x50 <= magic[0] <= 0x5F and magic[1:] == ZSTD_SKIPPABLE_MAGIC_REST:
                end = offset + len(head) + int(length)
                return end if end <= size else -1
        return _data_frame_end(fd, offset, size)

    def _is_whole(self, fd: int, begin: int, end: int) -> bool:
        return _data_frame_end(fd, begin + _ZSTD_HEADER_BYTES, end) == end


def _data_frame_end(fd: int, offset: int, size: int) -> int:
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
# "GS", 8 bytes long, for the length of the member. Should stay, as above.
_GZIP_HEADER = GZIP_MAGIC + b"\x08\x04" + b"\0\0\0\0" + b"\0\xff" + struct.pack("<H", 12) + b"GS" + struct.pack("<H", 8)
_GZIP_TRAILER = struct.Struct("<II")  # checksum and length of the contents: fixed by RFC 1952
_GZIP_OVERHEAD = len(_GZIP_HEADER) + _LENGTH.size + _GZIP_TRAILER.size


class GzipMembers(_MeasuredUnits):
    """Framing of a gzip file: each unit is a member."""

    _header, _unmeasured_bytes, _shortest_unit = _GZIP_HEADER, 0, _GZIP_OVERHEAD

    def accepts(self, head: bytes) -> bool:
        return GZIP_MAGIC.startswith(head[: len(GZIP_MAGIC)])

    def pack(self, units: Sequence[bytes]) -> bytes:
        parts: list[bytes] = []
        for unit in units:
            deflate = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
            body = deflate.compress(unit) + deflate.flush()
            parts += (_GZIP_HEADER, _LENGTH.pack(len(body) + _GZIP_OVERHEAD), body)
            parts.append(_GZIP_TRAILER.pack(zlib.crc32(unit), len(unit) & 0xFFFFFFFF))
        return b"".join(parts)

    def _foreign_end(self, fd: int, offset: int, size: int) -> int:
        return _member_end(fd, offset, size)

    def _is_whole(self, fd: int, begin: int, end: int) -> bool:
        return _member_end(fd, begin, end) == end


def _member_end(fd: int, offset: int, size: int) -> int:
    """Return the end of the member at `offset`; -1 if it is torn or its checksum is wrong."""
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)  # 16: with gzip's header and trailer
    position = offset
    try:
        for chunk in chunks_at(fd, offset, size):
            position += len(chunk)
            while chunk:
                inflate.decompress(chunk, _INFLATED_BYTES)
                if inflate.eof:
                    return position - len(inflate.unused_data)
                chunk = inflate.unconsumed_tail
    except zlib.error:
        pass
    return -1


class PlainLines:
    """Framing of an uncompressed JSON Lines file: a unit ends with a newline, which no record has inside."""

    def accepts(self, head: bytes) -> bool:
        return head.lstrip()[:1] in (b"", b"{")

    def pack(self, units: Sequence[bytes]) -> bytes:
        return b"".join(units)

    def count(self, fd: int, start: int, end: int) -> int:
        return sum(chunk.count(b"\n") for chunk in chunks_at(fd, start, end))

    def tail(self, fd: int, start: int, size: int, *, verify: bool) -> Tail:
        if verify:  # a record has no NUL, so zeros are what a power cut left
            size = first_nul(fd, max(start, size - RECENT), size)
        end = _after_last_newline(fd, start, size)
        # A whole record without its newline is the last line of another program, or of ours, torn at its last byte.
        if end < size and _is_json(read_at(fd, end, size - end)):
            return Tail(size, separator=b"\n")
        return Tail(end)


def first_nul(fd: int, start: int, end: int) -> int:
    """Return the offset of the first NUL; `end` if there is none."""
    offset = start
    for chunk in chunks_at(fd, start, end):
        found = chunk.find(b"\0")
        if found >= 0:
            return offset + found
        offset += len(chunk)
    return end


def _after_last_newline(fd: int, start: int, end: int) -> int:
    """Return the offset behind the last newline; `start` if there is none."""
    while end > start:
        begin = max(start, end - CHUNK)
        found = read_at(fd, begin, end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return start


def _is_json(text: bytes) -> bool:
    """Return whether a line is complete."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True
