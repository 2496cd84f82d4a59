"""Reads one HTTP/1.x response from bytes, without a socket, within bounds (RFC 9112).

A head is a status line, headers and an empty line. llhttp gets whole heads, which are cut out here. So an interim (1xx)
response ends where its head ends, the raw head is available, and a head that llhttp refuses can be repaired and parsed
again. The head decides about the end of the body: at a length, with the last chunk, or with the connection.

`keep_alive` must be False whenever the end of a response is in doubt (a repaired head, bytes after the end, a cut
body), or bytes of this response would be taken for the next one.
"""

from typing import TYPE_CHECKING

import httptools
import msgspec

from gossamer.compiled import native
from gossamer.errors import BadResponse, ConnectionLost, FetchError, HeadersTooLarge
from gossamer.fetch.decode import decode, parse_encodings
from gossamer.fetch.exchange import ResponseLimits
from gossamer.fetch.faults import ResponseFault
from gossamer.fetch.head_repair import repair_head, start_of_head

if TYPE_CHECKING:
    from gossamer.fetch.chunks import ChunkReader

# Status line, as in `HTTP/1.1 200 OK`: RFC 9112, section 4, fixes these.
_START = b"HTTP/1."
_VERSION = slice(5, 8)
_REASON = slice(13, None)

_FRAMING_NAME_LENGTHS = frozenset(map(len, ("content-length", "content-encoding", "transfer-encoding")))
"""Lengths of the names that `_note_framing` reads, so that few other headers reach it: comparing a length costs less
than `lower`. Another name that it is to read must be added here."""
_EMPTY_LINE_BYTES = len(b"\n\r\n")
"""Longest form of an empty line with the line end before it, by which `_head_end` finds the end of a head."""
_STRICT_BYTES = 64 * 1024
"""Part of a chunked body that is kept as it came, in case that llhttp fails at a sloppy line. It is memory that no
budget counts."""
_SETTINGS = b"\x04"
"""Type of the frame with which a server by HTTP/2 begins (RFC 9113, section 3.4)."""
_SHOWN_BYTES = 40
"""Bytes of something other than HTTP that an error shows."""


