"""Parser of sitemaps (https://www.sitemaps.org/protocol.html): XML, index, RSS, Atom, plain text; compressed or not.

A sitemap is read in pieces, and no fault of its XML loses the entries around it: the reader looks for the few elements
that have URLs, as search engines do, and does not ask for well-formed XML. Entities are never expanded and every limit
of bytes counts decompressed ones, because a small file may otherwise fill the memory. What was read before a limit or a
fault is returned, with a count of what was left out and the reason.
"""

import codecs
import re
import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain

import msgspec

from gossamer.errors import BadUrl, DecodeBomb, DecodeFailed, FetchError
from gossamer.extract.encoding import codec_of
from gossamer.net.inflating import inflate_piece
from gossamer.policy.urls import MAX_URL_LENGTH, BaseUrl

_PIECE_BYTES = 64 * 1024
"""Size of the pieces in which a file is decompressed and parsed."""

MAX_BYTES = 50 * 1024 * 1024
"""Largest sitemap after decompression, set by the protocol."""
MAX_URLS = 50_000
"""Most entries of one file, set by the protocol. The others are counted."""

MAX_RATIO = 200
"""Largest ratio of decompressed to compressed size beyond `_FREE_BYTES`. Must stay well above 50, which honest sitemaps
reach."""
_FREE_BYTES = 1024 * 1024
"""Decompressed size up to which any ratio is accepted."""
_FIRST_PIECE_BYTES = 1024
"""Size of the first compressed piece that is passed to zlib; it grows up to _PIECE_BYTES."""
_GZIP_START = b"\x1f\x8b"  # RFC 1952, section 2.3.1
_GZIP_FORMAT = 16 + zlib.MAX_WBITS  # zlib's number for it


def is_gzip(body: bytes) -> bool:
    """Return whether the body begins like a gzip file (RFC 1952)."""
    return body.startswith(_GZIP_START)


def slices(body: bytes) -> Iterator[bytes]:
    """Yield a body in pieces of at most _PIECE_BYTES."""
    for at in range(0, len(body), _PIECE_BYTES):
        yield body[at : at + _PIECE_BYTES]


def inflate(pieces: Iterable[bytes], *, max_ratio: int = MAX_RATIO) -> Iterator[bytes]:
    """Yield the decompressed content of all members of a gzip file, in pieces of at most _PIECE_BYTES.

    Raises DecodeFailed where the data are broken or end early, and DecodeBomb where they expand too much. Bytes that
    follow the last member and are none do not count (RFC 1952, section 2.2).
    """
    member = zlib.decompressobj(wbits=_GZIP_FORMAT)
    given_total = size = 0
    begun = False
    for piece in pieces:
        view, at = memoryview(piece), 0
        # Small pieces first, because zlib copies the rest of a piece in which a member ends, and there may be many
        # short members.
        given_bytes = _FIRST_PIECE_BYTES
        while at < len(view):
            if member.eof:
                if view[at] != _GZIP_START[0]:
                    return
                member, given_bytes = zlib.decompressobj(wbits=_GZIP_FORMAT), _FIRST_PIECE_BYTES
            given = view[at : at + given_bytes]
            output, error = inflate_piece(member, given, _PIECE_BYTES)
            if error is not None:
                yield output
                raise DecodeFailed(f"gzip: {error}")
            begun = True
            # Not read of the given bytes: those after the end of the member, and those left when the piece was full.
            taken = len(given) - len(member.unused_data) - len(member.unconsumed_tail)
            at += taken
            given_total += taken
            size += len(output)
            if size > max(_FREE_BYTES, max_ratio * given_total):
                raise DecodeBomb(f"gzip made {size} bytes of {given_total}")
            given_bytes = min(2 * given_bytes, _PIECE_BYTES)
            if output:
                yield output
    while begun and not member.eof:
        output = member.decompress(b"", _PIECE_BYTES)
        if not output:
            raise DecodeFailed("gzip: it ends early")
        yield output


_MAX_TEXT_LENGTH = 2 * MAX_URL_LENGTH
"""Characters of an entry or line that are kept. Must exceed MAX_URL_LENGTH, so that a URL that is too long is refused
and not cut to a valid one."""
_MAX_ENTRIES = 10 * MAX_URLS
"""Entries, repeated and invalid ones too, after which the rest of a file is not even counted."""
_MAX_TAGS = 4_000_000
"""Tags of interest after which the rest of a file is not read: six for each entry, and two for each picture of it."""
_MAX_DATE_LENGTH = 40
"""Characters of a `lastmod`; a longer one is none."""
_MAX_TAG_LENGTH = 64 * 1024
"""Characters of a tag. A longer one is text."""

