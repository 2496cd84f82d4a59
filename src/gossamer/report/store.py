"""Facts about the pages of a crawl, in a temporary SQLite database.

The database is a file without a name: it is gone when the process ends, however it ends. Memory must not grow with the
number of pages, except by the few bytes that `links.py` needs for each page and for each URL of interest.
"""

import codecs
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from enum import IntEnum
from types import TracebackType
from typing import Any, Self

import xxhash

from gossamer.errors import BadUrl
from gossamer.extract.sitemap import looks_like_sitemap, parse_sitemap
from gossamer.model.request import DropReason
from gossamer.policy.urls import canonical, fingerprint
from gossamer.report.records import PageFacts
from gossamer.storage import sqlite

_CACHE_KIB = 64 * 1024
"""Memory for the database's pages. A smaller one makes large reports slower."""
_BATCH = 1000
"""Rows that are inserted at once."""
_MAX_CRAWLS = 10
"""Ids of crawls that are kept, for the page's heading."""
_MAX_LISTED = 2_000_000
"""URLs of sitemaps that are kept. Each takes eight bytes of memory and its length on disk."""
_MAX_TEXT = 2000
"""Characters of a text from the web (reason, error, type) that are kept."""
_MAX_TYPE = 100
"""Characters of a content type that are kept."""
_MAX_HOST = 300
"""Characters of a host that are kept. Must exceed the longest name in DNS and a port."""
_SNIFFED = 16 * 1024
"""Characters by which a sitemap is recognised."""


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
    return fingerprint(url.encode("utf-8", "surrogatepass"), seed=0)


class PageStore:
    """The facts of one report. Pages are numbered from 0 in the order in which they are added.

    Use it in a `with` statement, which makes all additions one transaction, and closes the database.
    """

    def __init__(self) -> None:
        # An empty name makes a temporary database on disk, which SQLite deletes as soon as it has opened it.
        self.database = sqlite.connect("")
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
            # Text is in UTF-8 here, whatever the sitemap declares.
            mark = b"" if page.body_encoding == "base64" else codecs.BOM_UTF8
            entries = parse_sitemap(mark + page.raw_body(), canonical(page.final_url))
        except BadUrl:
            return
        if self.value("SELECT count(*) FROM listed") < _MAX_LISTED:
            self.insert("INSERT OR IGNORE INTO listed VALUES(?, ?)", ((key_of(url), url) for url in entries.urls))


def _is_sitemap(page: PageFacts) -> bool:
    """Return whether a page is a sitemap, compressed or not."""
    if page.body_encoding == "base64":
        return looks_like_sitemap(page.raw_body())
    return looks_like_sitemap((page.body or "")[:_SNIFFED].encode("utf-8", "replace"))


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
