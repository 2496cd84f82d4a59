"""Facts about the pages of a crawl: read from files of records, and kept in a temporary SQLite database.

`sinks/read.py` reads the formats. JSON Lines, which most crawls write, are read here: only the fields that a report
needs, which is faster, and past damaged lines. The database is a file without a name: it is gone when the process ends,
however it ends. Safe to change: what counts as damage, columns, which nothing outside this package reads, and the
limits below. Fixed: a file is read in the same order every time, because the report reads it twice and numbers the
pages by their place; and memory must not grow with the number of pages, except by the few bytes that `links.py` needs
for each page and for each URL of interest.
"""

import base64
import binascii
import json
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec
import xxhash
import zstandard

from gossamer.errors import BadInput, BadUrl
from gossamer.extract.encoding import decode
from gossamer.extract.sitemap import is_gzip, parse_sitemap
from gossamer.model.record import PageRecord, RecordLink, RedirectHop
from gossamer.model.request import DropReason
from gossamer.policy.urls import canonical
from gossamer.sinks.framing import PlainLines
from gossamer.sinks.open import CSV
from gossamer.sinks.read import TORN, Source, whole_units

_SHOWN_CHARACTERS = 200
"""Characters of an error's text that are kept. May be changed freely."""
_LINES = frozenset({".jsonl", ".jsonl.gz", ".jsonl.zst"})
"""Endings of the files that are read here, as `Source.ending` has them. The format must be JSON Lines."""


class PageFacts(msgspec.Struct):
    """The fields of a page record (`PageRecord`) that a report needs, under the same names, which are fixed. A field
    that the record lacks has the value for "unknown"."""

    type: str = "page"
    crawlid: str = ""
    depth: int = 0
    url: str = ""
    response_url: str = ""
    status_code: int = 0
    body: str | None = None
    """None: the record was written without bodies."""
    body_encoding: str = "text"
    encoding: str = ""
    content_type: str = ""
    links: list[RecordLink] = []
    timestamp: str = ""
    success: bool = True
    reason: str = ""
    exception: str = ""
    redirects: list[RedirectHop] = []
    timings: dict[str, float] = {}
    truncated: bool = False

    @property
    def final_url(self) -> str:
        """URL of the response, after redirects."""
        return self.response_url or self.url

    def raw_body(self) -> bytes:
        """Return the body as bytes: as they came if they were no text, else as UTF-8."""
        if self.body_encoding != "base64":
            return (self.body or "").encode("utf-8", "replace")
        try:
            return base64.b64decode(self.body or "")
        except (binascii.Error, ValueError):
            return b""

    def text(self) -> str:
        """Return the body as text. Bytes that cannot be decoded become U+FFFD."""
        if self.body_encoding != "base64":
            return self.body or ""
        return decode(self.raw_body(), self.content_type).text


_line = msgspec.json.Decoder(PageFacts)


class RecordFile:
    """A file of records. `pages` may be called more than once; the other attributes describe the latest call."""

    def __init__(self, path: Path) -> None:
        """Raises BadInput for a file that does not exist or cannot be opened, and for an unknown format."""
        self.path = path
        self.items = 0
        """Records of items, which a report does not use."""
        self.unreadable = 0
        """Lines that are no records."""
        self.first_error = ""
        """Place and reason of the first of them."""
        self.torn = False
        """True: the end is incomplete, because the file is being written or its writer was killed."""
        try:
            path.open("rb").close()
            self._source = Source(path)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}. Name a file with the records of a crawl.") from None

    def pages(self) -> Iterator[PageFacts]:
        """Yield the pages in the file's order. Raises BadInput when the file cannot be read at all."""
        self.items = self.unreadable = 0
        self.first_error, self.torn = "", False
        if self._source.ending not in _LINES:
            yield from self._converted_pages()
            return
        try:
            for page in self._pages_of_lines():
                if page.type == "page" and page.url:
                    yield page
                elif page.type == "item":
                    self.items += 1
                else:
                    self._count_unreadable("a record without a URL")
        except (OSError, EOFError, zstandard.ZstdError, zlib.error) as error:
            raise BadInput(f"{self.path}: {error}") from error

    def _converted_pages(self) -> Iterator[PageFacts]:
        """Yield the pages of another format than JSON Lines, which `sinks/read.py` reads as records."""
        names = PageFacts.__struct_fields__
        for output in self._source.outputs():
            record = output.record
            if not isinstance(record, PageRecord):
                self.items += 1
                continue
            page = PageFacts(**{name: getattr(record, name) for name in names})
            if self._source.ending == CSV:
                page.body = None  # such a table has no bodies
            yield page
        self.torn = bool(self._source.lacks[TORN])

    def _count_unreadable(self, error: str) -> None:
        self.unreadable += 1
        self.first_error = self.first_error or error[:_SHOWN_CHARACTERS]

    def _pages_of_lines(self) -> Iterator[PageFacts]:
        """Yield all records of JSON Lines, those that are no pages, too."""
        self._source.lacks.clear()
        with self.path.open("rb") as stream:
            yield from self._lines(whole_units(self._source, stream, PlainLines()))
        self.torn = bool(self._source.lacks[TORN])

    def _lines(self, stream: BinaryIO) -> Iterator[PageFacts]:
        """Yield the records, and count the lines that are none. Empty lines do not count."""
        for number, line in enumerate(stream, 1):
            try:
                page = _line.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if line.strip():
                    self._count_unreadable(f"line {number}: {error}")
            else:
                yield page