# The part of an XML document before its root element. Possessive, because a row of comments could be divided in
# exponentially many ways.
_PROLOG = rb"(?s)\s*+(?:(?><\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*+(?:\[[^\]]*+\]\s*+)?>)\s*+)*+"
_ROOT = re.compile(_PROLOG + rb"<((?:[\w.-]+:)?([\w.-]+))(?=[\s/>])")
_DECLARED_ENCODING = re.compile(rb"""\s*+<\?xml\s[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
_SNIFFED_BYTES = 64 * 1024
"""Beginning of a body in which its first element must stand."""
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_SITEMAP_ROOTS = ("urlset", "sitemapindex")
_FEED_ROOTS = ("rss", "feed", "rdf")


def root_of(start: bytes) -> str:
    """Return the name of the first element, in lower case and without its XML prefix. Empty: the text is no XML.

    `start`: beginning of the body, in an encoding that has ASCII, or in UTF-16.
    """
    at = _bom_length(start)
    if b"\0" in start[at : at + 2]:
        start, at = start[at:_SNIFFED_BYTES].replace(b"\0", b""), 0
    match = _ROOT.match(start, at, _SNIFFED_BYTES)
    return match[2].decode().lower() if match else ""


_URL_LINES = re.compile(rb"(?i)(?:\xef\xbb\xbf)?\s*+https?://\S++(?:[ \t\r]*+\n\s*+(?:https?:/|/)\S++)*+\s*+\Z")


def looks_like_sitemap(body: bytes, *, only_xml: bool = False) -> bool:
    """Return whether a body is a sitemap by its beginning, compressed or not: XML, RSS, Atom, or lines that are all
    URLs. `only_xml`: RSS, Atom and lines do not count."""
    start = body[:_SNIFFED_BYTES]
    if is_gzip(start):
        try:
            start = next(inflate([start]), b"")
        except FetchError:
            return False
    root = root_of(start)
    if only_xml or root:
        return root in _SITEMAP_ROOTS or (not only_xml and root in _FEED_ROOTS)
    return _URL_LINES.match(start) is not None


class SitemapFault(StrEnum):
    """Reason why entries of a sitemap may be missing. Each has a row in `policy/words.py`."""

    NONE = "no_sitemap"
    """It is something else, as an error page."""
    BROKEN = "sitemap_broken"
    """It ends early, its compression is damaged, or it declares entities."""
    TOO_LONG = "sitemap_too_long"
    """It exceeds a limit of the protocol, or of the reader."""


class SitemapEntries(msgspec.Struct):
    """Entries of a sitemap."""

    urls: list[str] = msgspec.field(default_factory=list)
    """Canonical URLs of pages, each once, in the file's order."""
    sitemaps: list[str] = msgspec.field(default_factory=list)
    """Canonical URLs of further sitemaps that an index names, each once."""
    dates: dict[str, str] = msgspec.field(default_factory=dict)
    """By URL of a page or sitemap: the time of its last change, `lastmod`, as it is written."""
    bad: int = 0
    """Number of entries that are not http or https URLs."""
    beyond: int = 0
    """Number of entries beyond MAX_URLS."""
    fault: SitemapFault | None = None
    """None: all of it was read."""


def parse_sitemap(body: bytes, url: str) -> SitemapEntries:
    """Return the entries of a sitemap that is in memory. See `read_sitemap`."""
    return read_sitemap(slices(body), url)


def read_sitemap(pieces: Iterable[bytes], url: str) -> SitemapEntries:
    """Return the entries of a sitemap fetched from the canonical `url`, given in pieces of any size. Never raises, also
    where `pieces` raises a FetchError; decompresses gzip within limits.

    Takes up to 20 ms for 1,000 URLs and a second or two for the largest file, so do not call it in the event loop.
    """
    reader = _Reader(url)
    try:
        source = _until_fault(iter(pieces), reader)
        start = _first(source)
        if is_gzip(start):
            source = _until_fault(inflate(chain((start,), source)), reader)
            start = _first(source)
        reader.begin(start)
        for piece in chain((start,), source):
            reader.feed(piece)
        if not reader.is_cut:
            reader.finish()
    except _Done:
        pass
    reader.judge()
    return reader.found


def _until_fault(source: Iterator[bytes], reader: "_Reader") -> Iterator[bytes]:
    """Yield the pieces up to the damage, which the reader records."""
    try:
        yield from source
    except FetchError as error:
        reader.is_cut = True
        reader.fault(SitemapFault.TOO_LONG if isinstance(error, DecodeBomb) else SitemapFault.BROKEN)


def _first(source: Iterator[bytes]) -> bytes:
    """Return the beginning, long enough to tell what it is, or all that there is."""
    start = next(source, b"")
    while len(start) < _PIECE_BYTES and (piece := next(source, b"")):
        start += piece
    return start


class _Done(Exception):
    """Raised when enough was read."""


# Elements that have an entry, by the root element of the file: the element, and the one in it that has the URL.
_LOCATIONS = {"url": "loc", "sitemap": "loc"}
_ELEMENTS = {"rss": {"item": "link"}, "rdf": {"item": "link"}, "feed": {"entry": "link"}}

# What the XML reader stops at: tags of the elements above and of roots, and the beginnings of markup that hides others.
# Values of attributes may contain `>`. Possessive, so that a tag without an end is not tried in many ways.
_MARKUP = (
    r"<(?:(/?)((?:[^\s<>/:!?]{{1,100}}:)?(?:{}))(?=[\s/>])((?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+)>"
    r"|!--|!\[CDATA\[|\?|!ENTITY)"
)
_SITEMAP_TOKEN = re.compile(_MARKUP.format("url|loc|lastmod|sitemap|urlset|sitemapindex"), re.IGNORECASE)
_FEED_TOKEN = re.compile(_MARKUP.format("item|entry|link|guid|rss|feed|rdf"), re.IGNORECASE)
_UNFINISHED = re.compile(r"<(?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+(?:\"[^\"<]*+|'[^'<]*+)?\Z")
"""Beginning of a tag whose end is in the next piece."""
_TAG_START = re.compile(r"<[^\W\d]|<[/!?]")
"""Where the text of a `loc` ends that is not closed. Another `<` is text, as in HTML."""
_HIDING = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>"}
_REFERENCE = re.compile(r"&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(amp|lt|gt|quot|apos));", re.IGNORECASE)
_CHARACTERS = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_HREF = re.compile(r"""(?:^|\s)href\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_XML_BASE = re.compile(r"""(?:^|\s)xml:base\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_REL = re.compile(r"""(?:^|\s)rel\s*=\s*["']\s*([^"']*)""", re.IGNORECASE)
_ABSOLUTE = re.compile(r"https?:[/\\]", re.IGNORECASE)
_NO_PERMALINK = re.compile(r"""(?:^|\s)isPermaLink\s*=\s*["']\s*false""", re.IGNORECASE)


def _referenced(match: re.Match[str]) -> str:
    """Return the character that a reference stands for; any other text stays as it is."""
    decimal, hexadecimal, name = match.groups()
    if name:
        return _CHARACTERS[name.lower()]
    number = int(decimal) if decimal else int(hexadecimal, 16)
    return chr(number) if number <= 0x10FFFF else match[0]


class _Reader:
    """Reader that collects the entries of one file: `begin`, then `feed` for each piece, then `finish`."""

    def __init__(self, url: str) -> None:
        self.found = SitemapEntries()
        self.is_cut = False  # whether the file is damaged, so that its end is not its own
        self._base = self._feed_base = BaseUrl(url)
        self._seen: set[str] = set()
        self._size = 0
        self._root = ""
        self._decoder: codecs.IncrementalDecoder
        self._is_xml = False
        self._held = ""  # end of the last piece, which is not complete without the next one
        # Of XML:
        self._elements = _LOCATIONS
        self._token = _SITEMAP_TOKEN
        self._tags_read = self._entries_read = 0
        self._is_closed = False  # whether the end tag of the root was read
        self._until = ""  # end of the markup that is being skipped
        self._prefix = ""
        self._parent = ""  # the open element that has an entry; empty: none is open
        self._inside = ""  # `loc`, `link` or `guid` whose text is being read
        self._text: list[str] = []
        self._text_length = 0
        self._guid = ""  # URL of the open RSS item, in case it has no link
        self._location = self._date = ""  # URL and `lastmod` of the open entry

    def begin(self, start: bytes) -> None:
        """Find out the encoding, and whether it is XML."""
        codec, is_marked = "utf-8", False
        for bom, name in _BOMS:
            if start.startswith(bom):
                codec, is_marked = name, True
        if not is_marked:
            if start[:1] == b"\0" or start[1:2] == b"\0":  # `<` in UTF-16
                codec = "utf-16-be" if start[0] == 0 else "utf-16-le"
            elif declared := _DECLARED_ENCODING.match(start):
                codec = codec_of(declared[1].decode("ascii")) or "utf-8"
                codec = "utf-8" if codec.startswith("utf-16") else codec  # readable as ASCII, so it is not
        self._decoder = codecs.getincrementaldecoder(codec)("replace")
        self._root = root_of(start)
        if self._root in _FEED_ROOTS:
            self._elements, self._token = _ELEMENTS[self._root], _FEED_TOKEN
        self._is_xml = bool(self._root) or start[_bom_length(start) :].lstrip(b" \t\r\n\0").startswith(b"<")

    def feed(self, piece: bytes) -> None:
        """Read a piece. Raises _Done at a limit."""
        self._size += len(piece)
        if self._size > MAX_BYTES:
            self.fault(SitemapFault.TOO_LONG)
            raise _Done
        self._read(self._decoder.decode(piece))

    def finish(self) -> None:
        """Read what was held back at the end of the file. Raises _Done at a limit."""
        text = self._decoder.decode(b"", True)
        if not self._is_xml:
            self._line(self._held + text)
            return
        self._read(text)
        if self._root in (*_SITEMAP_ROOTS, *_FEED_ROOTS) and not self._is_closed:
            self.fault(SitemapFault.BROKEN)

    def judge(self) -> None:
        """Record that the file is no sitemap, if it has no entry and is not an empty one."""
        if not self._seen and self._root not in (*_SITEMAP_ROOTS, *_FEED_ROOTS):
            self.fault(SitemapFault.NONE)
            self.found.bad = 0  # lines of such a page are no entries

    def fault(self, reason: SitemapFault) -> None:
        """Record why entries may be missing; the first reason counts."""
        self.found.fault = self.found.fault or reason

    def _read(self, text: str) -> None:
        if self._is_xml:
            self._read_xml(self._held + text)
        else:
            *lines, rest = (self._held + text).replace("\r", "\n").split("\n")
            for line in lines:
                self._line(line)
            self._held = rest[:_MAX_TEXT_LENGTH]

    def _read_xml(self, text: str) -> None:
        """Read XML up to the last markup that is complete. Stops at an entity declaration, because a few nested
        entities may stand for gigabytes."""
        at = 0
        while True:
            if self._until:
                end = text.find(self._until, at)
                hidden = text[at : end if end >= 0 else max(at, len(text) - len(self._until) + 1)]
                if self._inside and self._until == "]]>":
                    self._take(hidden)
                if end < 0:
                    self._held = text[at + len(hidden) :]
                    return
                at = end + len(self._until)
                self._until = ""
            token = self._token.search(text, at)
            if token is None:
                break
            self._tags_read += 1
            if self._tags_read > _MAX_TAGS:
                self.fault(SitemapFault.TOO_LONG)
                raise _Done
            if self._inside:
                self._take_text(text[at : token.start()])
            at = token.end()
            slash, name, attributes = token.groups()
            if name is None:
                self._hide(token[0].upper())
            elif slash:
                self._end(name.lower())
            else:
                self._start(name.lower(), attributes)
        self._hold(text, at)

    def _hold(self, text: str, at: int) -> None:
        """Keep the end of a piece that may belong to markup in the next one, and all text of an open `loc`."""
        start = text.rfind("<", max(at, len(text) - _MAX_TAG_LENGTH))
        is_unfinished = start >= 0 and _UNFINISHED.match(text, start) is not None
        if self._inside and len(text) - at <= _MAX_TEXT_LENGTH:
            start = at
        elif self._inside:
            self._take_text(text[at:start] if is_unfinished else text[at:])
        self._held = text[start:] if is_unfinished or (self._inside and start == at) else ""

    def _hide(self, begin: str) -> None:
        """Begin to skip a comment, an instruction or CDATA. `begin`: its first characters, in upper case."""
        if begin == "<!ENTITY":
            self.fault(SitemapFault.BROKEN)
            raise _Done
        self._until = _HIDING[begin]

    # Elements. `name` is in lower case, with its XML prefix.

    def _start(self, name: str, attributes: str) -> None:
        """Begin an element: remember one that has an entry, and read the text of the `loc` in it."""
        self._take_entry()  # where the end tag of a `loc` is missing
        prefix, _, local = name.rpartition(":")
        is_empty = attributes.endswith("/")
        if local == self._root:
            self._is_closed = is_empty
            self._feed_base = self._base = _based(self._feed_base, attributes)
        elif local in self._elements and (self._elements is _LOCATIONS or not prefix or self._root == "feed"):
            self._parent, self._prefix, self._guid = local, prefix, ""
            self._location = self._date = ""
            self._base = _based(self._feed_base, attributes)
        # A `loc` counts only with the prefix of its parent: `image:loc` and the like in a `url` are not pages.
        elif self._parent and prefix == self._prefix and not (is_empty and self._parent != "entry"):
            if local == "link" and self._parent == "entry":
                self._take_link(attributes)
            elif local in (self._elements[self._parent], "lastmod") or (
                local == "guid" and self._parent == "item" and not _NO_PERMALINK.search(attributes)
            ):
                self._inside = local

    def _end(self, name: str) -> None:
        """End an element: take the URL of a `loc`, or leave its parent."""
        self._take_entry()
        local = name.rpartition(":")[2]
        if local == self._root:
            self._is_closed = True
        elif local == self._parent:
            if self._guid:
                self._entry(self._guid, self.found.urls)
            if self._date and self._location:
                self.found.dates[self._location] = self._date
            self._parent = self._guid = ""

    def _take_text(self, text: str) -> None:
        """Collect text of a `loc` up to the next tag, with its references replaced."""
        tag = _TAG_START.search(text)
        self._take(_REFERENCE.sub(_referenced, text[: tag.start()] if tag else text))

    def _take(self, text: str) -> None:
        """Collect text of a `loc`, up to the longest text that can be a URL."""
        if text and self._text_length < _MAX_TEXT_LENGTH:
            self._text.append(text[:_MAX_TEXT_LENGTH])
            self._text_length += len(text)

    def _take_entry(self) -> None:
        """Take the URL of an open `loc` if there is one."""
        if not self._inside:
            return
        text, inside = "".join(self._text).strip(), self._inside
        self._inside = ""
        self._text.clear()
        self._text_length = 0
        if inside == "lastmod":
            self._date = text if len(text) <= _MAX_DATE_LENGTH else ""
        elif inside == "guid":
            self._guid = text if text.startswith(("http:", "https:")) else ""
        elif text:
            self._guid = ""
            self._entry(text, self.found.sitemaps if self._parent == "sitemap" else self.found.urls)
            if inside == "link":
                self._parent = ""  # an RSS item has one link

    def _take_link(self, attributes: str) -> None:
        """Take the URL of an Atom entry's link, unless it links to something other than the entry itself."""
        relation, href = _REL.search(attributes), _HREF.search(attributes)
        if href and (relation is None or relation[1].strip().lower() in ("", "alternate")):
            entry_base = self._base
            self._base = _based(entry_base, attributes)
            self._entry(_attribute(href), self.found.urls)
            self._base = entry_base

    # Entries

    def _line(self, line: str) -> None:
        """Take the URL in a line of plain text."""
        line = line.strip("\ufeff\0 \t")
        # Relative URLs only as paths: an error page that came instead of a sitemap is not a list of relative ones.
        if _ABSOLUTE.match(line) or (line.startswith("/") and not any(map(str.isspace, line))):
            self._entry(line, self.found.urls)
        elif line:
            self._count_entry()
            self.found.bad += 1

    def _count_entry(self) -> None:
        """Count an entry, valid or not. Raises _Done where there are too many."""
        self._entries_read += 1
        if self._entries_read > _MAX_ENTRIES:
            self.fault(SitemapFault.TOO_LONG)
            raise _Done

    def _entry(self, text: str, into: list[str]) -> None:
        """Append the canonical URL to this list, unless it was met before. Counts it beyond MAX_URLS."""
        self._count_entry()
        try:
            url = self._base.join(text)
        except BadUrl:
            self.found.bad += 1
            return
        if url in self._seen:
            return
        if len(self._seen) >= MAX_URLS:
            self.found.beyond += 1
            self.fault(SitemapFault.TOO_LONG)
            return
        self._seen.add(url)
        self._location = url
        into.append(url)


def _attribute(value: re.Match[str]) -> str:
    """Return the value of an attribute, with its references replaced."""
    return _REFERENCE.sub(_referenced, value[1] or value[2] or "").strip()


def _based(base: BaseUrl, attributes: str) -> BaseUrl:
    """Return the base URL inside an element: that of its `xml:base`, which feeds use, or else that around it."""
    if "xml:base" not in attributes or (written := _XML_BASE.search(attributes)) is None:
        return base
    try:
        return BaseUrl(base.join(_attribute(written)))
    except BadUrl:
        return base


def _bom_length(start: bytes) -> int:
    """Return the length of the byte-order mark at the beginning; 0: there is none."""
    return next((len(bom) for bom, _ in _BOMS if start.startswith(bom)), 0)
