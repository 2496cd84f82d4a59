"""Outputs around a crawl: those that exist before it, those that a person names when it is finished, and empty ones.

Outputs that are named later are made from the crawl's other outputs; nothing is fetched for them.

Safe to change: sentences (tests quote some), and the order in which existing outputs are tried as a source. Fixed: a
file with the records of another crawl is neither emptied nor added to, except in the cases in the docstring of
`find_existing`, which users rely on.
"""

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from gossamer.crawling.work import CrawlResult
from gossamer.errors import BadInput, SinkError
from gossamer.model.content import ContentOptions, content_items
from gossamer.model.record import Destination, ItemRecord, Output, PageRecord
from gossamer.settings import Settings
from gossamer.sinks.append import check_folder
from gossamer.sinks.assets import crawls_in, empty_folder, manifest_of
from gossamer.sinks.export import ExportOptions, ExportStopped, export_to, open_source
from gossamer.sinks.open import (
    ENDINGS,
    NOT_WRITTEN,
    discard,
    ending_of,
    has_content,
    is_local,
    kind_of,
    lack_of_items,
    local_path,
)
from gossamer.sinks.read import JoinedSource, Source
from gossamer.sinks.remote import hide_password
from gossamer.sinks.tables import TableOptions
from gossamer.wiring.frontier import KnownWriters, absolute_path, may_have_written
from gossamer.wiring.plan import content_options
from gossamer.wiring.worker import table_options
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
"""Endings of outputs in the order in which they are tried as a source; other formats come last. May be changed: the
first should be those that keep all of a record."""

_LARGE_BYTES = 100 * 2**20
"""Size from which a source is announced, because its export takes some time. May be changed: smaller announces exports
that take less than a second."""


@dataclass(slots=True)
class LaterOutputs:
    """Result of making outputs of a finished crawl."""

    made: list[str] = field(default_factory=list)
    """Paths of the new outputs."""
    of_items: list[str] = field(default_factory=list)
    """Those of them that hold only items."""
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
            sentences, only_items = await asyncio.shield(work)
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
            result.of_items += [output.path] if only_items else []
            result.notes += sentences
    return result


