"""Reads the items of a job from its file of JSON lines: by cursor, by number, and through conditions.

The number of an item is that of its line, from 0. A job may be running: a line that is not complete yet is left out.
The memory needed does not depend on the number of items. Waits for the disk or the network: call it in a thread. Fixed:
that an item keeps its number, which is part of addresses.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from gossamer.storage.sql.storable import storable
from gossamer_platform.manager.files import FileKind, JobFiles
from gossamer_platform.state.jobs import Job
from gossamer_platform.v1.item_filter import ItemFilter

_BLOCK_BYTES: Final = 256 * 1024
"""Bytes that are read at a time."""
_FIRST_BYTES: Final = 32 * 1024
"""Bytes that are read first, for a short page."""
_MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Longest line; a longer one is left out as if it were no JSON. One is held in memory."""
_PAGE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of lines after which a page ends although it has fewer items than were asked for. Conditions that few items
meet would otherwise keep a request waiting while all items are read."""

_MAX_DEPTH: Final = 200
"""Depth from which on an item is not parsed: exports, and the libraries that write answers, stop at some depth.
Pydantic's limit is 255."""
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]')
"""Text, or bracket outside of a text."""
_DECODER: Final = json.JSONDecoder(parse_constant=lambda _: None)
"""Reads NaN and Infinity, which Scrapy writes and JSON does not have, as null."""


class ItemLine(NamedTuple):
    """A complete line of the items file."""

    number: int
    content: bytes
    """Without its end. Empty: there is nothing on it, or it is too long."""
    end: int
    """Offset behind it."""


class NumberedItem(NamedTuple):
    """An item."""

    number: int
    item: Any
    end: int
    """Offset behind its line."""
    spaces: int = 0
    """Number of spaces at the end of its line, which tells its class; see `node/runner.py`."""


class ItemPagePart(NamedTuple):
    """Items of a page."""

    items: list[NumberedItem]
    end: int
    """Offset from which the next page begins."""
    is_last: bool
    """True: there are no more items now."""


class ItemReader:
    """Items of one attempt of a job; 0: of the last one. Close it after use. `kind` LOG: `lines` and `position` read
    the log."""

    def __init__(self, files: JobFiles, job: Job, attempt: int, kind: FileKind = FileKind.ITEMS) -> None:
        self._file = files.open(job, kind, attempt)

    def length(self) -> int:
        """Return the number of bytes that are there now."""
        return 0 if self._file is None else self._file.length()

    def modified_at(self) -> float:
        """Return the time of the last change, in seconds since 1970. 0: there is no file."""
        return 0.0 if self._file is None else self._file.modified_at()

    def close(self) -> None:
        """End the reading. May be repeated."""
        if self._file is not None:
            self._file.close()

    def lines(self, position: int = 0, number: int = 0) -> Iterator[ItemLine]:
        """Yield each complete line from a byte offset on, at which the line of this number begins."""
        rest: list[bytes] = []
        place, size, dropped = position, _FIRST_BYTES, False
        while self._file is not None and (content := self._file.read(place, place + size)):
            parts = content.split(b"\n")
            end = place
            for part in parts[:-1]:
                line = b"" if dropped else b"".join((*rest, part)) if rest else part
                rest, dropped = [], False
                end += len(part) + 1
                yield ItemLine(number, line, end)
                number += 1
            rest.append(parts[-1])
            place, size = place + len(content), _BLOCK_BYTES
            if sum(map(len, rest)) > _MAX_LINE_BYTES:
                rest, dropped = [], True

    def items(self, position: int = 0, number: int = 0, filters: Sequence[ItemFilter] = ()) -> Iterator[NumberedItem]:
        """Yield each item from a byte offset on that meets all conditions. A line that is no JSON is left out."""
        for line in self.lines(position, number):
            found, item = _parse(line.content)
            if found and all(condition.accepts(item) for condition in filters):
                spaces = len(line.content) - len(line.content.rstrip(b" ")) if line.content.endswith(b" ") else 0
                yield NumberedItem(line.number, item, line.end, spaces)

    def position(self, number: int) -> tuple[int, int]:
        """Return the offset at which the line of an item begins, and its number. If there are fewer lines: the offset
        behind the last complete one, and their number."""
        if self._file is None:
            return 0, 0
        offset, count = self._file.near_line(number)
        if count < number:
            for line in self.lines(offset, count):
                offset, count = line.end, line.number + 1
                if count == number:
                    break
        return offset, count

    def range(self, start: int, count: int, filters: Sequence[ItemFilter] = ()) -> list[NumberedItem]:
        """Return up to `count` items from the one with the number `start` on. Fewer: there are no more, or the page
        would be too long; a further one begins behind the last one's number."""
        position, number = self.position(start)
        return self.page(position, count, filters, number=number).items if number == start else []

    def page(self, position: int, limit: int, filters: Sequence[ItemFilter] = (), *, number: int = 0) -> ItemPagePart:
        """Return up to `limit` items from a byte offset on. A page that took long ends before, with `is_last` False."""
        found: list[NumberedItem] = []
        end = position
        for line in self.lines(position, number):
            if end - position > _PAGE_BYTES:
                return ItemPagePart(found, end, False)
            is_item, item = _parse(line.content)
            if is_item and all(condition.accepts(item) for condition in filters):
                if len(found) == limit:  # only now: the lines behind the last item may have none
                    return ItemPagePart(found, end, False)
                found.append(NumberedItem(line.number, item, line.end))
            end = line.end
        return ItemPagePart(found, end, True)


def _parse(line: bytes) -> tuple[bool, Any]:
    """Return whether a line has an item, and the item. One that is nested too deep is the text of its line, in the
    field `_json`."""
    if not line:
        return False, None
    try:
        if line.count(b"[") + line.count(b"{") > _MAX_DEPTH and _depth(line) > _MAX_DEPTH:
            return True, {"_json": line.decode().rstrip()}
        item = _DECODER.decode(line.decode())
        return True, storable(item) if b"\\ud" in line or b"\\uD" in line else item
    except (ValueError, RecursionError):  # the job's process was killed within a write, and its next attempt wrote on
        return False, None


def _depth(line: bytes) -> int:
    """Return how deep a line of JSON is nested. 0: its brackets do not match, so it is none."""
    depth = deepest = 0
    for token in _TOKEN.finditer(line):
        first = token[0][:1]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return 0 if depth else deepest
