"""What an output's ending means: how records become bytes, and how the bytes lie in the file."""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gossamer.errors import BadInput
from gossamer.model.record import Output
from gossamer.sinks.framing import RECENT, Framing, GzipMembers, PlainLines, Tail, ZstdFrames, read_at
from gossamer.sinks.jsonl import json_units
from gossamer.sinks.warc import digest, info_units, warc_units

_HEAD_BYTES = 65_536
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_DIGEST = re.compile(rb"\r\nwarc-block-digest:[ \t]*(sha1:[A-Z2-7]+)[ \t]*\r\n", re.IGNORECASE)


class WarcRecords:
    """A plain WARC file: every unit is one record."""

    def begins(self, head: bytes) -> bool:
        return b"WARC/".startswith(head[:5])

    def pack(self, units: Sequence[bytes]) -> bytes:
        return b"".join(units)

    def count(self, fd: int, start: int, end: int) -> int:
        return 0

    def tail(self, fd: int, start: int, size: int, *, doubt: bool) -> Tail:
        offset = start
        recent: deque[int] = deque()
        while offset < size:
            end = _end(fd, offset, size)
            if end < 0:
                break
            recent.append(offset)
            offset = end
            while len(recent) > 1 and recent[0] < offset - RECENT:
                recent.popleft()
        if doubt:
            for begin in recent:
                if not _is_sound(fd, begin):
                    return Tail(begin)
        return Tail(offset)


def _head(fd: int, offset: int) -> tuple[bytes, int]:
    """The record's header with its last line break, and its length with the empty line; -1 where there is none."""
    text = read_at(fd, offset, 1024)
    if b"\r\n\r\n" not in text:
        text = read_at(fd, offset, _HEAD_BYTES)
    length = text.find(b"\r\n\r\n")
    return (text[: length + 2], length + 4) if text.startswith(b"WARC/") and length > 0 else (b"", -1)


def _end(fd: int, offset: int, size: int) -> int:
    """Where the record at `offset` ends; -1 if it is torn."""
    head, length = _head(fd, offset)
    found = _LENGTH.search(head)
    if found is None:
        return -1
    end = offset + length + int(found[1]) + 4
    return end if end <= size and read_at(fd, end - 4, 4) == b"\r\n\r\n" else -1


def _is_sound(fd: int, offset: int) -> bool:
    """Whether the block is what its digest says. One without a digest of the kind we write is believed."""
    head, length = _head(fd, offset)
    expected = _DIGEST.search(head)
    content = _LENGTH.search(head)
    if expected is None or content is None:
        return True
    return digest(read_at(fd, offset + length, int(content[1]))) == expected[1].decode().replace("SHA1", "sha1")


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One kind of file that batches can be appended to."""

    suffix: str
    framing: Callable[[], Framing]
    encode: Callable[[Sequence[Output]], list[bytes]]
    head: Callable[[], list[bytes]] = list
    """What a new file begins with."""
    wants_wire: bool = False


JSONL_ZST = FileFormat(".jsonl.zst", ZstdFrames, json_units)

KINDS = (
    FileFormat(".jsonl", PlainLines, json_units),
    FileFormat(".jsonl.gz", GzipMembers, json_units),
    JSONL_ZST,
    FileFormat(".warc", WarcRecords, warc_units, info_units, wants_wire=True),
    FileFormat(".warc.gz", GzipMembers, warc_units, info_units, wants_wire=True),
)

PARQUET = ".parquet"
"""Cannot be appended to: it waits in a spool, see `parquet.py`."""


def kind_of(path: str) -> FileFormat | None:
    """The kind a path or URL ends in; None for Parquet. `BadInput` names the known endings."""
    ending = path.lower()
    if ending.endswith(PARQUET):
        return None
    for kind in KINDS:
        if ending.endswith(kind.suffix):
            return kind
    known = " ".join([kind.suffix for kind in KINDS] + [PARQUET])
    raise BadInput(f"the output {path} has an unknown ending; known are {known}, and - for standard output")
