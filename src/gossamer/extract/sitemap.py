"""Parser of sitemaps (https://www.sitemaps.org/protocol.html): XML, index, plain text; compressed or not.

Safe to change: the limits below, as far as they say. Fixed: entities are never expanded and every limit of bytes
counts decompressed ones, because a small file may otherwise fill the memory; and what was read before a fault or a
limit is returned.
"""

import codecs
import zlib
from collections.abc import Iterator

import msgspec

from gossamer.errors import BadUrl
from gossamer.policy.urls import MAX_URL_LENGTH, canonical, join

_PIECE_BYTES = 64 * 1024
"""Size of the pieces in which a file is decompressed and parsed. Tuning only: larger ones take memory."""

MAX_BYTES = 50 * 1024 * 1024
"""Largest sitemap after decompression. The protocol sets it; it may be larger, which takes time, but not smaller."""

MAX_RATIO = 200
"""Largest ratio of decompressed to compressed size beyond `_FREE_BYTES`. May be changed, but must stay well above 50,
which honest sitemaps reach; beyond 1032 it has no effect."""

_FREE_BYTES = 1024 * 1024
"""Decompressed size up to which any ratio is accepted. May be changed freely."""
_FIRST_PIECE_BYTES = 1024
"""Size of the first compressed piece that is passed to zlib; it grows up to _PIECE_BYTES. Tuning only."""
_GZIP_START = b"\x1f\x8b"  # RFC 1952, section 2.3.1
_GZIP_FORMAT = 16 + zlib.MAX_WBITS  # zlib's number for it


def is_gzip(body: bytes) -> bool:
    """Return whether the body begins like a gzip file (RFC 1952)."""
    return body.startswith(_GZIP_START)


def inflate(body: bytes, *, max_bytes: int = MAX_BYTES, max_ratio: int = MAX_RATIO) -> Iterator[bytes]:
    """Return the decompressed content of all members of a gzip file, in pieces of at most _PIECE_BYTES.

    Ends without an error at broken data or at a limit: the content before that counts. At most one piece beyond a limit
    is returned, so that a reader that counts sees that the limit was exceeded.
    """
    limit = min(max_bytes, max(_FREE_BYTES, max_ratio * len(body)))
    size = 0
    view, at = memoryview(body), 0
    while body.startswith(_GZIP_START, at) and size <= limit:
        member = zlib.decompressobj(wbits=_GZIP_FORMAT)
        # Small pieces first, because zlib copies the rest of a piece in which a member ends, and there may be many
        # short members.
        given_bytes = _FIRST_PIECE_BYTES
        while not member.eof and size <= limit:
            given = view[at : at + given_bytes]
            try:
                piece = member.decompress(given, _PIECE_BYTES)
            except zlib.error:
                return
            # Not read of the given bytes: those after the end of the member, and those left when the piece was full.
            at += len(given) - len(member.unused_data) - len(member.unconsumed_tail)
            given_bytes = min(2 * given_bytes, _PIECE_BYTES)
            if not piece and not given:
                return
            size += len(piece)
            if piece:
                yield piece


MAX_URLS = 50_000
"""Entries that are read of one file. The protocol sets it; it may be larger, which takes time and memory, but not
smaller."""
_MAX_TEXT_LENGTH = 2 * MAX_URL_LENGTH
"""Characters of an entry or line that are kept. Must exceed MAX_URL_LENGTH, so that a URL that is too long is refused
and not cut to a valid one."""
_SNIFFED_BYTES = 1024
"""A file is XML if its first character but white space is `<` and comes within this many bytes. May be changed
freely."""


class SitemapEntries(msgspec.Struct):
    """Entries of a sitemap."""

    urls: list[str] = msgspec.field(default_factory=list)
    """Canonical URLs of pages, each once, in the file's order."""
    sitemaps: list[str] = msgspec.field(default_factory=list)
    """Canonical URLs of further sitemaps that an index names, each once."""
    bad: int = 0
    """Number of entries that are not http or https URLs."""
    malformed: bool = False
    """True: the XML is broken, ends early, or declares entities; the entries before that are here."""
    cut: bool = False
    """True: there were more than MAX_URLS entries or MAX_BYTES; the first ones are here. Not set where `inflate` ended
    at MAX_RATIO or at broken data: XML is then `malformed`, and a text file has neither mark."""