def _make(
    output: Destination, crawl: FinishedCrawl, stopped: threading.Event, say: Callable[[str], None]
) -> tuple[list[str], bool]:
    """Make one output from the first source that has its records. Return sentences about it, and whether it holds only
    items."""
    if not may_be_made(output):
        raise BadInput("the file exists. Name another one, or delete it.")

    def stop_if_asked(_: int) -> None:
        if stopped.is_set():
            raise ExportStopped

    options = ExportOptions(
        kind_of(output, crawl.tables), crawl.tables.csv_guard, crawl.crawl_id, stop_if_asked, needs_records=True
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
                done = export_to(source, output.path, ending, options, Path(folder), replace=True)
            except BadInput as error:
                problems.append(error.detail)
                continue
            if options.records == "all" and crawl.tables.has_items and not done.items:
                done.losses.append("There are no items: no other output of the crawl has them.")
            return done.sentences(source.name, output.path), not done.pages
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
                raise BadInput("standard output is gone")
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
"""Records after which a search notices that the work was cancelled. May be changed: more delay Ctrl-C."""


def may_be_made(output: Destination) -> bool:
    """Return whether an output may still be made: it is no file with content."""
    return not (is_local(output.path) and has_content(local_path(output.path)))


def _rank(path: str) -> int:
    """Return the place of an output in the order in which sources are tried: 0 for the best."""
    ending = ending_of(path) if path != "-" else ""
    return _BEST_FIRST.index(ending) if ending in _BEST_FIRST else len(ENDINGS)


# --- outputs that exist before the crawl ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Options of a person for the beginning of a crawl, and for outputs that exist. They are --fresh and --append."""

    fresh: bool = False
    """True: a finished crawl is crawled again, and its outputs begin empty."""
    append: bool = False
    """True: outputs keep what they hold, whichever crawl wrote it."""
    named_outputs: bool = True
    """False: no output is named, and the default one is used."""
    resume_command: str = ""
    """Command line that resumes the crawl, for its note. Empty: a program starts the crawl."""

    @property
    def replaces_outputs(self) -> bool:
        """True: outputs begin empty."""
        return self.fresh and not self.append


@dataclass(slots=True)
class ExistingOutputs:
    """Local outputs with content, of a crawl that is about to begin or to go on."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each, by path as it is named."""
    failed_only: list[str] = field(default_factory=list)
    """Paths of those with nothing but failed requests of another crawl of the same site. They are emptied: most likely
    that crawl was begun with wrong options, and this one is its correction."""
    beside: set[str] = field(default_factory=set)
    """Names of other crawls whose records stay in an output."""
    foreign: list[str] = field(default_factory=list)
    """Absolute paths of those with rows that name no crawl and that no known crawl wrote, which stay."""
    replaced: list[str] = field(default_factory=list)
    """Absolute paths of those that other crawls of the same seeds wrote. They are emptied (--fresh)."""

    def empty(self, outputs: Sequence[Destination], spool_dir: Path) -> None:
        """Empty these outputs. A file that has changed meanwhile stays: another command is writing it."""
        for output in outputs:
            path = local_path(output.path)
            size = path.stat().st_size if is_local(output.path) and path.exists() else 0
            if size == self.sizes.get(output.path, 0):
                discard(output, spool_dir=spool_dir)

    def empty_assets(self, folder: str) -> None:
        """Delete the assets in a folder. If its manifest has changed meanwhile, they stay, as above."""
        manifest = Path(manifest_of(folder))
        if manifest.exists() and manifest.stat().st_size == self.sizes.get(str(manifest), 0):
            empty_folder(Path(folder))


def find_existing(
    outputs: Sequence[Destination], folder: str, known: KnownWriters, start: StartOptions
) -> ExistingOutputs:
    """Return which outputs have content, and check that this crawl may use them. Raises BadInput for the first one that
    it may not use.

    With --append, every output may be used. Otherwise an output must hold records of this crawl, records of other
    crawls if an earlier start of this crawl was given --append for them, or nothing but failures of a crawl of the same
    site. --fresh also replaces what only crawls of the same seeds wrote. The notes in the data directory tell whose a
    file is that does not name its crawl. `folder`: of assets, the files that pages embed or link; empty: none.
    """
    note = known.note()
    found = ExistingOutputs()
    if folder:
        _check_assets(found, folder, known.crawl_id, start, set(note.beside if note else ()))
    for output in outputs:
        if may_be_made(output):  # it holds nothing
            continue
        path = local_path(output.path)
        found.sizes[output.path] = path.stat().st_size
        absolute = absolute_path(output.path)
        is_known = note is not None and may_have_written(note, absolute)
        try:
            crawls = _crawls_in(path, all_records=start.replaces_outputs)
        except BadInput as error:
            if is_known or start.append:
                continue  # the sink repairs a torn end, or refuses the file
            raise BadInput(
                f"{path} is not empty, and not the output of a crawl ({error.detail}). {_OTHERWISE}"
            ) from None
        if note is not None and absolute in note.foreign:
            found.foreign.append(absolute)
        if start.append:
            _append_to(found, absolute, crawls, known, is_known=is_known)
        else:
            _check_writers(found, output.path, crawls, known, start)
    return found


def _append_to(found: ExistingOutputs, path: str, crawls: set[str], known: KnownWriters, *, is_known: bool) -> None:
    """Note in `found` whose records are in this file (an absolute path), which stay. Arguments as below."""
    found.beside |= crawls - {known.crawl_id, ""}
    if is_known or crawls - {""}:
        return
    writers = known.others_of(path)
    found.beside |= {note.run.crawl.id.crawlid for note in writers}
    if not writers or any(path in note.foreign for note in writers):
        found.foreign.append(path)


def _check_writers(
    found: ExistingOutputs, name: str, crawls: set[str], known: KnownWriters, start: StartOptions
) -> None:
    """Check that the crawl may use the file of this name without --append, and enter in `found` what it may empty.

    `crawls`: names of the crawls whose records are in the file; an empty name for records that name none. With --fresh,
    which deletes what is in the file, of all its records; otherwise of the first one. Raises BadInput."""
    path, absolute, note = local_path(name), absolute_path(name), known.note()
    others = crawls - {known.crawl_id, ""}
    is_known = note is not None and may_have_written(note, absolute)
    if start.fresh and crawls == {known.crawl_id}:
        return
    if start.fresh and known.may_replace(absolute, crawls):
        found.replaced.append(absolute)
    elif others and _site(others) == _site({known.crawl_id}) and _has_only_failures(path):
        found.failed_only.append(name)
    elif others and (start.fresh or note is None or not others <= set(note.beside)):
        raise BadInput(_refusal(path, min(others), known.may_replace(absolute, crawls)))
    elif start.fresh or (not is_known and not crawls - {""}):
        if writers := known.others_of(absolute):
            raise BadInput(_refusal(path, writers[-1].run.crawl.id.crawlid, known.may_replace(absolute, crawls)))
        if is_known:
            raise BadInput(
                f"{path} also holds rows that this crawl did not write; --fresh would delete them. {_OTHERWISE}"
            )
        raise BadInput(f"{path} is not empty, and it does not say which crawl wrote it. {_OTHERWISE}")


def _check_assets(
    found: ExistingOutputs, folder: str, crawl_id: str, start: StartOptions, known_beside: set[str]
) -> None:
    """Add the manifest of a folder of assets to `found`, and check that the crawl may use the folder. `known_beside`:
    other crawls beside which it was told to write. Raises BadInput."""
    manifest = Path(manifest_of(folder))
    if not has_content(manifest):
        return
    found.sizes[str(manifest)] = manifest.stat().st_size
    others = crawls_in(Path(folder)) - {crawl_id}
    if start.append:
        found.beside |= others
    elif others and (start.fresh or not others <= known_beside):
        raise BadInput(
            f"{folder} holds the assets of another crawl, {min(others)}. Name another folder with --assets-to, or add "
            "--append to keep what it holds."
        )


def _refusal(path: Path, writer: str, replaceable: bool) -> str:
    """Return why a file is refused that another crawl, `writer`, wrote. `replaceable`: --fresh may empty it."""
    return f"{path} holds the records of another crawl, {writer}. {_REPLACE if replaceable else _OTHERWISE}"


_OTHERWISE = "Name another output, add --append to keep what it holds, or delete it."
_REPLACE = "Replace it with --fresh, name another output, add --append to keep what it holds, or delete it."
"""Ends of refusals of an output; the second where --fresh may replace it. May be changed; tests quote them."""

_MOST_FAILURES = 1000
"""Records among which `_has_only_failures` looks for a page. May be changed: larger files count as having one."""


def _crawls_in(path: Path, *, all_records: bool) -> set[str]:
    """Return the names of the crawls in a file: of all records, or only of the first. Empty: they do not name one."""
    records = Source(path).outputs()
    return {output.record.crawlid for output in (records if all_records else islice(records, 1))}


def _site(crawls: set[str]) -> set[str]:
    """Return the hosts in names of crawls. A name that is made from the options is the host, a hyphen and a digest."""
    return {name.rpartition("-")[0] for name in crawls}


def _has_only_failures(path: Path) -> bool:
    """Return whether a file holds nothing but pages that failed, and not too many of them to be read."""
    for number, output in enumerate(Source(path).outputs()):
        if number >= _MOST_FAILURES or isinstance(output.record, ItemRecord) or output.record.success:
            return False
    return True


def item_outputs(settings: Settings) -> tuple[str, ...]:
    """Return those of the outputs that take only items."""
    tables = table_options(settings)
    return tuple(output.path for output in settings.crawl.output if kind_of(output, tables) == "items")


def find_empty_outputs(result: CrawlResult) -> None:
    """Enter in the result which outputs for items hold none, and take those that do not exist out of its outputs."""
    if result.tally.items or result.unwritten or result.missing_records:
        return
    lacks = {path: lack_of_items(path) for path in result.item_outputs}
    unknown = ("", NOT_WRITTEN) if result.already_finished else ("",)  # it may have been on another machine
    result.without_items = {path: why for path, why in lacks.items() if why not in unknown}
    result.outputs = tuple(path for path in result.outputs if lacks.get(path) != NOT_WRITTEN)


def check_data_dir(settings: Settings) -> None:
    """Check, before anything is fetched, that the data directory can be used. Raises BadInput."""
    folder, fault = check_folder(settings.data_dir)
    if fault:
        raise BadInput(f"--data-dir: {folder} {fault}. Name another directory.")
