"""Figures of a report, counted from the store.

The store (`store.py`) is an SQLite database of the facts about a crawl's pages. Numbers are true totals, also where the
page shows only the first rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from gossamer.policy.words import Explanation, bytes_text, explain, status_phrase
from gossamer.report import tables
from gossamer.report.charts import MAX_LABELS, Bar
from gossamer.report.links import LinkFinder
from gossamer.report.store import PageOutcome, PageStore
from gossamer.report.tables import Table
from gossamer.telemetry.refusals import refused_by_sites

_FAILED_SHOWN = 15
"""Failed URLs that the page shows for each reason."""
_EXAMPLES = 3
"""URLs that the page shows for a broken link, or for a title that several pages have."""
_GROUPS = 25
"""Broken URLs, titles or contents that the page shows."""
_MOST_BUCKETS = 60
"""Maximum number of columns of the chart of pages over time. A column is a bucket of pages."""
_BUCKET_SECONDS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
    2592000, 31536000, 315360000,
)  # fmt: skip
"""Lengths that a bucket may have: 1 s to 10 years. The shortest that needs no more than _MOST_BUCKETS is taken."""
_DAY = 86400
"""Seconds of a day."""

# Beginnings of the bins of the histograms, in seconds and bytes. The last bin has no end.
_TIME_EDGES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_SIZE_EDGES = (0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7)

_PERCENTS = (50, 90, 95, 99)
"""Percentiles of the response times, the median first."""
_FEW = 20
"""Fewer responses have only a median and a slowest one: a share of 99 % of them says nothing."""
_DEPTHS_SHOWN = 20
"""Columns of the chart of depths. The last one has all deeper pages, too."""


@dataclass(slots=True)
class ReasonGroup:
    """URLs with the same reason, which failed or were skipped."""

    explanation: Explanation
    total: int
    pages: list[tuple[Any, ...]]
    """Rows of `tables.FAILED_PAGES` or `tables.SKIPPED_PAGES`."""


@dataclass(slots=True)
class UrlGroup:
    """URLs that belong together: pages that link to a broken URL, or that share a title or a content."""

    heading: str
    total: int
    urls: list[tuple[str, str]]
    """URL, and the text of its link if there is one."""
    detail: str = ""
    """Reason why a URL is broken, in words."""
    size: int | None = None
    """Bytes of a content that several pages have."""


@dataclass(slots=True)
class Figures:
    """Everything that the page shows."""

    pages: int = 0
    failed: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Refusals by sites among them, by kind."""
    skipped: int = 0
    bytes: int | None = None
    """Size of all bodies. None: the records have none."""
    hosts: int = 0
    main_host: str = ""
    """Host with the most pages."""
    began: float = 0.0
    """Unix time of the first record; 0: unknown."""
    ended: float = 0.0
    """Unix time of the last record; 0: unknown."""
    percentiles: list[tuple[int, float]] = field(default_factory=list)
    """(Percent, seconds), the median first: so many percent of the responses took no longer."""
    failures: list[ReasonGroup] = field(default_factory=list)
    """The most frequent reasons."""
    failure_reasons: int = 0
    """Number of all reasons."""
    skips: list[ReasonGroup] = field(default_factory=list)
    over_time: list[Bar] = field(default_factory=list)
    bucket_seconds: int = 0
    requested: int = 0
    """URLs that were requested: those with a response, and those that failed without one."""
    statuses: list[tuple[int, str, int]] = field(default_factory=list)
    """(Status, phrase, number of URLs); status 0: no response."""
    depths: list[Bar] = field(default_factory=list)
    times: list[Bar] = field(default_factory=list)
    sizes: list[Bar] = field(default_factory=list)
    broken: list[UrlGroup] = field(default_factory=list)
    broken_total: int = 0
    same_title: list[UrlGroup] = field(default_factory=list)
    same_title_total: int = 0
    same_content: list[UrlGroup] = field(default_factory=list)
    same_content_total: int = 0
    untitled: int = 0
    """HTML pages without a title."""
    links_known: int = 0
    """Pages whose links are known."""
    links_unknown: int = 0
    """Pages whose links are unknown."""
    sitemaps: int = 0
    listed: int = 0
    """URLs in sitemaps."""
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    """The first rows of each table, by the table's name."""
    totals: dict[str, int] = field(default_factory=dict)
    """The number of all rows of each table, by the table's name."""


