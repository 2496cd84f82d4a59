"""Makes a report from files of records: one HTML file without script, and its tables as CSV files.

Used by `gossamer report` and `gossamer crawl --report`. Everything that comes from the web is hostile: Jinja2 escapes
every text, only http and https addresses become links, and the Content-Security-Policy allows nothing but the page's
own style sheet, by its hash. Fixed: those three defences; and nothing is written before all files were read, so that a
fault leaves an older report as it was.
"""

import base64
import csv
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from gossamer import __version__
from gossamer.controls import without_controls
from gossamer.errors import BadInput, SinkError
from gossamer.policy.words import counted
from gossamer.report import tables
from gossamer.report.charts import Bar, columns
from gossamer.report.figures import Figures, chart_table, collect, seconds_text, size_text
from gossamer.report.links import LinkFinder
from gossamer.report.records import PageFacts, RecordFile
from gossamer.report.store import PageStore
from gossamer.report.tables import derive
from gossamer.sinks.append import check_folder
from gossamer.storage.files import write_whole
from gossamer.web.html import Templates

MARKER = "<!-- Gossamer report -->"
"""Beginning of every page. A file with it is an older report, which may be overwritten. Must not change."""
_HREF = re.compile(r"https?://[!-~]+", re.IGNORECASE)
"""URL that becomes a link. Canonical URLs are printable ASCII; anything else stays a text."""
# Characters that the page shows. CSV files have all of them.
_URL_CHARACTERS = 150
"""Characters of a URL; of a longer one, its beginning and its end are shown."""
_URL_END = 39
"""Characters of the end of such a URL."""
_TEXT_CHARACTERS = 300
"""Characters of any other text."""
_MARKER_WITHIN_BYTES = 100
"""Beginning of an existing file in which MARKER is looked for. Must be at least as long as MARKER."""


def check_target(path: Path, inputs: Sequence[Path]) -> None:
    """Raise BadInput if the page cannot be written to this path, or would replace something that is no report."""
    shown = f"the report {path}"
    folder, fault = check_folder(path.parent)  # folders that are missing are made when the page is written
    if fault:
        raise BadInput(f"{shown} cannot be written: {folder} {fault}.")
    if path.is_dir():
        raise BadInput(f"{shown} is a folder. Name a file, for example {path / 'report.html'}.")
    if not path.exists():
        return
    if not path.is_file():
        raise BadInput(f"{shown} is a device or a pipe. Name a file, for example report.html.")
    if any(one.exists() and one.samefile(path) for one in inputs):
        raise BadInput(f"{shown} is one of the files with the records. Name another file.")
    if path.stat().st_size:
        try:
            with path.open("rb") as file:
                begin = file.read(_MARKER_WITHIN_BYTES)
        except OSError as error:
            raise BadInput(f"{shown} cannot be written: {error.strerror}.") from None
        if MARKER.encode() not in begin:
            raise BadInput(f"{shown} exists and is no report of Gossamer. Name another file.")


