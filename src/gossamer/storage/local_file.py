"""Reads a local file that may grow meanwhile, and finds its lines by number.

The file stays open, so that its deletion cuts no reader off. The index of its lines is made when the first line is
asked for by number, and is kept in memory for the next readers: a few KB for each of the files that were read last. The
methods wait for the disk: call them in a thread.
"""

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from pathlib import Path
from typing import Final

from gossamer.storage.line_index import index_lines

_BLOCK_BYTES: Final = 1024 * 1024
"""Bytes that are indexed at a time."""
_MAX_ENTRIES: Final = 4096
"""Maximum number of entries of an index. When there are more, every second one is dropped."""
_MAX_INDEXES: Final = 64
"""Files whose indexes are kept."""


class LocalFile:
    """An open file."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError, or another OSError."""
        self._descriptor = os.open(path, os.O_RDONLY)
        self._path = path

    def length(self) -> int:
        """Return the number of bytes that are there now."""
        return os.fstat(self._descriptor).st_size

    def modified_at(self) -> float:
        """Return the time of the last change, in seconds since 1970."""
        return os.fstat(self._descriptor).st_mtime

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`, fewer if the file ends before."""
        parts: list[bytes] = []
        while start < stop and (part := os.pread(self._descriptor, stop - start, start)):
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def near_line(self, line: int) -> tuple[int, int]:
        """Return an offset at or before the start of line `line` (from 0), and the number of line ends before that
        offset. If this number is `line`, the line starts at the offset."""
        found = os.fstat(self._descriptor)
        return _index_of((str(self._path), found.st_dev, found.st_ino)).near_line(self, line)

    def close(self) -> None:
        """Close the file. May be repeated."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _GrowingIndex:
    """Index of the lines of a file that only grows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._offsets = [0]
        self._counts = [0]
        self._end = 0
        """Offset up to which the file is indexed."""
        self._lines = 0
        """Number of line ends before `_end`."""
        self._interval = 1
        """Minimum number of bytes between two entries."""

    def near_line(self, file: LocalFile, line: int) -> tuple[int, int]:
        """Do the work of `LocalFile.near_line`."""
        with self._lock:
            if file.length() < self._end:  # the file was truncated
                self._reset()
            while self._lines < line and (content := file.read(self._end, self._end + _BLOCK_BYTES)):
                self._extend(content)
            found = bisect_right(self._counts, line) - 1
            return self._offsets[found], self._counts[found]

    def _extend(self, content: bytes) -> None:
        lines, entries = index_lines(content)
        for offset, count in entries:
            if self._end + offset - self._offsets[-1] >= self._interval:
                self._offsets.append(self._end + offset)
                self._counts.append(self._lines + count)
        self._end += len(content)
        self._lines += lines
        if len(self._offsets) > _MAX_ENTRIES:
            self._offsets, self._counts = self._offsets[::2], self._counts[::2]
            self._interval = max(2 * self._interval, self._offsets[1] - self._offsets[0])


_INDEXES: "OrderedDict[tuple[str, int, int], _GrowingIndex]" = OrderedDict()
_INDEXES_LOCK: Final = threading.Lock()


def _index_of(key: tuple[str, int, int]) -> _GrowingIndex:
    with _INDEXES_LOCK:
        found = _INDEXES.setdefault(key, _GrowingIndex())
        _INDEXES.move_to_end(key)
        while len(_INDEXES) > _MAX_INDEXES:
            _INDEXES.popitem(last=False)
        return found
