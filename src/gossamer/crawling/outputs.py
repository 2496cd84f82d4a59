"""Outputs at the end of a crawl: those that are named for the first time when it is finished, and the report.

Nothing is fetched for them. They are made from the crawl's other outputs, which have everything that they need. A crawl
with `--report` that has no such file on this machine (standard output, remote storage, tables) keeps its pages in the
data directory until the report is written. Safe to change: sentences, and the order in which existing outputs are
tried. Fixed: a file that exists is not changed; and the name of the file with the kept pages, which the command that
resumes the crawl looks for.
"""

import asyncio
import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from gossamer.errors import BadInput, SinkError
from gossamer.model.crawl import CrawlId
from gossamer.model.record import Destination, ItemRecord, PageRecord
from gossamer.settings import Settings
from gossamer.sinks.export import ExportOptions, ExportStopped, export_to, open_source
from gossamer.sinks.open import ENDINGS, TABLES, ending_of, is_url, kind_of, local_path
from gossamer.sinks.read import JoinedSource, Source
from gossamer.sinks.remote import hide_password
from gossamer.sinks.tables import TableOptions

_BEST_FIRST = (
    ".jsonl",
    ".jsonl.gz",
    ".jsonl.zst",
    ".parquet",
    ".sqlite",
    ".sqlite3",
    ".db",
    ".warc",
    ".warc.gz",
    ".json",
)
"""Endings of outputs in the order in which they are tried as a source; other formats come last. May be changed: the
first should be those that keep all of a record."""

_LARGE_BYTES = 100 * 2**20
"""Size from which a source is announced, because its export takes some time. Free to change."""


@dataclass(slots=True)
class LaterOutputs:
    """Result of making outputs of a finished crawl."""

    made: list[str] = field(default_factory=list)
    """Paths of the new outputs."""
    notes: list[str] = field(default_factory=list)
    """Sentences about each: what was exported from where, or why it was not."""
    failed: bool = False
    """True: at least one could not be made."""


@dataclass(frozen=True, slots=True)
class FinishedCrawl:
    """A finished crawl and what it has written."""

    crawl_id: str
    outputs: Sequence[str]
    """Absolute paths, URLs, or - for standard output, of earlier commands."""
    tables: TableOptions


async def make_outputs(
    named: Sequence[Destination], crawl: FinishedCrawl, *, say: Callable[[str], None]
) -> LaterOutputs:
    """Make those of the `named` outputs that the crawl does not have yet. `say` shows a sentence to a person.

    Cancelling it ends the work and removes what it began.
    """
    result = LaterOutputs()
    stopped = threading.Event()
    for output in named:
        if _key(output.path) in map(_key, crawl.outputs):
            continue
        work = asyncio.create_task(asyncio.to_thread(_make, output, crawl, stopped, say))
        try:
            note = await asyncio.shield(work)
        except asyncio.CancelledError:
            stopped.set()
            with contextlib.suppress(ExportStopped, SinkError, BadInput):
                await work
            raise
        except (BadInput, SinkError) as error:
            result.failed = True
            result.notes.append(f"{hide_password(output.path)} is not made: {error.detail}")
        else:
            result.made.append(output.path)
            result.notes += note
    return result


def _key(path: str) -> str:
    return path if path == "-" or is_url(path) else os.path.abspath(local_path(path))


def _make(output: Destination, crawl: FinishedCrawl, stopped: threading.Event, say: Callable[[str], None]) -> list[str]:
    """Make one output from the first source that has its records, and return sentences about it."""
    if output.path != "-" and not is_url(output.path) and _has_content(local_path(output.path)):
        raise BadInput("the file exists. Name another one, or delete it.")

    def check(_: int) -> None:
        if stopped.is_set():
            raise ExportStopped

    options = ExportOptions(
        kind_of(output, crawl.tables), crawl.tables.csv_guard, crawl.crawl_id, check, needs_records=True
    )
    ending = ".jsonl" if output.path == "-" else ending_of(output.path)
    with ExitStack() as folders:
        sources, problems = _open_sources(crawl, folders)
        if options.records == "all" and crawl.tables.has_items:
            sources = _with_pages_and_items(sources, options)
        for source in sources:
            if source.path.stat().st_size >= _LARGE_BYTES:
                say(f"Exporting {source.name} to {'standard output' if output.path == '-' else output.path}")
            folder = folders.enter_context(tempfile.TemporaryDirectory(prefix="gossamer-export-"))
            try:
                done = export_to(source, output.path, ending, options, Path(folder), replace=True)
            except BadInput as error:
                problems.append(error.detail)
                continue
            if options.records == "all" and crawl.tables.has_items and not done.items:
                done.losses.append("There are no items: no other output of the crawl has them.")
            return done.sentences(source.name, output.path)
    raise BadInput("; ".join(problems or ["the crawl has no other output"]))