_CACHE_KIB = 64 * 1024
"""Memory for the database's pages. May be changed freely: a smaller one makes large reports slower."""
_BATCH = 1000
"""Rows that are inserted at once. May be changed freely."""
_MAX_CRAWLS = 10
"""Ids of crawls that are kept, for the page's heading. May be changed freely."""
_MAX_LISTED = 2_000_000
"""URLs of sitemaps that are kept. May be changed: each takes eight bytes of memory and its length on disk."""
_MAX_TEXT = 2000
"""Characters of a text from the web (reason, error, type) that are kept. May be changed freely."""
_MAX_TYPE = 100
"""Characters of a content type that are kept. May be changed freely."""
_MAX_HOST = 300
"""Characters of a host that are kept. May be changed, but must exceed the longest name in DNS and a port."""
_SITEMAP_ROOT = re.compile(r"<(?:\w+:)?(?:urlset|sitemapindex)[\s>]")
"""Root element of a sitemap. Fixed by sitemaps.org."""
_SNIFFED = 1024
"""Beginning of a body in which a sitemap's root element is looked for, as the worker does."""


class PageOutcome(IntEnum):
    """Result of a request, as the report counts it. The queries of `tables.py`, `figures.py` and `links.py` contain the
    numbers."""

    PAGE = 0
    FAILED = 1
    SKIPPED = 2
    """Left out on purpose: by robots.txt, by a filter, or as a redirect to a page that was fetched already."""


_SKIPPED = frozenset(reason.value for reason in DropReason)
"""Reasons that the summary of a crawl counts as "not fetched", not as failed."""

# pages: one row for each record, `id` being its number and `key` what `key_of` returns for its URL.
#   final: URL of the response; NULL: the same
#   outcome: PageOutcome
#   status: status code; 0 without a response
#   detail: error, or the rule of a skipped URL
#   bytes: size of the body; NULL without bodies
#   time: Unix time; 0: unknown
#   content: hash of the body; NULL: none
#   chain: redirects as JSON
#   hops: number of redirects
# titles: by the id of the page. listed: URLs in sitemaps.
# targets: by key, how many pages link to a URL of interest. links: those pages (source: id, target: key) and the texts.
_SCHEMA = """
CREATE TABLE pages(
    id INTEGER PRIMARY KEY, key INTEGER, url TEXT, final TEXT, outcome INTEGER, status INTEGER, reason TEXT,
    detail TEXT, depth INTEGER, seconds REAL, bytes INTEGER, host TEXT, type TEXT, time REAL, content INTEGER,
    chain TEXT, hops INTEGER, truncated INTEGER
);
CREATE TABLE titles(id INTEGER PRIMARY KEY, title TEXT);
CREATE TABLE listed(key INTEGER PRIMARY KEY, url TEXT);
CREATE TABLE targets(key INTEGER PRIMARY KEY, pages INTEGER);
CREATE TABLE links(target INTEGER, source INTEGER, text TEXT);
"""
_PAGE_COLUMNS = 18
"""Number of columns of the table `pages`. To add one, add it to the table, to `_row` and to this number."""


def key_of(url: str) -> int:
    """Return the number that stands for a URL: 64 bits with sign, as SQLite stores it."""
    digest = xxhash.xxh3_64_intdigest(url.encode("utf-8", "surrogatepass"))
    return digest - (1 << 64) if digest >= 1 << 63 else digest


