"""How a batch lies in a file, such that a reader sees one stream and a writer finds the end of the last whole unit.

A writer that is killed leaves a torn tail. Whoever writes next must find where the whole units end, without believing
anything that a page may have put into its own body: so the units are walked from a known start, never guessed
backwards from a pattern of bytes (only in plain JSON Lines is a newline proof enough). ADR 0004 has the reasons.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

RECENT = 16 * 1024 * 1024
"""Bytes at the end of a file whose contents are checked when it is first opened. A power cut can leave the last batch
with its full length and zeros inside; batches before it were flushed before the next one began."""

CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the whole part of a file ends, and what must come before the next batch."""

    end: int
    glue: bytes = b""


class Framing(Protocol):
    """One way to lay units (whole lines, or one archive record each) into a file."""

    def begins(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes (a few, or all there are) can be of this kind."""

    def pack(self, units: Sequence[bytes]) -> bytes:
        """The bytes to append for these units."""

    def count(self, fd: int, start: int, end: int) -> int:
        """Number of whole records in a part of a batch; 0 where a batch is whole or nothing, or does not tell."""

    def tail(self, fd: int, start: int, size: int, *, doubt: bool) -> Tail:
        """The end of the last whole unit between `start` (known to be whole) and `size`, both in bytes.

        With `doubt` the contents of the last `RECENT` bytes are verified too, not just their outline.
        """


def read_at(fd: int, offset: int, length: int) -> bytes:
    """Exactly `length` bytes from `offset`, or fewer where the file ends."""
    parts = []
    while length > 0 and (part := os.pread(fd, length, offset)):
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return b"".join(parts)


def chunks_at(fd: int, offset: int, end: int) -> Iterator[bytes]:
    """The file from `offset` to `end`, a chunk at a time."""
    while offset < end and (part := os.pread(fd, min(CHUNK, end - offset), offset)):
        yield part
        offset += len(part)