def _open_sources(crawl: FinishedCrawl, folders: ExitStack) -> tuple[list[Source], list[str]]:
    """Return the outputs of the crawl that can be read, the best first, and why others cannot."""
    sources: list[Source] = []
    problems: list[str] = []
    for path in sorted(crawl.outputs, key=_rank):
        folder = folders.enter_context(tempfile.TemporaryDirectory(prefix="gossamer-export-"))
        try:
            if path == "-":
                raise BadInput("standard output is gone")
            sources.append(open_source(path, Path(folder)))
        except BadInput as error:
            problems.append(error.detail)
    return sources, problems


def _with_pages_and_items(sources: Sequence[Source], options: ExportOptions) -> list[Source]:
    """Return the sources with one before them that has both pages and items, if no single one has both."""
    first: dict[type, Source] = {}
    for source in sources:
        with contextlib.suppress(BadInput):
            for number, output in enumerate(source.outputs()):
                first.setdefault(type(output.record), source)
                if len(first) == 2:
                    break
                if number % 1000 == 0:
                    options.on_progress(0)
    if len(first) == 2 and first[PageRecord] is not first[ItemRecord]:
        return [JoinedSource(first[PageRecord], first[ItemRecord]), *sources]
    return list(sources)


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _rank(path: str) -> int:
    ending = ending_of(path) if path != "-" else ""
    return _BEST_FIRST.index(ending) if ending in _BEST_FIRST else len(ENDINGS)


_READABLE = frozenset(ENDINGS) - frozenset(TABLES)
"""Endings of outputs that have the bodies of pages, and take pages unless told otherwise."""


@dataclass(frozen=True, slots=True)
class CrawlReport:
    """The report of one crawl."""

    page: Path
    """Where the report is written."""
    records: Path
    """File that it is made from."""
    is_private: bool
    """True: the crawl writes that file for the report alone, which deletes it."""
    crawl_id: str

    @classmethod
    def of(cls, settings: Settings, crawl: CrawlId) -> Self | None:
        """Return the report that the settings ask for. None: they ask for none."""
        if not settings.crawl.report:
            return None
        page = Path(settings.crawl.report)
        for output in settings.crawl.output:
            if output.records != "items" and _is_readable(output.path):
                return cls(page, Path(output.path), False, crawl.crawlid)
        private = settings.data_dir / "report" / f"{crawl.token}.jsonl.zst"
        return cls(page, private, True, crawl.crawlid)

    def with_output(self, settings: Settings) -> Settings:
        """Return the settings with the private file as one more output, if there is one."""
        if not self.is_private:
            return settings
        outputs = (*settings.crawl.output, Destination(str(self.records), "pages"))
        return settings.copy(crawl=settings.crawl.copy(output=outputs))

    async def write(self, *, finished: bool) -> None:
        """Write the report of a crawl that has ended. Raises BadInput or SinkError.

        `finished`: nothing is left to fetch. Then the private file is deleted.
        """
        if not self.records.exists():
            raise BadInput(
                "the pages of this crawl were not kept for one. Crawl it again with --fresh."
                if self.is_private
                else f"{self.records} does not exist. To make one from another file: gossamer report FILE"
            )
        await asyncio.to_thread(self._make)
        if finished and self.is_private:
            self.records.unlink(missing_ok=True)

    def _make(self) -> None:
        from gossamer.report.page import make_report, write_page  # imported late: few crawls have a report

        write_page(self.page, make_report([self.records], crawl_id=self.crawl_id).page)


def check_report(settings: Settings) -> None:
    """Check, before anything is fetched, that the report can be written. Raises BadInput."""
    if settings.crawl.report:
        from gossamer.report.page import check_target

        outputs = [Path(output.path) for output in settings.crawl.output if _is_readable(output.path)]
        page = Path(settings.crawl.report)
        if page.suffix.lower() not in (".html", ".htm"):
            raise BadInput(f"--report: {page} does not end with .html. Name a page, for example report.html.")
        check_target(page, outputs)


def _is_readable(path: str) -> bool:
    """Return whether a report can be made from this output: a local file with the bodies of pages."""
    return path != "-" and "://" not in path and ending_of(path) in _READABLE