def collect(store: PageStore, finder: LinkFinder) -> Figures:
    """Return the figures of a store that is complete. `finder`: has read the links."""
    figures = Figures(
        links_known=finder.pages_with_links, links_unknown=finder.pages_without_links, sitemaps=store.sitemaps
    )
    # In SQL, `outcome` is the number of a PageOutcome: 0 page, 1 failed, 2 skipped.
    counts = dict(store.query("SELECT outcome, count(*) FROM pages GROUP BY outcome"))
    figures.pages = counts.get(PageOutcome.PAGE, 0)
    figures.failed = counts.get(PageOutcome.FAILED, 0)
    figures.skipped = counts.get(PageOutcome.SKIPPED, 0)
    figures.bytes = store.value("SELECT sum(bytes) FROM pages")
    figures.requested = store.value("SELECT count(*) FROM pages WHERE status > 0 OR outcome = 1")
    figures.hosts = store.value("SELECT count(DISTINCT host) FROM pages")
    figures.listed = store.value("SELECT count(*) FROM listed")
    for table in tables.TABLES:
        figures.rows[table.name] = list(table.rows(store, table.shown))
        figures.totals[table.name] = table.total(store)
    if figures.hosts:
        figures.main_host = figures.rows[tables.DOMAINS.name][0][0]
    figures.failures = list(_by_reason(store, figures, tables.FAILURE_REASONS, tables.FAILED_PAGES, _FAILED_SHOWN))
    figures.skips = list(_by_reason(store, figures, tables.SKIPPED, tables.SKIPPED_PAGES, _EXAMPLES))
    figures.refused = refused_by_sites(dict(tables.FAILURE_REASONS.rows(store, -1)))
    figures.failure_reasons = figures.totals[tables.FAILURE_REASONS.name]
    figures.statuses = [
        (status, status_phrase(status) if status else "No response", count)
        for status, count in figures.rows[tables.STATUS_CODES.name]
    ]
    _add_distributions(store, figures)
    _add_times(store, figures)
    _add_groups(store, figures)
    return figures


def _by_reason(store: PageStore, figures: Figures, reasons: Table, pages: Table, shown: int) -> Iterator[ReasonGroup]:
    """Yield a group for each row of the table `reasons`, with the first `shown` rows of the table `pages`."""
    sql = f"SELECT * FROM ({pages.sql}) WHERE reason = ? LIMIT ?"  # noqa: S608 (a constant)
    for reason, total in figures.rows[reasons.name]:
        yield ReasonGroup(explain(reason), total, list(store.query(sql, (reason, shown))))


