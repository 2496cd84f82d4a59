"""Framing of chunked bodies (RFC 9112, section 7.1), read as tolerantly as browsers do.

A chunk is a line with its size in hexadecimal digits, as many bytes, and a line end. The last chunk has the size 0; it
is followed by trailers, which are lines like those of a head, and an empty line.
"""

import re

_BEGINNING_OF_SIZE = re.compile(rb"[0-9A-Fa-f]+ *(?:;|\r?\Z)")
_SIZE = re.compile(rb"[0-9A-Fa-f]+")
_LARGEST_SIZE = 2**63 - 1
_SHOWN_BYTES = 20
"""Bytes of a faulty line that an error shows."""


class ChunkReader:
    """Takes the framing from the bytes of one chunked body.

    Accepts what Chromium accepts beyond the standard: a bare LF as line end, blanks after a size, any bytes in chunk
    extensions and trailers. The caller bounds the framing.
    """

    # Class attributes, because most of them never change. None may be mutable.
    _left = 0
    """Bytes of the current chunk that are still to come."""
    _is_after_data = False
    """True: the line end behind a chunk's bytes is next."""
    _is_last = False
    """True: the last chunk's size was read; trailers are next."""
    _line = b""
    """Beginning of a line that is not complete."""
    fault = ""
    """Reason why the rest cannot be read; empty: it can."""
    is_sloppy = False
    """True: some line was not as the standard demands."""
    is_complete = False
    has_rest = False
    """True: there were bytes behind the complete body."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the pieces of the body in the next bytes. Must not be called after the end or a fault."""
        pieces: list[bytes] = []
        if self._line:
            data, self._line = self._line + data, b""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                self._left -= len(piece)
                self._is_after_data = not self._left
                at += len(piece)
                continue
            if self._is_after_data and data.startswith(b"\r\n", at):
                self._is_after_data = False
                at += 2
                continue
            line_end = data.find(b"\n", at)
            if line_end < 0:
                self._keep_line(data[at:])
                break
            self._read_line(data[at:line_end])
            at = line_end + 1
            if self.is_complete or self.fault:
                self.has_rest = at < end
                break
        return pieces

    def _keep_line(self, line: bytes) -> None:
        """Keep the beginning of a line until its end arrives, unless it is wrong already."""
        self._line = line
        if self._is_after_data and line != b"\r":
            self.fault = f"{line[:_SHOWN_BYTES]!r} behind the end of a chunk"
        elif not (self._is_after_data or self._is_last or _BEGINNING_OF_SIZE.match(line)):
            self.fault = f"{line[:_SHOWN_BYTES]!r} is no size of a chunk"

    def _read_line(self, line: bytes) -> None:
        """Read a line of the framing, without its LF."""
        text = line.removesuffix(b"\r")
        if self._is_last:
            self.is_complete = not text  # trailers are not kept
        elif self._is_after_data:
            self._is_after_data = False
            if text:
                self.fault = f"{text[:_SHOWN_BYTES]!r} behind the end of a chunk"
        else:
            size = text.partition(b";")[0].rstrip(b" ")
            if not _SIZE.fullmatch(size) or (number := int(size, 16)) > _LARGEST_SIZE:
                self.fault = f"{text[:_SHOWN_BYTES]!r} is no size of a chunk"
                return
            self._left, self._is_last = number, not number
            self.is_sloppy = self.is_sloppy or text.endswith(b" ")
        self.is_sloppy = self.is_sloppy or len(text) == len(line)