class PageStore:
    """The facts of one report. Pages are numbered from 0 in the order in which they are added.

    Use it in a `with` statement, which makes all additions one transaction, and closes the database.
    """

    def __init__(self) -> None:
        # An empty name makes a temporary database on disk, which SQLite deletes as soon as it has opened it.
        self.database = sqlite3.connect("", isolation_level=None)
        self.database.executescript(
            f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE;"
            f"PRAGMA cache_size=-{_CACHE_KIB};{_SCHEMA}"
        )
        self.database.create_function("key_of", 1, key_of, deterministic=True)
        self.added = 0
        """Records of pages that were added."""
        self.replaced = 0
        """Those of them that a later record of the same URL replaces."""
        self.sitemaps = 0
        """Sitemaps among the pages."""
        self.crawls: dict[str, None] = {}
        """Ids of the first _MAX_CRAWLS crawls, in the order of their appearance."""
        self._rows: list[tuple[Any, ...]] = []
        """Rows of `pages` that are not inserted yet."""

    def __enter__(self) -> Self:
        self.database.execute("BEGIN")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.database.close()

    def add(self, page: PageFacts) -> None:
        """Add a page, and the entries of a sitemap."""
        self._rows.append(_row(self.added, page))
        self.added += 1
        if page.crawlid and len(self.crawls) < _MAX_CRAWLS:
            self.crawls[page.crawlid[:_MAX_TEXT]] = None
        # Depth 0, as in the worker: sitemaps and seeds have it, so no linked page is taken for a sitemap.
        if page.depth == 0 and page.success and page.body and _is_sitemap(page):
            self._add_sitemap(page)
        if len(self._rows) >= _BATCH:
            self._flush()

    def finish_pages(self) -> None:
        """Keep only the latest record of each URL: a repeated crawl appends to the same file, and so does a retry.

        Of equal times (0: unknown), the later place in the file counts.
        """
        self._flush()
        self.database.execute("CREATE INDEX pages_key ON pages(key)")
        self.replaced = self.database.execute(
            "DELETE FROM pages WHERE EXISTS (SELECT 1 FROM pages AS later WHERE later.key = pages.key"
            " AND (later.time, later.id) > (pages.time, pages.id))"
        ).rowcount

    def query(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query."""
        with closing(self.database.execute(sql, values)) as cursor:
            yield from cursor

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Return the only value of the only row of a query."""
        return self.database.execute(sql, values).fetchone()[0]

    def insert(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run an INSERT for each row."""
        self.database.executemany(sql, rows)

    def _flush(self) -> None:
        marks = ",".join("?" * _PAGE_COLUMNS)
        self.insert(f"INSERT INTO pages VALUES({marks})", self._rows)
        self._rows.clear()

    def _add_sitemap(self, page: PageFacts) -> None:
        """Add the URLs that a sitemap lists. One whose own URL is invalid has no entries, but counts."""
        self.sitemaps += 1
        try:
            entries = parse_sitemap(page.raw_body(), canonical(page.final_url))
        except BadUrl:
            return
        if self.value("SELECT count(*) FROM listed") < _MAX_LISTED:
            self.insert("INSERT OR IGNORE INTO listed VALUES(?, ?)", ((key_of(url), url) for url in entries.urls))


def _is_sitemap(page: PageFacts) -> bool:
    """Return whether a page is a sitemap: XML with its root element, or compressed XML."""
    if page.body_encoding == "base64":
        return is_gzip(page.raw_body()[:2])
    return _SITEMAP_ROOT.search(page.body or "", 0, _SNIFFED) is not None


def _row(number: int, page: PageFacts) -> tuple[Any, ...]:
    """Return a page as a row of the table `pages`, in the order of its columns."""
    url, final = page.url, page.final_url
    body = page.raw_body() if page.body else b""
    if page.success:
        outcome = PageOutcome.PAGE
    else:
        outcome = PageOutcome.SKIPPED if page.reason in _SKIPPED else PageOutcome.FAILED
    chain = [(hop.url, hop.status) for hop in page.redirects]
    return (
        number,
        key_of(url),
        _storable(url),
        None if final == url else _storable(final),
        int(outcome),
        _bounded(page.status_code),
        _storable(page.reason[:_MAX_TEXT]),
        _storable(page.exception[:_MAX_TEXT]),
        _bounded(page.depth),
        page.timings.get("total"),
        len(body) if page.body is not None else None,
        _host(final),
        _storable(page.content_type.partition(";")[0].strip().lower()[:_MAX_TYPE]),
        _time(page.timestamp),
        # Another mapping to 64 bits with sign than in key_of. Any would do: it is only compared with its like.
        xxhash.xxh3_64_intdigest(body) - (1 << 63) if body and page.success else None,
        _storable(json.dumps(chain)) if chain else None,
        len(chain),
        page.truncated,
    )


_END_OF_TIME = 253402300800.0
"""Beginning of the year 10000, of which Python has no dates. Fixed."""


def _storable(text: str) -> str:
    """Return the text without lone surrogates, which SQLite refuses."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _bounded(number: int) -> int:
    """Return a number that SQLite can store: the nearest one with 64 bits."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))


def _host(url: str) -> str:
    """Return the host of a URL, with a port that is not the default."""
    _, _, after_scheme = url.partition("//")
    authority, _, _ = after_scheme.partition("/")
    return _storable(authority.rpartition("@")[-1][:_MAX_HOST])


def _time(timestamp: str) -> float:
    """Return Unix time; 0 if it is unknown. A timestamp without a zone is UTC."""
    if not timestamp:
        return 0.0
    try:
        moment = datetime.fromisoformat(timestamp)
        found = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return found if found < _END_OF_TIME else 0.0
