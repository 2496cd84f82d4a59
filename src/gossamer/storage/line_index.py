"""Index of the lines in a part of a file: where lines begin, at intervals. Pure: no I/O.

With it a reader finds line 900,000 of a million without reading what is before it. An entry is a pair: an offset at
which a line begins, and the number of ends of lines before that offset. Fixed: the form of an entry, which is
stored.
"""

from collections.abc import Sequence
from typing import Final

INTERVAL_BYTES: Final = 128 * 1024
"""Bytes between two entries. A reader of one line reads up to as many bytes."""


def index_lines(content: bytes) -> tuple[int, list[tuple[int, int]]]:
    """Return the number of ends of lines in a part of a file, and the entries, with offsets from its begin."""
    entries: list[tuple[int, int]] = []
    total = 0
    for start in range(0, len(content), INTERVAL_BYTES):
        stop = start + INTERVAL_BYTES
        found = content.count(b"\n", start, stop)
        if found:
            total += found
            entries.append((content.rfind(b"\n", start, stop) + 1, total))
    return total, entries


def join_indexes(
    parts: Sequence[tuple[int, int, Sequence[Sequence[int]]]],
) -> list[tuple[int, int]]:
    """Return the index of parts that follow each other, each given as its length, its number of lines, its index."""
    joined: list[tuple[int, int]] = []
    length = lines = 0
    for part_length, part_lines, entries in parts:
        for offset, count in entries:
            place = length + offset
            # Small parts have an entry each; one for each interval is enough.
            if len(joined) > 1 and place - joined[-2][0] < INTERVAL_BYTES:
                joined.pop()
            joined.append((place, lines + count))
        length, lines = length + part_length, lines + part_lines
    return joined


def entry_before(entries: Sequence[Sequence[int]], line: int) -> tuple[int, int] | None:
    """Return the last entry at or before the begin of a line, numbered from 0. None: there is none."""
    found = None
    for offset, count in entries:
        if count > line:
            break
        found = (offset, count)
    return found
