"""The tables of a report: the query behind each, and its columns. The page shows the first rows, a CSV file has all.

The queries read the database of `store.py` (`_SCHEMA` there describes its tables). An `outcome` is a `PageOutcome`: 0
fetched, 1 failed, 2 skipped. A `key` is the number that stands for a URL.

The names of tables are those of CSV files, and the names of columns are the first lines of these files. Programs read
both, so add rather than rename.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gossamer.policy.words import explain
from gossamer.report.store import PageStore


class Kind(StrEnum):
    """Kind of a column's values, which decides how the page shows them."""

    TEXT = "text"
    URL = "url"
    REASON = "reason"
    """Reason code of a record, shown as a sentence."""
    NUMBER = "number"
    BYTES = "bytes"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    """Name in the CSV file."""
    title: str
    """Heading on the page."""
    kind: Kind = Kind.TEXT


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report."""

    name: str
    """Name of its CSV file, without `.csv`."""
    columns: tuple[Column, ...]
    sql: str
    """Query whose columns are `columns`, in this order. Empty: the caller has the rows."""
    shown: int = 50
    """Rows on the page. A page with thousands of rows is slow on a phone."""
    csv_rows: int = -1
    """Rows in the CSV file; -1: all."""

    def rows(self, store: PageStore, limit: int) -> Iterator[tuple[Any, ...]]:
        """Yield the first `limit` rows; -1: all."""
        return store.query(f"{self.sql} LIMIT ?", (limit,))

    def total(self, store: PageStore) -> int:
        """Return the number of all rows."""
        return int(store.value(f"SELECT count(*) FROM ({self.sql})"))  # noqa: S608


def _url(name: str = "url", title: str = "URL") -> Column:
    """Return a column of URLs."""
    return Column(name, title, Kind.URL)


_LINKING = Column("linking_pages", "Linked from", Kind.NUMBER)

FAILURE_REASONS = Table(
    "failure-reasons",
    (Column("reason", "Reason", Kind.REASON), Column("pages", "Pages", Kind.NUMBER)),
    "SELECT reason, count(*) AS pages FROM pages WHERE outcome = 1 GROUP BY reason ORDER BY pages DESC, reason",
    shown=12,
)
FAILED_PAGES = Table(
    "failed-pages",
    (
        _url(),
        Column("reason", "Reason", Kind.REASON),
        Column("status", "Status", Kind.NUMBER),
        Column("error", "Error"),
        _LINKING,
        _url("linked_from", "For example from"),
    ),
    """
    SELECT pages.url, pages.reason, nullif(pages.status, 0), pages.detail, coalesce(targets.pages, 0) AS linking,
        (SELECT source.url FROM links JOIN pages AS source ON source.id = links.source
            WHERE links.target = pages.key ORDER BY links.rowid LIMIT 1)
    FROM pages LEFT JOIN targets ON targets.key = pages.key WHERE outcome = 1
    ORDER BY count(*) OVER (PARTITION BY reason) DESC, reason, linking DESC, pages.id
    """,
)
SKIPPED = Table(
    "skipped",
    (Column("reason", "Reason", Kind.REASON), Column("pages", "URLs", Kind.NUMBER)),
    "SELECT reason, count(*) AS pages FROM pages WHERE outcome = 2 GROUP BY reason ORDER BY pages DESC, reason",
)
SKIPPED_PAGES = Table(
    "skipped-pages",
    (_url(), Column("reason", "Reason", Kind.REASON), Column("rule", "Rule")),
    "SELECT url, reason, detail FROM pages WHERE outcome = 2 ORDER BY reason, id",
    shown=0,
)
STATUS_CODES = Table(
    "status-codes",
    (Column("status", "Status", Kind.NUMBER), Column("pages", "URLs", Kind.NUMBER)),
    "SELECT status, count(*) AS pages FROM pages WHERE status > 0 OR outcome = 1 GROUP BY status"
    " ORDER BY pages DESC, status",
    shown=20,
)
DEPTHS = Table(
    "depths",
    (
        Column("depth", "Links from a start URL", Kind.NUMBER),
        Column("pages", "Pages", Kind.NUMBER),
        Column("failed", "Failed", Kind.NUMBER),
    ),
    "SELECT depth, sum(outcome = 0), sum(outcome = 1) FROM pages WHERE outcome < 2 GROUP BY depth ORDER BY depth",
    shown=20,
)
SLOWEST = Table(
    "slowest-pages",
    (_url(), Column("seconds", "Time", Kind.SECONDS), Column("bytes", "Size", Kind.BYTES)),
    "SELECT url, seconds, bytes FROM pages WHERE seconds > 0 ORDER BY seconds DESC, id",
    shown=10,
    csv_rows=1000,
)
LARGEST = Table(
    "largest-pages",
    (_url(), Column("bytes", "Size", Kind.BYTES), Column("type", "Type")),
    "SELECT url, bytes, type FROM pages WHERE bytes > 0 ORDER BY bytes DESC, id",
    shown=10,
    csv_rows=1000,
)
TYPES = Table(
    "content-types",
    (
        Column("type", "Type"),
        Column("pages", "Pages", Kind.NUMBER),
        Column("bytes", "Size", Kind.BYTES),
    ),
    "SELECT type, count(*) AS pages, sum(bytes) FROM pages WHERE outcome = 0 GROUP BY type ORDER BY pages DESC, type",
    shown=10,
)
DOMAINS = Table(
    "domains",
    (
        Column("host", "Host"),
        Column("pages", "Pages", Kind.NUMBER),
        Column("failed", "Failed", Kind.NUMBER),
        Column("skipped", "Skipped", Kind.NUMBER),
        Column("bytes", "Size", Kind.BYTES),
        Column("median_seconds", "Median time", Kind.SECONDS),
        Column("slowest_seconds", "Slowest", Kind.SECONDS),
    ),
    """
    SELECT host, sum(outcome = 0) AS fetched, sum(outcome = 1) AS failed, sum(outcome = 2), sum(bytes),
        max(CASE WHEN place = (timed + 1) / 2 THEN seconds END), max(seconds)
    FROM (SELECT host, outcome, bytes, seconds, count(seconds) OVER (PARTITION BY host) AS timed,
        row_number() OVER (PARTITION BY host ORDER BY seconds NULLS LAST) AS place FROM pages)
    GROUP BY host ORDER BY fetched + failed DESC, host
    """,
    shown=25,
)
REDIRECTS = Table(
    "redirects",
    (
        _url(),
        _url("leads_to", "Leads to"),
        Column("hops", "Hops", Kind.NUMBER),
        Column("statuses", "Statuses"),
        Column("result", "Result", Kind.REASON),
        _LINKING,
    ),
    """
    SELECT pages.url, coalesce(final, pages.url), hops,
        (SELECT group_concat(json_extract(value, '$[1]'), ' ') FROM json_each(chain)), reason,
        coalesce(targets.pages, 0) AS linking
    FROM pages LEFT JOIN targets ON targets.key = pages.key WHERE hops > 0
    ORDER BY linking DESC, hops DESC, pages.id
    """,
    shown=25,
)
BROKEN_LINKS = Table(
    "broken-links",
    (
        _url("broken_url", "Broken URL"),
        Column("reason", "Reason", Kind.REASON),
        _LINKING,
        _url("page", "Page with the link"),
        Column("text", "Text of the link"),
    ),
    """
    SELECT pages.url, pages.reason, targets.pages, source.url, links.text
    FROM pages JOIN targets ON targets.key = pages.key JOIN links ON links.target = pages.key
        JOIN pages AS source ON source.id = links.source
    WHERE pages.outcome = 1 ORDER BY targets.pages DESC, pages.id, links.rowid
    """,
)
DUPLICATE_TITLES = Table(
    "duplicate-titles",
    (Column("title", "Title"), Column("pages", "Pages", Kind.NUMBER), _url()),
    """
    SELECT titles.title, repeated.pages, coalesce(pages.final, pages.url)
    FROM repeated_titles AS repeated JOIN titles ON titles.title = repeated.title JOIN pages ON pages.id = titles.id
    ORDER BY repeated.pages DESC, titles.title, pages.id
    """,
)
DUPLICATE_CONTENTS = Table(
    "duplicate-contents",
    (Column("content", "Content"), Column("pages", "Pages", Kind.NUMBER), Column("bytes", "Size", Kind.BYTES), _url()),
    """
    SELECT printf('%016x', pages.content), repeated.pages, pages.bytes, coalesce(pages.final, pages.url)
    FROM repeated_contents AS repeated JOIN pages ON pages.content = repeated.content AND pages.outcome = 0
    ORDER BY repeated.pages DESC, pages.content, pages.id
    """,
)
UNLINKED = Table(
    "unlinked-pages",
    (_url(), Column("status", "Status", Kind.NUMBER), Column("result", "Result", Kind.REASON)),
    """
    SELECT listed.url, nullif(pages.status, 0),
        CASE WHEN pages.id IS NULL THEN 'not fetched' ELSE pages.reason END
    FROM listed LEFT JOIN pages ON pages.key = listed.key
    WHERE listed.key NOT IN (SELECT key FROM targets)
        AND listed.key NOT IN (SELECT key_of(final) FROM pages JOIN targets USING (key) WHERE final IS NOT NULL)
    ORDER BY pages.id IS NULL, pages.id, listed.rowid
    """,
)

PERCENTILES = Table(
    "response-percentiles",
    (Column("percent", "Percent", Kind.NUMBER), Column("seconds", "Time", Kind.SECONDS)),
    "",
)
"""Time that this percentage of the responses did not exceed; at 100: the time of the slowest one."""

# Titles and contents that pages of different URLs share. Counted once: several tables and figures read them.
_DERIVED = """
CREATE TABLE repeated_titles AS
    SELECT title, count(DISTINCT coalesce(final, url)) AS pages FROM titles JOIN pages USING (id)
    GROUP BY title HAVING count(DISTINCT coalesce(final, url)) > 1;