def write_page(path: Path, page: str) -> None:
    """Write the page at once, so that a reader never sees half of it. Raises SinkError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, page.encode())
    except OSError as error:
        raise SinkError(f"{path}: {error.strerror}") from None


def write_csv_files(folder: Path, store: PageStore, figures: Figures) -> list[Path]:
    """Write each table that has rows as a CSV file, and return their paths. Raises SinkError."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in tables.TABLES:
            path = folder / f"{table.name}.csv"
            if figures.totals[table.name]:
                _write_csv(path, table, table.rows(store, table.csv_rows))
                written.append(path)
            else:
                path.unlink(missing_ok=True)  # of an earlier report
        for table, rows in _chart_tables(figures):
            path = folder / f"{table.name}.csv"
            if rows:
                _write_csv(path, table, rows)
                written.append(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise SinkError(f"{folder}: {error.strerror}") from None
    return written


def csv_paths(folder: Path) -> list[Path]:
    """Return the paths of all CSV files that a report may write into a folder, or delete there."""
    names = [*tables.TABLES, *(table for table, _ in _chart_tables(Figures()))]
    return [folder / f"{table.name}.csv" for table in names]


def _chart_tables(figures: Figures) -> list[tuple[tables.Table, list[tuple[Any, ...]]]]:
    """Return the charts as tables, each with its rows. Their names are those of CSV files: fixed."""
    return [
        chart_table("pages-over-time", "time", figures.over_time, stacked=True),
        chart_table("response-times", "time", figures.times, stacked=False),
        chart_table("sizes", "size", figures.sizes, stacked=False),
        (tables.PERCENTILES, list(figures.percentiles)),
    ]


def _write_csv(path: Path, table: tables.Table, rows: Any) -> None:
    """Write a table with its head as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in table.columns])
        for row in rows:
            writer.writerow([tables.csv_value(column, value) for column, value in zip(table.columns, row, strict=True)])


def render(
    figures: Figures, *, crawls: Sequence[str], sources: Sequence[str], notes: Sequence[str], csv_link: str
) -> str:
    """Return the page. `crawls`: ids. `sources`: names of the files with the records. `notes`: sentences about what the
    records lack. `csv_link`: relative path of the folder with the CSV files; empty: there is none."""
    style = files("gossamer.report").joinpath("templates", "report.css").read_text(encoding="utf-8")
    only_host = figures.main_host if figures.hosts == 1 else ""
    filters: dict[str, Callable[..., Any]] = {
        "number": _number,
        "bytes": lambda value: "–" if value is None else size_text(value),
        "seconds": lambda value: "–" if value is None else seconds_text(value),
        "share": share_text,
        "link": partial(_link, only_host=only_host),
        "shown": _shown,
        "reason": tables.reason_words,
        "moment": _moment,
        "day": _day,
    }
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return Templates("gossamer.report", filters=filters).render(
        "report.html.j2",
        marker=Markup(MARKER),  # noqa: S704 (a constant)
        style=Markup(style),  # noqa: S704 (a file of this package)
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        figures=figures,
        tables={table.name: table for table in tables.TABLES},
        crawls=crawls,
        sources=sources,
        notes=notes,
        csv=quote(csv_link),
        version=__version__,
        made=datetime.now(UTC).timestamp(),
        columns=columns,
        describe=describe,
        period=_period,
    )


def describe(bars: Sequence[Bar], what: str) -> str:
    """Return a sentence on a chart for people who cannot see it."""
    if not bars:
        return what
    most = max(bars, key=lambda bar: bar.total)
    columns = f"{len(bars)} columns from {bars[0].name} to {bars[-1].name}"
    return f"{what}: {columns}; the highest is {most.total:,} at {most.name}."


def _link(url: str, only_host: str = "") -> Markup:
    """Return a URL as a link if it is http or https, else as text. The host is left out if all pages have the same."""
    text = url
    if only_host:
        _, scheme_end, rest = url.partition("://")
        if scheme_end and (rest == only_host or rest.startswith(f"{only_host}/")):
            text = rest.removeprefix(only_host) or "/"
    if len(text) > _URL_CHARACTERS:
        text = f"{text[: _URL_CHARACTERS - _URL_END - 1]}…{text[-_URL_END:]}"
    shown = escape(_shown(text))
    if not _HREF.fullmatch(url):
        return Markup('<bdi class="url">{}</bdi>').format(shown)
    return Markup('<a class="url" rel="noreferrer nofollow noopener" href="{}">{}</a>').format(url, shown)


def _shown(text: object) -> str:
    """Return a text without characters that would disturb the page, cut where it is very long."""
    clean = without_controls(str(text), one_line=True)
    return clean if len(clean) <= _TEXT_CHARACTERS else f"{clean[: _TEXT_CHARACTERS - 1]}…"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def share_text(part: int, whole: int) -> str:
    """Return a share in percent that is 0 or 100 only if it is exactly that."""
    if not whole:
        return "–"
    percent = part / whole * 100
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    is_short = 10 <= percent < 99 or percent == int(percent)
    return f"{percent:.0f} %" if is_short else f"{percent:.1f} %"


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%-d %B %Y")


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%-d %B %Y, %H:%M UTC")


def _period(began: float, ended: float) -> str:
    """Return a period in words: `22 November 2026, 09:00 to 09:07 UTC (7 min 3 s)`."""
    if ended - began < 1:
        return f"{_moment(began)}, within a second"
    if ended - began < 60:
        return f"{_moment(began)}, in {seconds_text(ended - began)}"
    first = datetime.fromtimestamp(began, UTC).strftime("%-d %B %Y, %H:%M")
    last = datetime.fromtimestamp(ended, UTC).strftime("%H:%M" if _day(began) == _day(ended) else "%-d %B %Y, %H:%M")
    return f"{first} to {last} UTC ({seconds_text(ended - began)})"


_PROGRESS_PAGES = 1000
"""Pages between two calls of `on_progress`."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was made."""

    page: str
    """The page as HTML."""
    figures: Figures
    notes: list[str]
    """Sentences about what the records lack."""
    csv_files: list[Path]


def make_report(
    paths: Sequence[Path],
    *,
    crawl_id: str = "",
    csv_folder: Path | None = None,
    csv_link: str = "",
    on_progress: Callable[[str, int], None] = lambda step, pages: None,
) -> Report:
    """Return the report on the records in these files, and write the CSV files if a folder for them is given.

    `crawl_id`: count only the pages of this crawl; empty: all. `csv_link`: path of the CSV folder as seen from the
    page. `on_progress`: called with the present step and the number of pages that it has read. Takes about a fifth of a
    millisecond for a page of 12 KB. Raises BadInput for a file that cannot be read or has no pages, SinkError for CSV
    files that cannot be written.
    """
    sources = [RecordFile(path) for path in paths]
    with PageStore() as store:
        # First reading: facts about the pages. Second reading: links, of which only those to pages that failed or are
        # listed in a sitemap are kept, so all pages must be known before.
        for source in sources:
            for page in _pages(source, crawl_id):
                store.add(page)
                if store.added % _PROGRESS_PAGES == 0:
                    on_progress("Reading pages", store.added)
        notes = _notes(sources, store)
        store.finish_pages()
        finder = LinkFinder(store)
        number = 0
        for source in sources:
            for page in _pages(source, crawl_id):
                finder.read(number, page)
                number += 1
                if number % _PROGRESS_PAGES == 0:
                    on_progress("Reading titles and links", number)
        finder.finish()
        derive(store)
        figures = collect(store, finder)
        if store.replaced:
            notes.append(
                f"{store.replaced:,} older records are left out, because a later record has the same URL."
                if store.replaced > 1
                else "1 older record is left out, because a later record has the same URL."
            )
        csv_files = write_csv_files(csv_folder, store, figures) if csv_folder else []
        html = render(
            figures, crawls=list(store.crawls), sources=[path.name for path in paths], notes=notes, csv_link=csv_link
        )
    return Report(html, figures, notes, csv_files)


def _pages(source: RecordFile, crawl_id: str) -> Iterator[PageFacts]:
    """Yield the pages of a crawl. A file may have those of several crawls, one after the other."""
    for page in source.pages():
        if not crawl_id or not page.crawlid or page.crawlid == crawl_id:
            yield page


def _notes(sources: Sequence[RecordFile], store: PageStore) -> list[str]:
    """Return sentences on damaged files. Raises BadInput if there are no pages but other records."""
    notes: list[str] = []
    for source in sources:
        if source.unreadable and not store.added:
            raise BadInput(f"{source.path} has no records of pages ({source.first_error}). Name an output of a crawl.")
        if source.items and not store.added:
            raise BadInput(
                f"{source.path} has items and no pages ({source.items:,}). Name an output that has pages (--pages)."
            )
        if source.unreadable:
            notes.append(
                f"{source.path.name}: {counted(source.unreadable, 'line')} could not be read ({source.first_error})."
            )
        if source.torn:
            notes.append(f"{source.path.name} ends in the middle of a record: the crawl runs still, or was killed.")
    return notes
