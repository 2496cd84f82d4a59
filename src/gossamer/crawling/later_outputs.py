"""Outputs that a person names when a crawl is finished: made from the crawl's other outputs, without fetching."""

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import msgspec

from gossamer.crawling.outputs import exists
from gossamer.errors import BadInput, SinkError
from gossamer.model.content import ContentOptions, content_items
from gossamer.model.record import Destination, ItemRecord, Output, PageRecord
from gossamer.net.credentials import hide_secrets
from gossamer.settings import Settings
from gossamer.sinks.export import ExportOptions, ExportStopped, export_to, open_source
from gossamer.sinks.open import (
    ENDINGS,
    ending_of,
    is_local,
    kind_of,
    local_path,
)
from gossamer.sinks.read import JoinedSource, Source
from gossamer.sinks.stores.address import is_store
from gossamer.sinks.tables import TableOptions
from gossamer.wiring.frontier import absolute_path
from gossamer.wiring.outputs import refused_folder, table_options
from gossamer.wiring.plan import content_options
from gossamer.worker.records import item_record

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
"""Endings of outputs in the order in which they are tried as a source; other formats come last. The first should be
those that keep all of a record."""

_LARGE_BYTES = 100 * 2**20
"""Size from which a source is announced, because its export takes some time. Smaller announces exports that take less
than a second."""


class LaterOutputs(msgspec.Struct):
    """Result of making outputs of a finished crawl."""

    made: list[str] = msgspec.field(default_factory=list)
    """Paths of the new outputs."""
    of_items: list[str] = msgspec.field(default_factory=list)
    """Those of them that hold only items."""
    mixed: list[str] = msgspec.field(default_factory=list)
    """Those of them that hold pages and items."""
    notes: list[str] = msgspec.field(default_factory=list)
    """Sentences about each: what was exported from where, or why it was not."""
    failed: bool = False
    """True: at least one could not be made."""


class FinishedCrawl(msgspec.Struct, frozen=True):
    """A finished crawl and what it has written."""

    crawl_id: str
    outputs: Sequence[str]
    """Absolute paths, URLs, or - for standard output, of earlier commands."""
    settings: Settings

    @property
    def tables(self) -> TableOptions:
        """Options of its tables."""
        return table_options(self.settings)

    @property
    def content(self) -> ContentOptions | None:
        """Main content that is wanted of its pages. None: none."""
        return content_options(self.settings)


async def make_outputs(
    named: Sequence[Destination], crawl: FinishedCrawl, *, say: Callable[[str], None]
) -> LaterOutputs:
    """Make those of the `named` outputs that the crawl does not have yet. `say` shows a sentence to a person.

    Cancelling it ends the work and removes what it began.
    """
    result = LaterOutputs()
    stopped = threading.Event()
    for output in named:
        if absolute_path(output.path) in map(absolute_path, crawl.outputs):
            continue
        work = asyncio.create_task(asyncio.to_thread(_make, output, crawl, stopped, say))
        try:
            sentences, kinds = await asyncio.shield(work)
        except asyncio.CancelledError:
            stopped.set()
            with contextlib.suppress(ExportStopped, SinkError, BadInput):
                await work
            raise
        except (BadInput, SinkError) as error:
            result.failed = True
            result.notes.append(f"{hide_secrets(output.path)} is not made: {error.detail}")
        else:
            result.made.append(output.path)
            result.of_items += [output.path] if "pages" not in kinds else []
            result.mixed += [output.path] if len(kinds) > 1 else []
            result.notes += sentences
    return result