CREATE TABLE repeated_contents AS
    SELECT content, count(DISTINCT coalesce(final, url)) AS pages FROM pages WHERE content IS NOT NULL
    GROUP BY content HAVING count(DISTINCT coalesce(final, url)) > 1;
CREATE INDEX pages_content ON pages(content);
CREATE INDEX titles_title ON titles(title);
"""

TABLES = (
    FAILURE_REASONS, FAILED_PAGES, SKIPPED, SKIPPED_PAGES, STATUS_CODES, DEPTHS, SLOWEST, LARGEST, TYPES, DOMAINS,
    REDIRECTS, BROKEN_LINKS, DUPLICATE_TITLES, DUPLICATE_CONTENTS, UNLINKED,
)  # fmt: skip
"""Tables that come from one query each. The page has further ones that belong to its charts."""


def derive(store: PageStore) -> None:
    """Create the database tables that several queries read. Call this once all pages and links are in the store."""
    store.database.executescript(_DERIVED)


def csv_value(column: Column, value: Any) -> Any:
    """Return a value as it is written to a CSV file. A text that a spreadsheet would take for a formula gets a leading
    quote."""
    if value is None:
        return ""
    if column.kind is Kind.SECONDS:
        return f"{value:.6f}"
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


def reason_words(reason: str) -> str:
    """Return the words for a reason on the page. An empty reason: the page was fetched."""
    return explain(reason).title if reason else "Fetched"