def parse_sitemap(body: bytes, url: str) -> SitemapEntries:
    """Return the entries of a sitemap fetched from the canonical `url`. Never raises; decompresses gzip within limits.

    Takes up to 20 ms for 1,000 URLs and a second or two for the largest file, so do not call it in the event loop.
    """
    if is_gzip(body):
        pieces = inflate(body)
    else:
        pieces = (body[at : at + _PIECE_BYTES] for at in range(0, len(body), _PIECE_BYTES))
    reader = _Reader(url)
    first = next(pieces, b"")
    if _is_xml(first):
        reader.read_xml(first, pieces)
    else:
        reader.read_text(first, pieces)
    return reader.found


class _Done(Exception):
    """Raised when enough was read."""


class _Reader:
    """Reader that collects the entries of one file."""

    def __init__(self, url: str) -> None:
        self.found = SitemapEntries()
        self._url = url
        self._seen: set[str] = set()
        self._parent = ""  # name of the open `url` or `sitemap` element with its XML prefix; empty: none is open
        self._inside_loc = False
        self._text: list[str] = []  # parts of the text in the open `loc`
        self._text_length = 0

    def read_xml(self, first: bytes, pieces: Iterator[bytes]) -> None:
        """Read XML. Stops at the first fault, at a limit, and at an entity declaration, because a few nested entities
        may stand for gigabytes."""
        from xml.parsers import expat  # late: few crawls read sitemaps

        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._entity
        size = 0
        piece: bytes | None = first
        try:
            while piece is not None:
                size += len(piece)
                if size > MAX_BYTES:
                    self.found.cut = True
                    return
                parser.Parse(piece, False)
                piece = next(pieces, None)
            parser.Parse(b"", True)
        except _Done:
            pass
        except (expat.ExpatError, UnicodeError, LookupError, ValueError):
            self.found.malformed = True

    def read_text(self, first: bytes, pieces: Iterator[bytes]) -> None:
        """Read one URL per line, in UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        size = 0
        rest = ""
        piece: bytes | None = first
        try:
            while piece is not None:
                size += len(piece)
                if size > MAX_BYTES:
                    self.found.cut = True
                    return
                *lines, rest = (rest + decoder.decode(piece)).splitlines() or [""]
                if piece.endswith(b"\n"):  # the last line is complete; else the next piece continues it
                    lines.append(rest)
                    rest = ""
                for line in lines:
                    self._line(line)
                rest = rest[:_MAX_TEXT_LENGTH]
                piece = next(pieces, None)
            self._line(rest)
        except _Done:
            pass

    # Callbacks of expat. `name`: of an element, with its XML prefix.

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin an element: remember a `url` or `sitemap`, and read the text of a `loc` in it."""
        prefix, _, local = name.rpartition(":")
        if local in ("url", "sitemap"):
            self._parent = name
        # A `loc` counts only with the prefix of its parent: `image:loc` and the like in a `url` are not pages.
        self._inside_loc = local == "loc" and self._parent.rpartition(":")[0] == prefix
        self._text.clear()
        self._text_length = 0

    def _end(self, name: str) -> None:
        """End an element: take the URL of a `loc`, or leave its parent."""
        if self._inside_loc and self._parent:
            is_page = self._parent.endswith("url")
            self._entry("".join(self._text), self.found.urls if is_page else self.found.sitemaps)
        self._inside_loc = False
        if name.rpartition(":")[2] in ("url", "sitemap"):
            self._parent = ""

    def _characters(self, text: str) -> None:
        """Collect a piece of the text of a `loc`, up to the longest text that can be a URL."""
        if self._inside_loc and self._text_length <= _MAX_TEXT_LENGTH:
            self._text.append(text)
            self._text_length += len(text)

    def _entity(self, *_declaration: object) -> None:
        """Stop at an entity declaration."""
        self.found.malformed = True
        raise _Done

    def _line(self, line: str) -> None:
        """Take the URL in a line of plain text."""
        # Only absolute URLs: an error page that came instead of a sitemap is not a list of relative ones.
        try:
            if line.strip():
                self._entry(canonical(line), self.found.urls)
        except BadUrl:
            self.found.bad += 1

    def _entry(self, text: str, into: list[str]) -> None:
        """Append the canonical URL to this list, unless it was met before. Raises _Done at MAX_URLS."""
        text = text.strip()
        if not text:
            return
        try:
            url = join(self._url, text)
        except BadUrl:
            self.found.bad += 1
            return
        if url in self._seen:
            return
        if len(self._seen) >= MAX_URLS:
            self.found.cut = True
            raise _Done
        self._seen.add(url)
        into.append(url)


def _is_xml(start: bytes) -> bool:
    """Return whether the text begins like XML, in UTF-8 or UTF-16 (where each ASCII character has a zero byte)."""
    for bom in (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        start = start.removeprefix(bom)
    return start[:_SNIFFED_BYTES].lstrip(b" \t\r\n\0").startswith(b"<")