def _make(
    output: Destination, crawl: FinishedCrawl, stopped: threading.Event, say: Callable[[str], None]
) -> tuple[list[str], set[Literal["pages", "items"]]]:
    """Make one output from the first source that has its records. Return sentences about it, and the kinds of records
    that it holds."""
    if exists(output):
        raise BadInput("the file exists. Name another one, or delete it.")
    # Only one without content that is there now, and none that is made meanwhile.
    replace = not is_local(output.path) or local_path(output.path).exists()

    def stop_if_asked(_: int) -> None:
        if stopped.is_set():
            raise ExportStopped

    options = ExportOptions(
        kind_of(output, crawl.tables),
        crawl.tables.csv_guard,
        crawl.crawl_id,
        stop_if_asked,
        needs_records=True,
        refused_folder=refused_folder(crawl.settings),
    )
    ending = ".jsonl" if output.path == "-" else ending_of(output.path)
    with ExitStack() as folders:
        sources, problems = _open_sources(crawl, folders)
        if options.records == "all" and crawl.tables.has_items:
            sources = _with_pages_and_items(sources, options)
        if options.records == "items" and crawl.content is not None and crawl.content.chunk is None:
            sources += [ContentSource(source, crawl.content) for source in sources]
        for source in sources:
            if source.path.stat().st_size >= _LARGE_BYTES:
                say(f"Exporting {source.name} to {'standard output' if output.path == '-' else output.path}")
            folder = folders.enter_context(tempfile.TemporaryDirectory(prefix="gossamer-export-"))
            try:
                done = export_to(source, output.path, ending, options, Path(folder), replace=replace)
            except BadInput as error:
                problems.append(error.detail)
                continue
            if options.records == "all" and crawl.tables.has_items and not done.items:
                done.losses.append("There are no items: no other output of the crawl has them.")
            held: dict[Literal["pages", "items"], int] = {"pages": done.pages, "items": done.items}
            kinds = {kind for kind, count in held.items() if count}
            return done.sentences(source.name, hide_secrets(output.path)), kinds
    raise BadInput("; ".join(dict.fromkeys(problems) or ["the crawl has no other output"]))


class ContentSource(Source):
    """The main content in the records of an output, as items: the crawl wrote it there, because no output then took
    only items."""

    def __init__(self, source: Source, options: ContentOptions) -> None:
        super().__init__(source.path, ending=source.ending, name=source.name)
        self._source = source
        self._options = options

    def outputs(self) -> Iterator[Output]:
        for output in self._source.outputs():
            page = output.record
            if isinstance(page, PageRecord) and page.content is not None:
                for item in content_items(page.content, None, page.response_url or page.url, self._options):
                    yield Output(record=item_record(page, item))


def _open_sources(crawl: FinishedCrawl, folders: ExitStack) -> tuple[list[Source], list[str]]:
    """Return the outputs of the crawl that can be read, the best first, and why others cannot."""
    sources: list[Source] = []
    problems: list[str] = []
    for path in sorted(crawl.outputs, key=_rank):
        folder = folders.enter_context(tempfile.TemporaryDirectory(prefix="gossamer-export-"))
        try:
            if path == "-":
                raise BadInput("standard output cannot be read again")
            if is_store(path):
                raise BadInput(f"the crawl's records in {hide_secrets(path)} cannot be read again")
            sources.append(open_source(path, Path(folder)))
        except BadInput as error:
            problems.append(error.detail)
    return sources, problems


def _with_pages_and_items(sources: Sequence[Source], options: ExportOptions) -> list[Source]:
    """Return the sources. If pages and items are in different sources, one that joins these two comes first."""
    first: dict[type, Source] = {}  # the first source with pages, and the first one with items
    for source in sources:
        with contextlib.suppress(BadInput):  # of the export, which reads the source again
            for number, output in enumerate(source.outputs()):
                first.setdefault(type(output.record), source)
                if len(first) == 2:
                    break
                if number % _CHECKED_EVERY == 0:
                    options.on_progress(0)  # ends the search if the work was cancelled
    if len(first) == 2 and first[PageRecord] is not first[ItemRecord]:
        return [JoinedSource(first[PageRecord], first[ItemRecord]), *sources]
    return list(sources)


_CHECKED_EVERY = 1000
"""Records after which a search notices that the work was cancelled. More delay Ctrl-C."""


def _rank(path: str) -> int:
    """Return the place of an output in the order in which sources are tried: 0 for the best."""
    ending = ending_of(path) if path != "-" else ""
    return _BEST_FIRST.index(ending) if ending in _BEST_FIRST else len(ENDINGS)
