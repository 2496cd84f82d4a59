"""Parser of sitemaps (https://www.sitemaps.org/protocol.html): XML, index, plain text; compressed or not."""

import codecs
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from gossamer.errors import BadUrl
from gossamer.policy.urls import MAX_URL_LENGTH, canonical, join

_PIECE = 64 * 1024


MAX_BYTES = 50 * 1024 * 1024
"""Largest sitemap after decompression (https://www.sitemaps.org/protocol.html)."""

MAX_RATIO = 200
"""Largest ratio of decompressed to compressed size beyond the first MiB. Sitemaps reach about 50."""

_FREE_BYTES = 1024 * 1024
_FIRST_PIECE = 1024
_MAGIC = b"\x1f\x8b"


def is_gzip(body: bytes) -> bool:
    """Return whether the body begins like a gzip file (RFC 1952)."""
    return body.startswith(_MAGIC)


def inflate(body: bytes, *, max_bytes: int = MAX_BYTES, max_ratio: int = MAX_RATIO) -> Iterator[bytes]:
    """Return the decompressed content of all members, in pieces of at most 64 KiB.

    Ends without an error at broken data or at a limit: the content before that counts. At most one piece beyond a limit
    is returned, so that a reader that counts sees that the limit was exceeded.
    """
    limit = min(max_bytes, max(_FREE_BYTES, max_ratio * len(body)))
    size = 0
    view, at = memoryview(body), 0
    while body.startswith(_MAGIC, at) and size <= limit:
        member = zlib.decompressobj(wbits=31)
        given_bytes = _FIRST_PIECE  # growing: zlib copies what follows a member, and there may be many
        while not member.eof and size <= limit:
            given = view[at : at + given_bytes]
            try:
                piece = member.decompress(given, _PIECE)
            except zlib.error:
                return
            at += len(given) - len(member.unused_data) - len(member.unconsumed_tail)
            given_bytes = min(2 * given_bytes, _PIECE)
            if not piece and not given:
                return
            size += len(piece)
            if piece:
                yield piece


MAX_URLS = 50_000
"""URLs that are read of one file."""


@dataclass(slots=True)
class SitemapEntries:
    """Entries of a sitemap."""

    urls: list[str] = field(default_factory=list)
    """Canonical URLs of pages, each once, in the file's order."""
    sitemaps: list[str] = field(default_factory=list)
    """Canonical URLs of further sitemaps (of an index)."""
    bad: int = 0
    """Number of entries that are not http or https URLs."""
    malformed: bool = False
    """True: the XML is broken (or declares entities, which are not read); the entries before that are here."""
    cut: bool = False
    """True: there were more than 50,000 entries or 50 MiB."""


def parse_sitemap(body: bytes, url: str) -> SitemapEntries:
    """Return the entries of a sitemap fetched from the canonical `url`. Never raises; decompresses gzip within limits.

    Takes up to 20 ms for 1,000 URLs and a second or two for the largest file, so do not call it in the event loop.
    """
    pieces = inflate(body) if is_gzip(body) else (body[at : at + _PIECE] for at in range(0, len(body), _PIECE))
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
        self._parent = ""
        self._inside_loc = False
        self._text: list[str] = []
        self._text_length = 0

    def read_xml(self, first: bytes, pieces: Iterator[bytes]) -> None:
        """Read XML. Stops at the first fault, at a limit, and at an entity declaration (which may be a bomb)."""
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
                if piece.endswith(b"\n"):
                    lines.append(rest)
                    rest = ""
                for line in lines:
                    self._line(line)
                rest = rest[: 2 * MAX_URL_LENGTH]  # an endless line is not a URL and need not be kept
                piece = next(pieces, None)
            self._line(rest)
        except _Done:
            pass

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        prefix, _, local = name.rpartition(":")
        if local in ("url", "sitemap"):
            self._parent = name
        # Same namespace as its parent: `image:loc` and the like in a `url` are not pages.
        self._inside_loc = local == "loc" and self._parent.rpartition(":")[0] == prefix
        self._text.clear()
        self._text_length = 0

    def _end(self, name: str) -> None:
        if self._inside_loc and self._parent:
            is_page = self._parent.endswith("url")
            self._entry("".join(self._text), self.found.urls if is_page else self.found.sitemaps)
        self._inside_loc = False
        if name.rpartition(":")[2] in ("url", "sitemap"):
            self._parent = ""

    def _characters(self, text: str) -> None:
        # A little more than a URL may have, so that a URL that is too long is recognised.
        if self._inside_loc and self._text_length <= 2 * MAX_URL_LENGTH:
            self._text.append(text)
            self._text_length += len(text)

    def _entity(self, *_declaration: object) -> None:
        self.found.malformed = True
        raise _Done

    def _line(self, line: str) -> None:
        # Only absolute URLs: an error page that came instead of a sitemap is not a list of relative ones.
        try:
            if line.strip():
                self._entry(canonical(line), self.found.urls)
        except BadUrl:
            self.found.bad += 1

    def _entry(self, text: str, into: list[str]) -> None:
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
    """Return whether the text begins like XML, in UTF-8 or UTF-16."""
    for bom in (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        start = start.removeprefix(bom)
    return start[:1024].lstrip(b" \t\r\n\0").startswith(b"<")