def _add_distributions(store: PageStore, figures: Figures) -> None:
    """Add depths, sizes and response times."""
    depths = [Bar(str(depth), good, bad) for depth, good, bad in tables.DEPTHS.rows(store, -1)]  # -1: all
    if len(depths) > _DEPTHS_SHOWN:
        rest = depths[_DEPTHS_SHOWN - 1 :]
        more = Bar(f"{rest[0].label}+", sum(bar.good for bar in rest), sum(bar.bad for bar in rest))
        depths = [*depths[: _DEPTHS_SHOWN - 1], more]
    figures.depths = depths
    figures.times = _histogram(store, "seconds", "status > 0 AND seconds IS NOT NULL", _TIME_EDGES, seconds_text)
    figures.sizes = _histogram(store, "bytes", "outcome = 0 AND bytes IS NOT NULL", _SIZE_EDGES, size_text)
    timed = "FROM pages WHERE status > 0 AND seconds IS NOT NULL"
    count = store.value(f"SELECT count(*) {timed}")
    percents = _PERCENTS if count >= _FEW else _PERCENTS[:1] if count else ()
    for percent in percents:
        place = min(count - 1, count * percent // 100)
        sql = f"SELECT seconds {timed} ORDER BY seconds LIMIT 1 OFFSET ?"
        figures.percentiles.append((percent, store.value(sql, (place,))))
    if count:
        figures.percentiles.append((100, store.value(f"SELECT max(seconds) {timed}")))


def _histogram(
    store: PageStore, column: str, where: str, edges: Sequence[float], text: Callable[[float], str]
) -> list[Bar]:
    """Return a bar for each bin between the first and the last that is not empty.

    `column`, `where`: of the table `pages`. `edges`: where the bins begin. `text`: returns an edge as a label."""
    parts = [f"sum({column} >= {low} AND {column} < {high})" for low, high in pairwise(edges)]
    parts.append(f"sum({column} >= {edges[-1]})")
    sql = f"SELECT {', '.join(parts)} FROM pages WHERE {where}"  # noqa: S608 (numbers and columns of this module)
    counts = [count or 0 for count in next(store.query(sql))]
    filled = [index for index, count in enumerate(counts) if count]
    if not filled:
        return []
    labels = [text(low) for low in edges]
    ranges = [*(f"{low} to {high}" for low, high in pairwise(labels)), f"{labels[-1]} and more"]
    return [Bar(labels[index], counts[index], range=ranges[index]) for index in range(filled[0], filled[-1] + 1)]


def _add_times(store: PageStore, figures: Figures) -> None:
    """Add the pages over time: a bar for each bucket of equal length.

    A bar has a label if it begins at a multiple of `between` seconds, so labels are round times, far enough from each
    other. (With buckets of 2 s and `between` 15 s, only every second multiple is the beginning of a bucket.)
    """
    first, last = next(store.query("SELECT min(time), max(time) FROM pages WHERE time > 0"))
    if first is None:
        return
    figures.began, figures.ended = first, last
    fitting = (width for width in _BUCKET_SECONDS if (last // width - first // width) < _MOST_BUCKETS)
    width = figures.bucket_seconds = next(fitting, _BUCKET_SECONDS[-1])
    sql = (  # times are positive: the cast cuts the fraction off
        "SELECT cast(time / ? AS INTEGER) AS bucket, sum(outcome = 0), sum(outcome = 1) FROM pages"
        " WHERE time > 0 GROUP BY bucket"
    )
    counts = {bucket: (good, bad) for bucket, good, bad in store.query(sql, (float(width),))}
    buckets = range(int(first // width), int(last // width) + 1)
    far_enough = (length for length in _BUCKET_SECONDS if len(buckets) * width <= length * MAX_LABELS)
    between = next(far_enough, _BUCKET_SECONDS[-1])
    form = _label_form(between, is_one_day=first // _DAY == last // _DAY)
    for bucket in buckets:
        moment = datetime.fromtimestamp(bucket * width, UTC)
        figures.over_time.append(
            Bar(
                moment.strftime(form),
                *counts.get(bucket, (0, 0)),
                range=moment.strftime("%Y-%m-%d %H:%M:%S"),
                has_label=bucket * width % between == 0,
            )
        )


def _label_form(seconds_between: int, *, is_one_day: bool) -> str:
    """Return the format of the labels of a time axis."""
    if seconds_between < 60:
        return "%H:%M:%S"
    if seconds_between < _DAY:
        return "%H:%M" if is_one_day else "%-d %b, %H:%M"
    return "%-d %b" if seconds_between < 30 * _DAY else "%b %Y"


def _add_groups(store: PageStore, figures: Figures) -> None:
    """Add broken links, and titles and contents that several pages have: the most frequent, each with examples.

    The columns used here (store.py has all tables; `tables.derive` makes the last two):
        pages: id; key (hash of the URL); url; final (URL after redirects); content (hash of the body; NULL: none)
        targets: key of a failed URL, and how many pages link to it
        links: target (key of a failed URL), source (id of the page with the link), text of the link
        titles: id of a page, title
        repeated_titles, repeated_contents: title or content, and how many pages have it
    In queries for the URLs of a group, the second column is the text of a link; '' where there is no link.
    """
    joined = "FROM pages JOIN targets USING (key) WHERE outcome = 1"
    figures.broken_total = store.value(f"SELECT count(*) {joined}")
    broken = f"SELECT url, reason, targets.pages, key {joined} ORDER BY targets.pages DESC, id LIMIT ?"
    sources = "SELECT url, text FROM links JOIN pages ON id = source WHERE target = ? ORDER BY links.rowid LIMIT ?"
    for url, reason, total, key in list(store.query(broken, (_GROUPS,))):
        linking = list(store.query(sources, (key, _EXAMPLES)))
        figures.broken.append(UrlGroup(url, total, linking, explain(reason).title))
    figures.same_title_total = store.value("SELECT count(*) FROM repeated_titles")
    titles = "SELECT title, pages FROM repeated_titles ORDER BY pages DESC, title LIMIT ?"
    with_title = (
        "SELECT coalesce(final, url) AS shown, '' FROM titles JOIN pages USING (id) WHERE title = ?"
        " GROUP BY shown ORDER BY min(id) LIMIT ?"
    )
    for title, total in list(store.query(titles, (_GROUPS,))):
        figures.same_title.append(UrlGroup(title, total, list(store.query(with_title, (title, _EXAMPLES)))))
    figures.same_content_total = store.value("SELECT count(*) FROM repeated_contents")
    contents = "SELECT content, pages FROM repeated_contents ORDER BY pages DESC, content LIMIT ?"
    alike = (
        "SELECT coalesce(final, url) AS shown, '' FROM pages WHERE content = ? GROUP BY shown ORDER BY min(id) LIMIT ?"
    )
    of_content = "SELECT bytes, title FROM pages LEFT JOIN titles USING (id) WHERE content = ? ORDER BY id LIMIT 1"
    for content, total in list(store.query(contents, (_GROUPS,))):
        size, title = next(store.query(of_content, (content,)))
        urls = list(store.query(alike, (content, _EXAMPLES)))
        figures.same_content.append(UrlGroup(title or "", total, urls, size=size))
    figures.untitled = store.value(
        "SELECT count(*) FROM pages WHERE outcome = 0 AND type IN ('text/html', 'application/xhtml+xml') AND bytes > 0"
        " AND id NOT IN (SELECT id FROM titles)"
    )


def chart_table(name: str, first: str, bars: Sequence[Bar], *, stacked: bool) -> tuple[Table, list[tuple[Any, ...]]]:
    """Return the bars of a chart as a table for a CSV file, and its rows."""
    columns = [tables.Column(first, first), tables.Column("pages", "Pages", tables.Kind.NUMBER)]
    if stacked:
        columns.append(tables.Column("failed", "Failed", tables.Kind.NUMBER))
    rows = [(bar.name, bar.good, bar.bad)[: len(columns)] for bar in bars]
    return Table(name, tuple(columns), ""), rows


def seconds_text(seconds: float) -> str:
    """Return a short time for a person: `80 ms`, `1.3 s`, `12 min 5 s`."""
    if seconds < 1:
        milliseconds = seconds * 1000
        return f"{milliseconds:.1f} ms" if 0 < milliseconds < 3 else f"{milliseconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != int(seconds) else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days"


def size_text(size: float) -> str:
    """Return a number of bytes for a person: `3.4 MB`, `3 MB`."""
    return bytes_text(size, is_label=True)