class ResponseReader:
    """Reader of one response; each response needs a new one. Feed it until `complete`."""

    # Class attributes, because a reader is made for every request and most of these never change. None may be mutable.
    complete = False
    keep_alive = False
    """When complete: another request may be sent on this connection."""
    truncated = False
    """True: the body exceeded its limit and was cut there."""
    status = 0
    http_version = ""
    reason = ""
    """Reason phrase; often empty."""
    head = b""
    """Raw head as received."""
    content_length: int | None = None
    content_encodings: tuple[str, ...] = ()
    """Values of the Content-Encoding headers, and codings that were sent as Transfer-Encoding, in order."""
    received_bytes = 0
    body_bytes = 0
    """Size of the body so far."""
    complete_bytes = 0
    """Bytes that the memory budget counts for the complete body until its caller consumes it; set by the connection."""
    _body: bytes | bytearray = b""
    _pending = b""
    """Beginning of a head that is not complete."""
    _searched = 0
    """Length of the part of `_pending` that has no empty line."""
    _interim_heads = 0
    _interim_bytes = 0
    _bytes_without_body = 0
    """Bytes since the last ones of the body: framing or trailers."""
    _bytes_after_head = 0
    """Body and framing."""
    _headers_done = False
    """True: the final head was parsed, not only interim ones."""
    _chunked = False
    _strict_reads: list[bytes] | None = None
    """Bytes of a chunked body that llhttp has read, from the first on. None: it reads no body."""
    _chunks: "ChunkReader | None" = None
    """Tolerant reader of a chunked body. None: llhttp reads it, or the body is not chunked."""
    _left = -1
    """Bytes of the body that are still to come. -1: the body has not begun, or has no length."""
    faults: tuple[ResponseFault, ...] = ()
    """Faults that were repaired, without those of the content's encoding."""
    is_http2 = False
    """True: the server speaks HTTP/2, unasked."""
    _head_only = False
    _parser: httptools.HttpResponseParser | None = None
    """Made for the first bytes of a response that `_begin_plainly` leaves to it."""
    headers_by_name: dict[str, list[str]] | None = None
    """Values of `headers` by name, spelled as sent. None: they were not collected."""

    def __init__(self, limits: ResponseLimits, *, head_only: bool = False) -> None:
        """`head_only`: the request was HEAD, so that the response has no body whatever its headers say."""
        self.limits = limits
        if head_only:
            self._head_only = True
        self.headers: list[tuple[str, str]] = []
        """Decoded as Latin-1, in the order and letter case received, without trailers."""

    @property
    def body(self) -> bytes:
        """Body without framing, still content-encoded."""
        return bytes(self._body)

    @property
    def has_head(self) -> bool:
        """True: status and headers of the final response are known."""
        return bool(self.http_version)

    def feed(self, data: bytes) -> bool:
        """Parse received bytes. Returns whether the response is complete; bytes after its end make `keep_alive` False.

        Raises BadResponse or HeadersTooLarge, after which the reader must not be used.
        """
        if self._left >= 0:
            self.received_bytes += len(data)
            return self._append_body(data)
        before = self.received_bytes
        self.received_bytes = before + len(data)
        if not self._headers_done:
            if not before and native is not None and self._begin_plainly(data):
                return self.complete
            data = self._feed_head(data)
            if not data:
                return self.complete
        if self._left >= 0:
            return self._append_body(data)
        if self.complete:  # not requested: they must not be taken for the next response
            self.keep_alive = False
        elif self._chunked:
            self._feed_chunked(data)
        else:
            self._append(data)
        return self.complete

    def _begin_plainly(self, data: bytes) -> bool:
        """Read a whole head and what follows with the compiled extension, if both are as simple as from nearly all
        servers: a final status and one Content-Length. Returns False, without any effect, for others, which llhttp
        reads."""
        if self._head_only:
            return False
        limits = self.limits
        found = native.read_head(data, limits.header_bytes, limits.headers)
        if found is None:
            return False
        end, status, reason, headers, by_name, encodings, length, keep_alive = found
        if length > limits.body_bytes:
            return False
        self.status, self.reason, self.http_version, self.keep_alive = status, reason, "1.1", keep_alive
        self.headers, self.headers_by_name, self.content_length = headers, by_name, length
        if encodings:
            self.content_encodings = tuple(encodings)
        self.head, self._headers_done, body = data[:end], True, data[end:]
        if len(body) == length:  # a small page comes in one read
            self._body, self.body_bytes, self.complete = body, length, True
        else:
            self._left = length
            self._append_body(body)
        return True

    def _append_body(self, data: bytes) -> bool:
        """Append bytes of a body whose length is known. Returns whether the response is complete."""
        if len(data) > self._left:  # as above
            data, self.keep_alive = data[: self._left], False
        self._left -= len(data)
        self.complete = not self._left
        self._append(data)
        return self.complete

    def take_head(self, status: int, headers: list[tuple[str, str]], size: int) -> None:
        """Take the head of a response by HTTP/2, which has no form of its own: `head` gets that of HTTP/1.1,
        with the version 2. `size`:
        bytes of its fields. Raises BadResponse or HeadersTooLarge."""
        self.received_bytes += size
        if not status >= 200:
            raise BadResponse(f"its status is {status}")
        if len(headers) > self.limits.headers:
            raise HeadersTooLarge(f"more than {self.limits.headers} headers")
        self.status, self.headers, self.http_version = status, headers, "2"
        self._headers_done = True
        lines = [f"HTTP/2 {status} ", *(f"{name}: {value}" for name, value in headers), "", ""]
        self.head = "\r\n".join(lines).encode("latin-1")
        for name, value in headers:
            # Transfer-Encoding means nothing there.
            if name == "content-encoding" or (name == "content-length" and value.isascii() and value.isdigit()):
                self._note_framing(name, value)

    def take_body(self, data: bytes) -> None:
        """Take a piece of the body by HTTP/2."""
        self.received_bytes += len(data)
        if not self.complete:
            self._append(data)

    def take_end(self) -> None:
        """Take the end of a response by HTTP/2. Raises BadResponse if it has not the length of its head (RFC 9113,
        section 8.1.1)."""
        has_length = self.content_length is not None and not self._head_only and self.status not in (204, 304)
        if has_length and self.body_bytes != self.content_length:
            raise BadResponse(f"HTTP/2: a body of {self.body_bytes} bytes, not of {self.content_length}")
        self.complete = True

    def feed_eof(self) -> None:
        """Record that the connection has ended. Raises ConnectionLost unless the response is complete, or is one whose
        body lasts until the connection ends."""
        self._parser = None
        if self.complete:
            return
        self.keep_alive = False
        if not self.received_bytes:
            raise ConnectionLost("before the answer's first byte")
        if not self._headers_done:
            raise ConnectionLost("within the headers")
        if self.content_length is not None:
            if self.content_encodings and self._is_whole_when_decoded(self.content_length):
                self.complete = True
                return
            raise ConnectionLost(f"after {self.body_bytes} of {self.content_length} bytes")
        if self._chunked:
            raise ConnectionLost(f"within a chunked body, after {self.body_bytes} bytes")
        self.complete = True

    def _is_whole_when_decoded(self, length: int) -> bool:
        """Return whether this length is that of the decoded body, which some servers send, and browsers accept."""
        if length > self.limits.body_bytes:
            return False  # more than is kept of a body: to decode it could be what a bomb wants
        limits = msgspec.structs.replace(self.limits, body_bytes=length)
        try:
            decoded = decode(self.body, parse_encodings(self.content_encodings), limits)
        except FetchError:
            return False
        return not decoded.truncated and len(decoded.body) == length

    def _feed_head(self, data: bytes) -> bytes:
        """Parse heads, interim ones first. Returns the bytes after them; empty while the head is incomplete."""
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        pending = self._pending + data if self._pending else data
        while not self._headers_done:
            if not pending.startswith(_START):
                pending = pending.lstrip(b"\r\n")
                start = start_of_head(pending)
                if start is None:
                    if pending[3:4] == _SETTINGS and pending[5:9] == bytes(4):
                        self.is_http2 = True
                        raise BadResponse("it speaks HTTP/2")
                    raise BadResponse(f"it begins with {pending[:_SHOWN_BYTES]!r}")
                if start > 0:
                    pending, self.faults = pending[start:], (ResponseFault.STATUS_LINE,)
            end = _head_end(pending, self._searched)
            # All heads together have one limit. While this one has no end, everything received is part of some head.
            head_bytes = self._interim_bytes + end if end >= 0 else self.received_bytes
            if head_bytes > self.limits.header_bytes:
                raise HeadersTooLarge(f"more than {self.limits.header_bytes} bytes")
            if end < 0:
                self._pending = pending
                self._searched = max(0, len(pending) - _EMPTY_LINE_BYTES)  # the end may hold a part of an empty line
                return b""
            self.head, pending = pending[:end], pending[end:]
            self._searched = 0
            self._parse_head()
        self._pending = b""
        return pending

    def _parse_head(self) -> None:
        """Parse the whole head in `head`; if that fails, repair it and parse it once more."""
        head = self.head
        if b"\0" in head:
            raise BadResponse("headers: they have a NUL byte")
        try:
            self._feed_parser(head)
        except httptools.HttpParserError:
            faults = {*self.faults}
            head = repair_head(head, faults)
            self.faults = tuple(sorted(faults))
            self._parser = httptools.HttpResponseParser(self)
            self._headers_done = self.complete = False
            try:
                self._feed_parser(head)
            except httptools.HttpParserError as exc:
                raise BadResponse(f"headers: {exc}") from None
            self.keep_alive = False
        if self._headers_done:
            if self.faults:
                self.keep_alive = False
            self._read_fields(head)
            self._begin_body()
        elif 100 <= self.status < 200:
            self._interim_heads += 1
            self._interim_bytes += len(head)
            if self._interim_heads > self.limits.interim:
                raise BadResponse(f"more than {self.limits.interim} interim responses")
        else:
            raise BadResponse(f"its status is {self.status}")

    def _feed_parser(self, head: bytes) -> None:
        """Give a head to llhttp, which calls the methods below. Raises BadResponse, and its own HttpParserError."""
        try:
            self._parser.feed_data(head)  # type: ignore[union-attr]  # set until the head is complete
        except httptools.HttpParserUpgrade:
            raise BadResponse(f"it changes the protocol unasked (status {self.status})") from None

    def _read_fields(self, head: bytes) -> None:
        """Read the headers of a head that the parser accepted, so that every line has a colon and a name."""
        status_line, *lines = head.decode("latin-1").split("\r\n")
        del lines[-2:]  # both empty: the head ends with two line ends
        if len(lines) > self.limits.headers:
            raise HeadersTooLarge(f"more than {self.limits.headers} headers")
        self.http_version = "1.0" if status_line[_VERSION] in ("1.0", "0.9") else "1.1"
        self.reason = status_line[_REASON]
        headers = self.headers
        for line in lines:
            name, _, value = line.partition(":")
            value = value.strip(" \t")
            headers.append((name, value))
            if len(name) in _FRAMING_NAME_LENGTHS:
                self._note_framing(name.lower(), value)

    def _note_framing(self, name: str, value: str) -> None:
        """Record a header that decides about the framing or the encoding of the body. `name`: in lower case."""
        if name == "content-length":
            self.content_length = int(value)
            if self.limits.whole_only and self.content_length > self.limits.body_bytes:
                self.truncated = self.complete = True
                self.keep_alive = False
        elif name == "content-encoding":
            self.content_encodings += (value,)
        elif name == "transfer-encoding":
            codings = [token.strip() for token in value.lower().split(",")]
            self._chunked = codings[-1] == "chunked"
            if self.http_version == "1.0":  # which has no such header (RFC 9112, section 6.1)
                self.keep_alive = False
            # Codings other than framing encode the content. They are never requested (no TE header) but do occur.
            self.content_encodings += tuple(token for token in codings if token not in ("chunked", "identity"))

    def _begin_body(self) -> None:
        """Prepare for the body that the head announces, if any."""
        if self._chunked and not self.complete:
            self._strict_reads = []
            return
        self._parser = None  # breaks a reference cycle, so that no response waits for the garbage collector
        if self.content_length is not None and not self.complete:
            self._left = self.content_length

    def _feed_chunked(self, data: bytes) -> None:
        """Parse bytes of a chunked body. Bounds the bytes that are not part of the body."""
        before = self.body_bytes
        if self._strict_reads is not None:
            self._feed_strictly(self._strict_reads, data)
        else:
            self._feed_tolerantly(data)
        if self.complete:
            self._parser = self._strict_reads = None
            return
        # Chunk extensions and trailers are not part of the body and need a bound of their own.
        self._bytes_without_body = 0 if self.body_bytes > before else self._bytes_without_body + len(data)
        self._bytes_after_head += len(data)
        # One-byte chunks are six times the size of their body, and each is a call: no more framing than body is
        # accepted, except for the first `header_bytes`.
        framing = self._bytes_after_head - self.body_bytes
        if self._bytes_without_body > self.limits.header_bytes or framing > self.limits.header_bytes + self.body_bytes:
            raise HeadersTooLarge("endless framing or trailers in a chunked body")

    def _feed_strictly(self, reads: list[bytes], data: bytes) -> None:
        """Parse bytes of a chunked body with llhttp. Where that fails, and for the rest of a long body, which may fail
        later, the tolerant reader takes over, from the body's beginning."""
        reads.append(data)
        try:
            self._parser.feed_data(data)  # type: ignore[union-attr]  # set until the body is complete
            fails = False
        except httptools.HttpParserError:
            fails = True
        if self.complete:
            self.keep_alive = self.keep_alive and not fails  # it has failed at bytes behind the body
        elif fails or self._bytes_after_head > _STRICT_BYTES:
            from gossamer.fetch.chunks import ChunkReader  # imported late: few responses need it

            self._chunks = ChunkReader()
            self._parser = self._strict_reads = None
            self._body, self.body_bytes = b"", 0
            self._feed_tolerantly(b"".join(reads))

    def _feed_tolerantly(self, data: bytes) -> None:
        """Parse bytes of a chunked body as browsers do. Raises BadResponse where they stop reading."""
        chunks = self._chunks
        assert chunks is not None
        for piece in chunks.feed(data):
            self._append(piece)
            if self.complete:
                return
        if chunks.fault:
            raise BadResponse(f"body: {chunks.fault}")
        if chunks.is_complete:
            self.complete = True
            self.keep_alive = self.keep_alive and not (chunks.has_rest or chunks.is_sloppy)

    def _append(self, data: bytes) -> None:
        """Append a piece of the body, up to the limit; the rest is cut off."""
        room = self.limits.body_bytes - self.body_bytes
        if len(data) > room:
            data = data[:room]
            self.truncated = self.complete = True
            self.keep_alive = False
        self.body_bytes += len(data)
        if not self._body:
            self._body = data  # most bodies come in one read, so most are never copied
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data

    # Callbacks of llhttp, which fixes their names. None of them may raise, because llhttp would wrap the exception.

    def on_headers_complete(self) -> None:
        """Take the status of a head. An interim one is not the response's."""
        if self._headers_done:
            return
        parser = self._parser
        self.status = parser.get_status_code()  # type: ignore[union-attr]
        if self.status < 200:
            return
        self._headers_done = True
        self.keep_alive = parser.should_keep_alive()  # type: ignore[union-attr]
        if self._head_only:
            self.complete = True

    def on_body(self, data: bytes) -> None:
        """Append a piece of a chunked body."""
        if not self.complete:
            self._append(data)

    def on_message_begin(self) -> None:
        """Note a second response, which was not requested: the connection cannot be used again."""
        if self.complete:
            self.keep_alive = False

    def on_message_complete(self) -> None:
        """Note the end of the response. Interim responses have ends, too, which do not count."""
        if self._headers_done:
            self.complete = True


def _head_end(data: bytes, start: int) -> int:
    """Return the end of the first empty line from `start` on, with CRLF or bare LF; -1: there is none."""
    crlf = data.find(b"\n\r\n", start)
    bare = data.find(b"\n\n", start) if crlf < 0 else data.find(b"\n\n", start, crlf + 1)
    if bare >= 0:
        return bare + len(b"\n\n")
    return crlf + len(b"\n\r\n") if crlf >= 0 else -1
