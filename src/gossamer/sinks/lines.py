"""Plain lines: a newline ends a unit, and JSON text never holds one otherwise."""

from collections.abc import Sequence

import msgspec

from gossamer.sinks.framing import CHUNK, RECENT, Tail, chunks_at, read_at


class Lines:
    """JSON Lines as they are."""

    def begins(self, head: bytes) -> bool:
        return head.lstrip()[:1] in (b"", b"{")

    def pack(self, units: Sequence[bytes]) -> bytes:
        return b"".join(units)

    def count(self, fd: int, start: int, end: int) -> int:
        return sum(chunk.count(b"\n") for chunk in chunks_at(fd, start, end))

    def tail(self, fd: int, start: int, size: int, *, doubt: bool) -> Tail:
        if doubt:
            size = _first_nul(fd, max(start, size - RECENT), size)
        end = _after_last_newline(fd, start, size)
        # A whole record without its newline: another program's last line, or ours, torn at the very last byte.
        if end < size and _is_json(read_at(fd, end, size - end)):
            return Tail(size, glue=b"\n")
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
